"""A file holds a network bit for bit, in few bytes, and is never written over by accident."""

import errno
import json
import math
import os
import resource
import zlib
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from tracing import untraced

import sparsepath
from sparsepath.deploy.capture.capture import capture
from sparsepath.deploy.files import packing
from sparsepath.deploy.files.artifact import load, save
from sparsepath.deploy.files.contents import contents
from sparsepath.deploy.files.export import export
from sparsepath.deploy.files.graph_json import read, written
from sparsepath.deploy.files.manifest import read_manifest
from sparsepath.deploy.shrinking.compact import compact
from sparsepath.errors import BadInput
from sparsepath.lab.models import NETWORKS
from sparsepath.support import Support

from .cases import BUILDERS, network, scrambled


def small():
    torch.manual_seed(0)
    return scrambled(
        nn.Sequential(
            nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 36, 4)
        )
    )


def bits(array):
    return array.contiguous().flatten().view(torch.uint8)


@settings(max_examples=60, deadline=None, derandomize=True)
@given(
    shape=st.lists(st.integers(0, 7), max_size=5),
    zero=st.sampled_from([0.0, 0.3, 0.9, 0.99, 1.0]),
    by=st.integers(0, 5),
    dtype=st.sampled_from([torch.float32, torch.float64, torch.float16, torch.bfloat16]),
    seed=st.integers(0, 99),
)
def test_packing_gives_back_every_bit(shape, zero, by, dtype, seed):
    generator = torch.Generator().manual_seed(seed)
    array = torch.randn(shape, generator=generator).to(dtype)
    dead = torch.rand(shape[:by], generator=generator) < zero
    array[dead.reshape(dead.shape + (1,) * (array.dim() - dead.dim())).expand_as(array)] = 0
    packed = packing.pack(array)
    back = packing.unpack(packed, tuple(shape), dtype)
    assert torch.equal(bits(back), bits(array))
    assert packed.nbytes <= array.nbytes


