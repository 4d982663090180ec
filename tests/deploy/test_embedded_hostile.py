"""Whatever a file holds: the C++ program, under sanitizers, refuses it with one sentence."""

import json
import random
import struct

import numpy
import pytest
import torch
from torch import nn

from sparsepath.deploy.files.artifact import save
from sparsepath.storage import read_tensors

from .builds import built
from .cases import scrambled
from .embedded import NEEDS, answered, check_refused, refused, run
from .test_artifact_fuzz import places, resealed

pytestmark = NEEDS
X = torch.randn(2, 4, 6, 6, generator=torch.Generator().manual_seed(0))


@pytest.fixture(scope="module")
def program():
    return [built("sanitized") / "sparsepath-infer"]


def small():
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(4, 96, 3),
        nn.BatchNorm2d(96),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.ConvTranspose2d(96, 4, 2),
        nn.GroupNorm(2, 4),
        nn.PReLU(4),
        nn.Upsample(scale_factor=2.0),
        nn.AvgPool2d(2),
        nn.Flatten(1),
        nn.LayerNorm(36),
        nn.Linear(36, 3),
        nn.Softmax(1),
    )
    return scrambled(model, zero=0.7)


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    path = tmp_path_factory.mktemp("artifact") / "net"
    save(small(), path, figures={"accuracy": 0.5, "names": ["a", "\u00e9\U0001f600"]})
    return path


@pytest.fixture(scope="module")
def x_file(tmp_path_factory):
    path = tmp_path_factory.mktemp("input") / "x.npy"
    numpy.save(path, X.numpy())
    return path


def test_a_flipped_bit_is_noticed(program, saved, tmp_path, x_file):
    draw = random.Random(0)
    for _ in range(80):
        content = bytearray(saved.read_bytes())
        content[draw.randrange(len(content))] ^= 1 << draw.randrange(8)
        check_refused(program, tmp_path / "net", bytes(content), x_file)


def test_a_truncated_or_longer_file_is_noticed(program, saved, tmp_path, x_file):
    draw, content = random.Random(1), saved.read_bytes()
    cuts = [0, 1, 7, 8, 9, len(content) - 1, *(draw.randrange(len(content)) for _ in range(30))]
    for cut in cuts:
        check_refused(program, tmp_path / "net", content[:cut], x_file)
    check_refused(program, tmp_path / "net", content + b"\0", x_file)


HOSTILE = [
    *(
        None,
        True,
        -1,
        0,
        1,
        3,
        2**20,
        2**31,
        2**40 - 1,
        2**62,
        2**70,
        0.5,
        -1e300,
        "",
        "\0",
        "mask",
        "gaps8",
    ),
    *([], {}, [0], [1, 1], [2**39, 2**39], [-1, -1], [0, 0], [3, 3], [7, 7], [1, 1, 1], [[]]),
    *(
        {"value": "nothing"},
        {"float": "nan"},
        {"float": "inf"},
        {"list": [1]},
        "conv",
        "linear",
        "cat",
    ),
]


def test_a_hostile_manifest_is_refused_or_harmless(program, saved, tmp_path, x_file):
    draw, codes = random.Random(2), []

    def change(content):
        for _ in range(draw.randint(1, 2)):
            inside = [
                p for p in places(content) if p and (p[0] in ("graph", "arrays") or len(p) == 1)
            ]
            *path, last = draw.choice(inside)
            inner = content
            for key in path:
                inner = inner[key]
            if draw.random() < 0.15:
                del inner[last]
            else:
                inner[last] = draw.choice(HOSTILE)
        return content

    for _ in range(150):
        resealed(saved, tmp_path / "net", change)
        given = run(
            program, tmp_path / "net", x_file
        )  # a crash, or more than 4 GiB, fails in there
        codes.append(given.returncode)
        assert len(given.stderr.splitlines()) == (given.returncode == 2), given.stderr
    assert set(codes) == {0, 2}


def changed(key, value):
    """The manifest with another value at a path of keys."""

    def change(content):
        *path, last = key
        inner = content
        for part in path:
            inner = inner[part]
        inner[last] = value
        return content

    return change


