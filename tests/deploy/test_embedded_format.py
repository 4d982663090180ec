"""Versions 2 and 3 of the format, and parts of the C++ program that Python has too, held to it."""

import hashlib
import json
import random
import zlib

import numpy
import pytest
import torch

from sparsepath.deploy.files.artifact import load
from sparsepath.deploy.files.packing import _written
from sparsepath.errors import BadInput
from sparsepath.storage import write_tensors

from .builds import built
from .embedded import NEEDS, answered, check_refused, refused, run

pytestmark = NEEDS


@pytest.fixture(scope="module")
def program():
    return [built("sanitized") / "sparsepath-infer"]


@pytest.fixture(scope="module")
def parts():
    return [built("sanitized") / "parts"]


# ---- version 2, written here by the letter of its description


def deflated(content, strategy=zlib.Z_DEFAULT_STRATEGY):
    coder = zlib.compressobj(9, zlib.DEFLATED, -15, 9, strategy)
    return coder.compress(content) + coder.flush()


def as_bytes(content):
    return torch.from_numpy(numpy.frombuffer(bytes(content), numpy.uint8).copy())


FORMATS = ("sparsepath artifact 2", "sparsepath artifact 3")


def scales_of(array, groups):
    """Of each row, or of each column within each of some groups of rows."""
    if not groups:
        return array.abs().amax(1) / 127
    return array.abs().reshape(groups, -1, array.shape[1]).amax(1) / 127


def beside(scales, array, groups):
    return scales.repeat_interleave(len(array) // groups, 0) if groups else scales[:, None]


def second(
    path, array, code, *, deflate=True, how=None, groups=0, change=lambda tensors, entry: None
):
    """A linear layer's weight, and nothing else, in a file of version 2, or 3 with groups."""
    alive, sizes = (array != 0).flatten(), {}
    way = how or ("dense" if alive.all() else "gaps4" if deflate else "mask")
    kept = array.flatten() if way == "dense" else array.flatten()[alive]
    tensors = {} if way == "dense" else {"where": _written(way, alive)}
    if code == "levels":
        scales = scales_of(array, groups)
        rows = (array / beside(scales, array, groups)).round().to(torch.int8)
        tensors |= {
            "values": rows[array != 0] if way != "dense" else rows.flatten(),
            "scales": scales.flatten(),
        }
    elif code == "plain":
        tensors["values"] = kept if deflate or way != "dense" else array
    else:
        bits = int(code[-1])
        book, indices = kept.unique(return_inverse=True)
        stream = "".join(f"{int(k):0{bits}b}"[::-1] for k in indices)
        stream += "0" * (-len(stream) % 8)
        content = [int(stream[k : k + 8][::-1], 2) for k in range(0, len(stream), 8)]
        tensors |= {"values": as_bytes(content), "codebook": book}
    for kind in ("values", "where") if deflate else ():
        if kind in tensors:
            content = tensors[kind].numpy().tobytes()
            sizes[kind] = len(content)
            tensors[kind] = as_bytes(deflated(content))
    entry = {"shape": list(array.shape), "dtype": "float32", "how": way, "block": 1}
    entry |= {"code": code, "deflated": sizes} | ({"axis": 1} if groups else {})
    change(tensors, entry)
    node = {
        "name": "y",
        "op": "linear",
        "inputs": ["x"],
        "attributes": {},
        "arrays": {"weight": "w"},
    }
    named = {f"{kind}:w": part for kind, part in tensors.items()}
    sums = {
        name: hashlib.sha256(part.numpy().tobytes()).hexdigest() for name, part in named.items()
    }
    manifest = {
        "versions": {},
        "factory": None,
        "arrays": {"w": entry},
        "support": {},
        "figures": {"dict": {}},
        "graph": {"inputs": ["x"], "nodes": [node], "output": {"value": "y"}},
        "checksums": sums,
    }
    text = json.dumps(manifest)
    sha256 = hashlib.sha256(text.encode()).hexdigest()
    write_tensors(path, named, {"format": FORMATS[groups > 0], "manifest": text, "sha256": sha256})


def shared_weights(distinct, sparse):
    generator = torch.Generator().manual_seed(distinct)
    book = torch.randn(distinct, generator=generator)
    weight = book[torch.randint(distinct, (40, 30), generator=generator)]
    return (
        torch.where(torch.rand(40, 30, generator=generator) < 0.8, 0.0, weight)
        if sparse
        else weight
    )


@pytest.mark.parametrize("deflate", [False, True])
@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize(
    "code", ["plain", "levels", "codebook1", "codebook3", "codebook5", "codebook8"]
)
def test_version_2_is_read(program, tmp_path, code, sparse, deflate):
    weight = shared_weights(2 ** int(code[-1]) if code[-1].isdigit() else 256, sparse)
    if code == "levels":
        weight[:, 0] = 1.0  # no row without a scale
        scale = weight.abs().amax(1, keepdim=True) / 127
        weight = (weight / scale).round() * scale
    second(tmp_path / "net", weight, code, deflate=deflate, how=None if sparse else "dense")
    given = answered(program, tmp_path / "net", torch.eye(30))
    assert torch.equal(given.T.contiguous(), weight)


@pytest.mark.parametrize("groups", [1, 4, 40])
@pytest.mark.parametrize("sparse", [False, True])
def test_scales_of_the_second_axis_are_read(program, tmp_path, groups, sparse):
    weight = shared_weights(256, sparse)
    weight[:: 40 // groups] = 1.0  # no column of a group without a scale
    each = beside(scales_of(weight, groups), weight, groups)
    weight = (weight / each).round() * each
    second(tmp_path / "net", weight, "levels", groups=groups)
    given = answered(program, tmp_path / "net", torch.eye(30))
    assert torch.equal(given.T.contiguous(), weight)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda t, e: e.update(axis=2), "unknown"),
        (lambda t, e: e.update(axis=-1), "no sane shape"),
        (lambda t, e: e.pop("axis"), "'w'"),
        (lambda t, e: t.update(scales=t["scales"][:29]), "scales do not fit"),
        (lambda t, e: t.update(scales=t["scales"].repeat(3)), "scales do not fit"),
        (lambda t, e: t.update(scales=t["scales"][:0]), "scales do not fit"),
    ],
)
def test_scales_that_no_group_has_are_refused(program, tmp_path, change, says):
    weight = shared_weights(31, False)
    second(tmp_path / "net", weight, "levels", groups=1, change=change)
    said = check_refused(program, tmp_path / "net", (tmp_path / "net").read_bytes(), "x")
    assert says in said
    with pytest.raises(BadInput, match="damaged or not ours"):
        load(tmp_path / "net")