@settings(max_examples=60, deadline=None, derandomize=True)
@given(
    shape=st.lists(st.integers(1, 24), min_size=1, max_size=3),
    zero=st.sampled_from([0.0, 0.5, 0.9, 1.0]),
    distinct=st.integers(1, 300),
    dtype=st.sampled_from([torch.float32, torch.float64, torch.float16, torch.bfloat16]),
    scales=st.sampled_from(["none", "one", "each", "second", "groups"]),
    seed=st.integers(0, 99),
)
def test_every_way_of_packing_gives_back_every_bit(shape, zero, distinct, dtype, scales, seed):
    generator = torch.Generator().manual_seed(seed)
    few = torch.randint(distinct, shape, generator=generator)
    if scales == "none":
        array = torch.randn(distinct, generator=generator)[few].to(dtype)
    else:
        dtype = torch.float32
        ones = [1] * (few.dim() - 2)
        groups = 2 if scales == "groups" and len(few) % 2 == 0 and few.dim() > 1 else 1
        second = [1 if scales in ("one", "each") else n for n in shape[1:2]]
        size = [len(few) if scales == "each" else groups, *second, *ones]
        drawn = torch.rand(size, generator=generator)
        drawn = drawn.repeat_interleave(len(few) // len(drawn), 0)
        array = (few % 255 - 127).float() * drawn + 0.0
    array[torch.rand(shape, generator=generator) < zero] = 0
    codes = set()
    for way in packing._ways(array):
        assert torch.equal(bits(packing.unpack(way, shape, dtype)), bits(array))
        codes.add(way.code)
    if scales != "none":
        short = array.numel() < 4 * math.prod(size)
        assert "levels" in codes or short or not (array != 0).any()
    if distinct < 256 and scales == "none":
        assert any(code.startswith("codebook") for code in codes)


def test_few_numbers_of_unlike_frequency_are_deflated_from_bytes():
    torch.manual_seed(0)
    often = torch.multinomial(torch.tensor([0.8, 0.1, 0.05, 0.03, 0.02]), 20_000, replacement=True)
    array = torch.randn(5)[often].reshape(100, 200)
    packed = packing.pack(array)
    assert packed.code == "codebook8"
    # Its entropy is 1.07 bits; deflate has no code below one bit, and needs 1.4.
    assert packed.nbytes < 1.45 * array.numel() / 8
    assert torch.equal(packing.unpack(packed, array.shape, array.dtype), array)


def test_bits_left_over_are_zero():
    parts = {"values": torch.tensor([0x21, 0x03], dtype=torch.uint8), "codebook": torch.arange(4.0)}
    packed = packing.Packed("dense", 1, "codebook4", parts)
    assert packing.unpack(packed, (3,), torch.float32).tolist() == [1.0, 2.0, 3.0]
    parts["values"][1] |= 0x10
    with pytest.raises(BadInput, match="bits left over"):
        packing.unpack(packed, (3,), torch.float32)


def test_gaps_longer_than_a_code_come_back():
    for at in (0, 14, 15, 16, 254, 255, 256, 600, 4999):
        array = torch.zeros(5000)
        array[[at, 4999]] = 1.5
        for how in (packing.MASK, *packing.GAPS):
            parts = {"values": array[array != 0], "where": packing._written(how, array != 0)}
            packed = packing.Packed(how, 1, "plain", parts)
            assert torch.equal(packing.unpack(packed, (5000,), torch.float32), array)


def test_negative_zeros_come_back_positive_and_odd_numbers_as_they_are():
    odd = torch.tensor([-0.0, torch.nan, torch.inf, -torch.inf, 1e-45, 0.0])
    torch.manual_seed(0)
    blocks = torch.zeros(2000, 9)
    blocks[torch.randperm(2000)[:500]] = torch.randn(500, 9)
    blocks[0] = torch.tensor([-0.0, *torch.randn(8)])
    scattered = torch.randn(1000) * (torch.rand(1000) < 0.5)
    scattered = scattered + 0.0  # of negative numbers only -0 is left
    ways = set()
    for array in (odd, torch.cat((odd, torch.randn(90))), torch.cat((odd, scattered)), blocks):
        packed = packing.pack(array)
        back = packing.unpack(packed, array.shape, array.dtype).flatten()
        assert torch.equal(bits(back[1:]), bits(array.flatten()[1:]))
        assert bits(back[:1]).sum() == 0
        ways.add((packed.how == "dense", packed.block))
    assert {(True, 1), (False, 1), (False, 9)} <= ways


@untraced
@pytest.mark.parametrize("name", BUILDERS)
def test_every_network_comes_back_bit_for_bit(name, tmp_path):
    model = network(name, zero=0.9)
    save(model, tmp_path / "net")
    loaded = load(tmp_path / "net").model
    images = torch.randn(2, 3, 32, 32)
    with torch.no_grad():
        assert torch.equal(loaded(images), model(images))
    own = model.state_dict()
    assert all(torch.equal(bits(x), bits(own[key])) for key, x in loaded.state_dict().items())
    assert set(own) == set(loaded.state_dict())


@untraced
@pytest.mark.parametrize(("partition", "share"), [("kernels", 0.11), ("elements", 0.135)])
@pytest.mark.parametrize("name", sorted(set(NETWORKS) - {"digit-net"}))
def test_sparsified_layers_take_few_bytes(name, partition, share, tmp_path):
    torch.manual_seed(0)
    model = BUILDERS[name](10, 3).eval()
    for layer in map(model.get_submodule, model.sparsified):
        blocks = getattr(sparsepath, partition)(layer)
        alive = torch.rand(blocks.grid) >= 0.9
        layer.weight.data *= blocks.mask(alive)
        # The share of zeros that is meant, not the one drawn.
        assert abs(float(blocks.alive(layer.weight).float().mean()) - 0.1) < 0.07
    save(model, tmp_path / "net")
    arrays = read_manifest(tmp_path / "net").arrays
    tensors, _ = sparsepath.storage.read_tensors(tmp_path / "net")
    dense = stored = wanted = 0
    for name in (f"{layer}.weight" for layer in model.sparsified):
        weight = model.get_parameter(name)
        dense += 4 * weight.numel()
        wanted += 4 * int((weight != 0).sum())
        kinds = {kind for kind in packing.KINDS if f"{kind}:{name}" in tensors}
        stored += sum(tensors[f"{kind}:{name}"].nbytes for kind in kinds)
        assert (arrays[name].how, kinds) != ("dense", {"values"}) or arrays[name].deflated
    # The draw may keep a little more or less than a tenth; what is added to it counts.
    assert stored / dense <= share + wanted / dense - 0.1


def test_a_compact_network_with_support_and_figures(tmp_path):
    model = small()
    masks = {"0.weight": (model[0].weight != 0).flatten(2).any(-1)[..., None, None]}
    other = {"4.weight": torch.rand(4, 288) < 0.5}
    figures = {"accuracy": 0.91, "mu": 1e-3, "residuals": (1.0, float("inf")), "note": "é\n"}
    made = save(model, tmp_path / "net", support=Support({**masks, **other}), figures=figures)
    assert set(made.checksums) >= {"support:4.weight"}
    assert "support:0.weight" not in made.checksums
    loaded = load(tmp_path / "net")
    assert loaded.support == Support({**masks, **other})
    assert loaded.figures == figures
    assert loaded.versions["sparsepath"] == sparsepath.__version__
    compacted = compact(loaded.model, torch.randn(1, 3, 8, 8)).model
    save(compacted, tmp_path / "less")
    images = torch.randn(2, 3, 8, 8)
    assert torch.equal(load(tmp_path / "less").model(images), compacted(images))


def test_shared_weights_are_stored_once_and_stay_shared(tmp_path):
    layer = nn.Conv2d(3, 3, 3, padding=1)
    save(nn.Sequential(layer, nn.ReLU(), layer), tmp_path / "net")
    model = load(tmp_path / "net").model
    assert len(list(model.parameters())) == 2
    images = torch.randn(1, 3, 5, 5)
    assert torch.equal(model(images), layer(layer(images).relu()))


class Untraceable(nn.Module):
    def __init__(self, width=4):
        super().__init__()
        self.conv = nn.Conv2d(3, width, 1)
        self.norm = nn.BatchNorm2d(width)

    def forward(self, x):
        return self.norm(self.conv(x if x.sum() > 0 else -x))


def test_what_compact_made_is_saved_by_no_factory(tmp_path):
    model = nn.Sequential(nn.Conv2d(3, 4, 1), nn.CELU(0.5), nn.Conv2d(4, 4, 1)).eval()
    small = compact(model, torch.randn(1, 3, 4, 4)).model
    with pytest.raises(BadInput, match=r"save the model that this one was made of, with fact"):
        save(small, tmp_path / "net")
    with pytest.raises(BadInput, match="no factory of yours can build it: save the model that"):
        save(small, tmp_path / "net", factory="mine")
    assert not list(tmp_path.iterdir())
    save(model, tmp_path / "net", factory="mine")


class Sum(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 1)

    def forward(self, a, b):
        return self.conv(a + b)


def test_of_several_inputs_an_example_tells(tmp_path):
    model, images = Sum().eval(), torch.randn(2, 3, 4, 4)
    with pytest.raises(BadInput, match=r"missing 1 .*: save with example=a batch of inputs, or"):
        save(model, tmp_path / "net")
    save(model, tmp_path / "net", example=(images, images))
    assert torch.equal(load(tmp_path / "net").model(images, images), model(images, images))


def test_a_compiled_model_is_saved_as_itself(tmp_path):
    model = nn.Sequential(nn.Conv2d(3, 4, 1), nn.ReLU()).eval()
    save(torch.compile(model, backend="eager"), tmp_path / "net")
    images = torch.randn(2, 3, 4, 4)
    assert torch.equal(load(tmp_path / "net").model(images), model(images))


def test_a_factory_is_the_callers(tmp_path):
    model = Untraceable().eval()
    with pytest.raises(BadInput, match=r"cannot be written as a graph .*save with factory="):
        save(model, tmp_path / "net")
    assert not list(tmp_path.iterdir())
    save(model, tmp_path / "net", factory="mine")
    with pytest.raises(BadInput, match=r"needs the factory 'mine': give load\(\) factories="):
        load(tmp_path / "net")
    with pytest.raises(BadInput, match="needs the factory 'mine'"):
        load(tmp_path / "net", factories={"another": Untraceable})
    loaded = load(tmp_path / "net", factories={"mine": Untraceable}).model
    assert not loaded.training
    images = torch.randn(2, 3, 4, 4)
    assert torch.equal(loaded(images), model(images))
    for other in (lambda: Untraceable(5), lambda: Untraceable().double(), lambda: nn.ReLU()):
        with pytest.raises(BadInput, match="belongs to another model than the factory's"):
            load(tmp_path / "net", factories={"mine": other})


def test_an_existing_file_is_kept_unless_forced(tmp_path):
    path = tmp_path / "net"
    path.write_text("precious")
    with pytest.raises(BadInput, match="exists: choose another name, or force=True"):
        save(small(), path)
    assert path.read_text() == "precious"
    save(small(), path, force=True)
    assert load(path)
    with pytest.raises(BadInput, match="is a folder"):
        save(small(), tmp_path, force=True)


def exported(model, path, *, force):
    export(model, torch.randn(1, 3, 8, 8), path, force=force)


@pytest.mark.parametrize("write", [save, exported])
def test_only_regular_files_are_replaced(tmp_path, write):
    path, kept = tmp_path / "net.safetensors", tmp_path / "precious"
    kept.write_text("precious")
    for target, says in (
        (kept, "a link to"),
        (tmp_path / "nowhere", "a link to"),
        (None, "regular"),
    ):
        if target is None:
            os.mkfifo(path)
        else:
            path.symlink_to(target)
        before = path.lstat()
        for force in (False, True):
            with pytest.raises(BadInput, match=f"{says}.*, and stays: "):
                write(small(), path, force=force)
        assert path.lstat() == before
        path.unlink()
    assert [x.read_text() for x in tmp_path.iterdir()] == ["precious"]
    with pytest.raises(BadInput, match="'/dev/full' is no regular file"):
        save(small(), "/dev/full", force=True)


def test_a_full_disk_leaves_no_half_file_and_the_old_one_whole(tmp_path):
    save(small(), tmp_path / "net")
    before = (tmp_path / "net").read_bytes()
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (2000, hard))
    try:
        for name in ("net", "new"):
            with pytest.raises(BadInput, match=r"cannot be written .* make room"):
                save(small(), tmp_path / name, force=True)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert [path.name for path in tmp_path.iterdir()] == ["net"]
    assert (tmp_path / "net").read_bytes() == before