DEEP = json.loads("[" * 150 + "]" * 150)
FAULTS = {
    "an unknown operation": (("graph", "nodes", 0, "op"), "einsum", "does 'einsum'"),
    "a shape that overflows": (("arrays", "0.weight", "shape"), [2**39] * 4, "more elements"),
    "a claim of 8 GiB": (("arrays", "0.weight", "shape"), [2**31], "bytes of memory"),
    "another block": (("arrays", "0.weight", "block"), 5, "do not divide"),
    "a missing array": (("graph", "nodes", 0, "arrays", "weight"), "other", "'other'"),
    "a value from later": (("graph", "nodes", 0, "inputs"), ["9"], "nothing before gives"),
    "a name twice": (("graph", "nodes", 1, "name"), "0", "twice"),
    "another checksum": (
        ("checksums", "values:0.weight"),
        "0" * 64,
        "checksum of 'values:0.weight'",
    ),
    "a tensor too many": (("checksums", "values:more"), "0" * 64, "tensors are not those"),
    "deep nesting": (("figures",), DEEP, "nested too deeply"),
    "a factory": (("graph",), None, "factory"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_the_sentence_says_what_is_wrong(program, saved, tmp_path, x_file, fault):
    key, value, expected = FAULTS[fault]
    resealed(saved, tmp_path / "net", changed(key, value))
    assert expected in check_refused(
        program, tmp_path / "net", (tmp_path / "net").read_bytes(), x_file
    )


def raw(header, data=b"", length=None):
    """A file with such a header, whatever it holds."""
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text) if length is None else length) + text + data


def tensor(begin, end, shape=None):
    return {"dtype": "U8", "shape": shape or [end - begin], "data_offsets": [begin, end]}


HEADERS = {
    "overlapping tensors": (raw({"a": tensor(0, 4), "b": tensor(2, 6)}, b"123456"), "overlap"),
    "a hole": (raw({"a": tensor(0, 2), "b": tensor(4, 6)}, b"123456"), "holes"),
    "an end before its beginning": (raw({"a": tensor(4, 2, [2])}, b"1234"), "beyond"),
    "beyond the end": (raw({"a": tensor(0, 2**40)}, b"1234"), "cut off"),
    "another shape": (raw({"a": tensor(0, 4, [5])}, b"1234"), "another size"),
    "a shape that overflows": (raw({"a": tensor(0, 0, [2**33, 2**33])}), "more elements"),
    "a huge header": (raw({}, length=2**63), "header"),
    "a key twice": (raw(b'{"a": 1, "a": 2}'), "twice"),
    "another format": (raw({"__metadata__": {"format": "other 1"}}), "'other 1'"),
    "a newer version": (raw({"__metadata__": {"format": "sparsepath artifact 4"}}), "version '4'"),
    "deep nesting": (raw(b"[" * 100_000), "nested too deeply"),
    "no JSON": (raw(b"{'a': 1}"), "key"),
}


@pytest.mark.parametrize("name", HEADERS)
def test_a_header_that_lies_is_refused(program, tmp_path, x_file, name):
    content, expected = HEADERS[name]
    assert expected in check_refused(program, tmp_path / "net", content, x_file)


def test_other_inputs_are_refused(program, saved, tmp_path, x_file):
    other = tmp_path / "x.npy"
    content = x_file.read_bytes()
    for bad in (b"", content[:50], content[:-1], content.replace(b"<f4", b"<f8"), b"x" + content):
        other.write_bytes(bad)
        assert f"'{other}' is no .npy file" in refused(program, saved, other)
    assert "is no file" in refused(program, saved, tmp_path)
    assert "is no file" in refused(program, tmp_path, x_file)
    assert "--threads needs" in refused(program, saved, x_file, "--threads", "0")
    assert "usage" in refused(program, saved)
    assert "'--fast' is unknown" in refused(program, saved, x_file, "--fast")
    assert "cannot be written" in refused(program, saved, x_file, tmp_path / "no" / "y.npy")


def test_the_good_file_is_good(program, saved, x_file):
    tensors, _ = read_tensors(saved)
    assert any(name.startswith("where:") for name in tensors)
    with torch.no_grad():
        wanted = small()(X)
    torch.testing.assert_close(answered(program, saved, X), wanted)