def swapped(kind, part):
    return lambda tensors, entry: tensors.__setitem__(kind, part(tensors[kind]))


FAULTS_OF_2 = {
    "scales below zero": ("levels", swapped("scales", lambda x: -x), "above zero"),
    "too few scales": ("levels", swapped("scales", lambda x: x[:7]), "scales do not fit"),
    "too short a codebook": (
        "codebook5",
        swapped("codebook", lambda x: x[:-1]),
        "beyond its codebook",
    ),
    "too long a codebook": (
        "codebook5",
        swapped("codebook", lambda x: torch.cat((x, x))),
        "codebook has",
    ),
    "cut stream": ("plain", swapped("values", lambda x: x[:-1]), "end too early"),
    "longer stream": (
        "plain",
        swapped("values", lambda x: torch.cat((x, x[:1]))),
        "another number",
    ),
    "another size": ("plain", lambda t, e: e["deflated"].update(values=4), "more than they should"),
    "a bomb": ("plain", lambda t, e: e["deflated"].update(values=2**39), "do not fit"),
    "deflated scales": ("levels", lambda t, e: e["deflated"].update(scales=4), "unknown"),
    "no scales": ("levels", lambda t, e: t.pop("scales"), "scales are missing"),
}


@pytest.mark.parametrize("fault", FAULTS_OF_2)
def test_a_fault_of_version_2_is_refused(program, tmp_path, fault):
    code, change, expected = FAULTS_OF_2[fault]
    weight = shared_weights(31, True)
    weight[:, 0] = 1.0
    second(tmp_path / "net", weight, code, change=change)
    said = check_refused(program, tmp_path / "net", (tmp_path / "net").read_bytes(), "x")
    assert expected in said