def test_no_room_for_the_first_byte_is_told_too(tmp_path, monkeypatch):
    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(sparsepath.storage, "save", full)
    with pytest.raises(BadInput, match="No space left on device"):
        save(small(), tmp_path / "net")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("model", "options", "says"),
    [
        ("net", {}, "takes a torch module, not str"),
        (small(), {"figures": {"model": small}}, "use plain data"),
        (small(), {"support": Support({"9.weight": torch.ones(1).bool()})}, "names '9.weight'"),
        (small().to(torch.float8_e5m2), {}, "no file holds that"),
        (small(), {"example": "images"}, "must be a tensor or several in a tuple, not 'images'"),
        (small(), {"example": [torch.ones(1)] * 2, "inputs": 3}, "the example has 2: leave inputs"),
    ],
)
def test_bad_input_gets_a_sentence(model, options, says, tmp_path):
    with pytest.raises(BadInput, match=says) as caught:
        save(model, tmp_path / "net", **options)
    assert len(str(caught.value).splitlines()) == 1
    assert not list(tmp_path.iterdir())


class Rows(nn.Module):
    """Nothing in its code tells a batch from a single image."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 3)

    def forward(self, x):
        return self.conv(x).view(x.size(0), -1)


class Pair(Rows):
    def forward(self, x, y):
        return super().forward(x) + super().forward(y)


def test_an_example_tells_what_the_code_does_not(tmp_path):
    images = torch.randn(2, 3, 8, 8)
    for model, example in ((Rows(), images), (Pair(), (images, images.flip(0)))):
        with pytest.raises(BadInput, match="save with example=a batch of inputs, or, if that is"):
            save(model, tmp_path / "net", inputs=1 if example is images else 2)
        save(model, tmp_path / "net", example=example)
        given = (example,) if isinstance(example, torch.Tensor) else example
        with torch.no_grad():
            for many in (given, [x.repeat(3, 1, 1, 1) for x in given]):
                assert torch.equal(load(tmp_path / "net").model(*many), model(*many))
        (tmp_path / "net").unlink()


def test_an_example_of_a_single_image_is_none_of_a_batch(tmp_path):
    with pytest.raises(BadInput, match="computed from the input") as caught:
        save(Rows(), tmp_path / "net", example=torch.randn(3, 8, 8))
    assert "example" not in str(caught.value)
    assert "factory=" in str(caught.value)


@untraced
def test_a_graph_comes_back_from_json_as_it_was():
    for name in BUILDERS:
        graph = capture(network(name))
        content, arrays = written(graph)
        back = read(json.loads(json.dumps(content)), arrays)
        assert list(map(repr, back)) == list(map(repr, graph))
        assert (back.inputs, back.output) == (graph.inputs, graph.output)


def test_results_of_any_structure_come_back(tmp_path):
    class Two(nn.Module):
        def forward(self, x):
            return {"a": [x.clamp(-float("inf"), 1.0), None], "b": (x.relu(), 3)}

    save(Two(), tmp_path / "net")
    images = torch.randn(2, 3)
    given, wanted = load(tmp_path / "net").model(images), Two()(images)
    assert given["a"][1] is None
    assert given["b"][1] == 3
    assert torch.equal(given["a"][0], wanted["a"][0])
    assert torch.equal(given["b"][0], wanted["b"][0])


def by_description(path):
    """The arrays of a file, read as docs/artifact.md says, without any of our own code."""
    content = path.read_bytes()
    start = 8 + int.from_bytes(content[:8], "little")
    header = json.loads(content[8:start])
    about = header.pop("__metadata__")
    assert about["format"] == "sparsepath artifact 3"
    manifest = json.loads(about["manifest"])

    def tensor(kind, name, entry):
        first, last = header[f"{kind}:{name}"]["data_offsets"]
        stored = content[start + first : start + last]
        if kind not in entry["deflated"]:
            return stored
        plain = zlib.decompress(stored, wbits=-15)
        assert len(plain) == entry["deflated"][kind] <= 4 * math.prod(entry["shape"])
        return plain

    for name, entry in manifest["arrays"].items():
        assert entry["dtype"] == "float32"
        count = math.prod(entry["shape"]) // entry["block"]
        kept, place = [], 0
        where = b"" if entry["how"] == "dense" else tensor("where", name, entry)
        if entry["how"] == "dense":
            kept = range(count)
        elif entry["how"] == "mask":
            kept = [n for n in range(count) if where[n // 8] >> n % 8 & 1]
        else:
            codes = where
            if entry["how"] == "gaps4":
                codes = [half for byte in codes for half in (byte & 15, byte >> 4)]
            more = 15 if entry["how"] == "gaps4" else 255
            for code in codes:
                place += code
                if code < more:
                    kept.append(place)
                    place += 1
        number = len(kept) * entry["block"]
        values = tensor("values", name, entry)
        array = np.zeros((count, entry["block"]), np.float32)
        if entry["code"].startswith("codebook"):
            bits = int(entry["code"].removeprefix("codebook"))
            stream = int.from_bytes(values, "little")
            indices = [stream >> bits * n & (1 << bits) - 1 for n in range(number)]
            numbers = np.frombuffer(tensor("codebook", name, entry), np.float32)[indices]
        elif entry["code"] == "levels":
            numbers = np.frombuffer(values, np.int8).astype(np.float32)
        else:
            numbers = np.frombuffer(values, np.float32)
        array[list(kept)] = numbers.reshape(-1, entry["block"])
        array = array.reshape(entry["shape"])
        if entry["code"] == "levels":
            scales = np.frombuffer(tensor("scales", name, entry), np.float32)
            first, second, *_ = entry["shape"]
            if entry["axis"] == 0:
                assert len(scales) in (1, first)
                array = array * scales.reshape(-1, *[1] * (array.ndim - 1))
            else:
                groups = len(scales) // second
                for i, o in np.ndindex(first, second):
                    array[i, o] *= scales[i * groups // first * second + o]
        yield name, entry, torch.from_numpy(array)


def test_a_file_can_be_read_from_its_description_alone(tmp_path):
    torch.manual_seed(0)
    model = nn.Sequential(*[nn.Linear(64, 64, bias=False) for _ in range(40)], nn.Linear(64, 3))
    for number, layer in enumerate(model[:-1]):
        weight, few = layer.weight.data, torch.randint(2 + 6 * number, (64, 64))
        if number % 4 == 1:
            weight.copy_(torch.randn(2)[few % 2])
        if number % 4 == 2:
            # by row, by column, and by column of each half of the rows
            scales = torch.rand(((64, 1), (1, 64), (2, 64))[number // 4 % 3])
            weight.copy_((weight * 1000).round() * scales.repeat_interleave(64 // len(scales), 0))
            weight += 0.0
        if number % 4 == 3:
            weight.copy_(torch.randn(2 + 6 * number)[few])
        weight[torch.rand(64, 64) < (0.0, 0.5, 0.8, 0.9, 0.97)[number % 5]] = 0
    save(model, tmp_path / "net")
    found = list(by_description(tmp_path / "net"))
    assert {entry["how"] for _, entry, _ in found} == {"dense", "mask", "gaps4", "gaps8"}
    assert {entry["code"] for _, entry, _ in found} >= {"plain", "levels", "codebook1", "codebook8"}
    assert {entry["axis"] for _, entry, _ in found} == {0, 1}
    assert {", ".join(entry["deflated"]) for _, entry, _ in found} >= {
        "values",
        "values, where",
        "",
    }
    assert len(found) == len(model.state_dict())
    for name, _, array in found:
        assert torch.equal(bits(array), bits(model.state_dict()[name]))


@pytest.mark.parametrize("version", [1, 2])
def test_a_file_of_an_older_version_still_loads(version):
    path = Path(__file__).parent / "data" / f"version-{version}.safetensors"
    loaded = load(path)
    assert f"sparsepath artifact {version}, " in contents(path)
    given = loaded.model(torch.linspace(-1, 1, 48).reshape(1, 3, 4, 4))
    assert torch.allclose(given, torch.tensor(loaded.figures["output"]), rtol=1e-5, atol=1e-6)
    assert {entry.axis for entry in read_manifest(path).arrays.values()} == {0}


def test_a_file_of_version_2_holds_every_kind_of_code():
    path = Path(__file__).parent / "data" / "version-2.safetensors"
    codes = {entry.code for entry in read_manifest(path).arrays.values()}
    assert codes >= {"plain", "levels", "codebook8"}


def test_a_file_of_version_1_has_support_too():
    path = Path(__file__).parent / "data" / "version-1.safetensors"
    loaded = load(path)
    assert {entry.how for entry in read_manifest(path).arrays.values()} == set(packing.WAYS)
    weight = loaded.model.state_dict()["3.weight"]
    assert torch.equal(loaded.support["3.weight"], weight != 0)


def test_what_is_in_a_file_is_told_without_reading_it(tmp_path):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(64, 256), nn.Linear(256, 64), nn.Linear(64, 64))
    model[0].weight.data.copy_((model[0].weight * 300).round() * torch.rand(256, 1))
    few = torch.randn(16)[torch.randint(16, (64, 256))] * (torch.rand(64, 256) < 0.1)
    model[1].weight.data.copy_(few)
    save(model, tmp_path / "net")
    lines = {line.split()[0]: line for line in contents(tmp_path / "net").splitlines()}
    assert "  dense, levels (deflated)  " in lines["0.weight"]
    assert "  gaps8 (deflated), codebook4  " in lines["1.weight"]
    assert "  dense, plain (deflated)  " in lines["2.weight"]
    tensors, _ = sparsepath.storage.read_tensors(tmp_path / "net")
    kinds = ("values", "where", "codebook")
    stored = sum(tensors[f"{kind}:1.weight"].nbytes for kind in kinds)
    assert lines["1.weight"].split()[-2:] == [f"{stored:,}", f"{stored / 65536:.3f}"]


@untraced
def test_the_same_network_gives_the_same_bytes(tmp_path):
    model = network("cnn")
    figures = {"name": 'Zürich \u2028 \x7f "quoted"\n', "accuracy": 0.5}
    files = set()
    for _ in range(8):
        save(model, tmp_path / "net", figures=figures, force=True)
        files.add((tmp_path / "net").read_bytes())
    assert len(files) == 1
    assert load(tmp_path / "net").figures == figures


class TwiceBiased(nn.Linear):
    """A layer that uses its bias in two ways."""

    def forward(self, x):
        return nn.functional.linear(x, self.weight, self.bias * 2) + self.bias


def test_arrays_of_one_name_are_both_kept(tmp_path):
    model = nn.Sequential(TwiceBiased(6, 8), nn.ReLU(), nn.Linear(8, 3)).eval()
    save(model, tmp_path / "net")
    rows = torch.randn(4, 6)
    assert torch.equal(load(tmp_path / "net").model(rows), model(rows))


def doubled(x):
    return 2 * x


def replaced_in_a_loaded_one(path):
    save(small(), path)
    model = load(path).model
    model.get_submodule("2").forward = doubled
    return model


def replaced_in_the_model_itself(path):
    model = small()
    model.forward = doubled
    return model


def replaced_in_a_loaded_one_itself(path):
    save(small(), path)
    model = load(path).model
    model.forward = doubled
    return model


def hooked(path):
    model = small()
    model.register_forward_hook(lambda module, inputs, output: 2 * output)
    return model


@pytest.mark.parametrize(
    "make",
    [
        replaced_in_a_loaded_one,
        replaced_in_the_model_itself,
        replaced_in_a_loaded_one_itself,
        hooked,
    ],
)
def test_what_was_put_over_a_forward_is_saved_or_refused(make, tmp_path):
    model = make(tmp_path / "first")
    images = torch.randn(2, 3, 8, 8)
    with torch.no_grad():
        wanted = model(images)
        try:
            save(model, tmp_path / "net")
        except BadInput as refusal:
            assert "forward" in str(refusal)  # noqa: PT017
        else:
            assert torch.equal(load(tmp_path / "net").model(images), wanted)
        runtime = sparsepath.deploy.compile(model, images, tune=False)
        torch.testing.assert_close(runtime(images), wanted)