# ---- the parts, held to Python's


@pytest.mark.parametrize("size", [0, 1, 55, 56, 63, 64, 65, 119, 120, 1000])
def test_sha256_is_python_s(parts, tmp_path, size):
    content = random.Random(size).randbytes(size)
    (tmp_path / "file").write_bytes(content)
    assert run(parts, "sha256", tmp_path / "file").stdout == hashlib.sha256(content).hexdigest()


def test_inflating_is_python_s(parts, tmp_path):
    draw, path = random.Random(0), tmp_path / "stream"
    contents = [
        b"",
        b"a",
        b"a" * 70_000,
        draw.randbytes(70_000),
        bytes(draw.choices(range(5), k=9_000)),
    ]
    for content in [*contents, b"".join(draw.choices([b"abc", b"xyzw" * 60, b"\0"], k=3_000))]:
        for strategy in (zlib.Z_DEFAULT_STRATEGY, zlib.Z_HUFFMAN_ONLY, zlib.Z_FIXED, zlib.Z_RLE):
            stream = deflated(content, strategy)
            path.write_bytes(stream)
            expected = hashlib.sha256(content).hexdigest()
            assert run(parts, "inflate", path, str(len(content))).stdout == expected
            assert "deflated bytes are damaged" in refused(
                parts, "inflate", path, str(len(content) + 1)
            )


def test_a_damaged_stream_never_gives_other_bytes_than_zlib(parts, tmp_path):
    draw, path = random.Random(3), tmp_path / "stream"
    content = b"".join(draw.choices([b"abc", b"xyzw" * 9, b"\0"], k=300))
    for _ in range(60):
        stream = bytearray(deflated(content))
        stream[draw.randrange(min(len(stream), 120))] ^= 1 << draw.randrange(8)
        path.write_bytes(stream)
        given = run(parts, "inflate", path, str(len(content)))
        decoder = zlib.decompressobj(-15)
        try:
            wanted = decoder.decompress(bytes(stream), len(content) + 1)
            whole = decoder.eof and not decoder.unused_data and len(wanted) == len(content)
        except zlib.error:
            whole = False
        assert given.returncode == (0 if whole else 2), given.stderr
        if whole:
            assert given.stdout == hashlib.sha256(wanted).hexdigest()


def spelled(x):
    """JSON with texts as the bytes of their UTF-8."""
    if isinstance(x, str):
        return x.encode().hex()
    if isinstance(x, list):
        return [spelled(part) for part in x]
    return {spelled(k): spelled(part) for k, part in x.items()} if isinstance(x, dict) else x


JSONS = [
    '{"a": [1, -2, 3.5e-3, true, false, null], "b": {"": []}, "c": {}}',
    " [ ] ",
    '"\\u00e9\\ud83d\\ude00\\n\\/é"',
    "-12345678901234567",
    "-0",
    "1E+2",
    "0.1",
    '[[["x"]]]',
]
NO_JSONS = [
    "",
    "{",
    "[1,]",
    "[1 2]",
    '{"a"}',
    '{"a":}',
    "01",
    "1.",
    ".5",
    "+1",
    "NaN",
    "Infinity",
    "tru",
    "'a'",
    '"\\x"',
    '"\\ud800"',
    '"\\udc00"',
    '"\\u12"',
    '"a\nb"',
    '"a',
    "[1]]",
    '{"a":1,"a":2}',
    "-",
    "1e",
    "[" * 102 + "]" * 102,
]


@pytest.mark.parametrize("text", JSONS)
def test_json_is_python_s(parts, tmp_path, text):
    (tmp_path / "file").write_text(text)
    assert json.loads(run(parts, "json", tmp_path / "file").stdout) == spelled(json.loads(text))


@pytest.mark.parametrize("text", NO_JSONS)
def test_what_is_no_json_is_refused(parts, tmp_path, text):
    (tmp_path / "file").write_text(text)
    assert "its JSON is wrong at byte" in refused(parts, "json", tmp_path / "file")
