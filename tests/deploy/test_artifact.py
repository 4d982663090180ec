"""A file holds a network bit for bit, in few bytes, and is never written over by accident."""

import errno
import json
import math
import resource

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

import sparsepath
from sparsepath.deploy import packing
from sparsepath.deploy.artifact import load, save
from sparsepath.deploy.capture import capture
from sparsepath.deploy.compact import compact
from sparsepath.deploy.graph_json import read, written
from sparsepath.deploy.manifest import read_manifest
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


def test_gaps_longer_than_a_code_come_back():
    for at in (0, 14, 15, 16, 254, 255, 256, 600, 4999):
        array = torch.zeros(5000)
        array[[at, 4999]] = 1.5
        for how in (packing.MASK, *packing.GAPS):
            where = packing._written(how, array != 0)
            packed = packing.Packed(how, 1, array[array != 0], where)
            assert torch.equal(packing.unpack(packed, (5000,), torch.float32), array)


def test_negative_zeros_come_back_positive_and_odd_numbers_as_they_are():
    odd = torch.tensor([-0.0, torch.nan, torch.inf, -torch.inf, 1e-45, 0.0])
    blocks = torch.zeros(50, 9)
    blocks[:10] = 1.5
    blocks[0, 0] = -0.0
    ways = set()
    for array in (odd, torch.cat((odd, torch.ones(90))), torch.cat((odd, torch.zeros(90))), blocks):
        packed = packing.pack(array)
        back = packing.unpack(packed, array.shape, array.dtype).flatten()
        assert torch.equal(bits(back[1:]), bits(array.flatten()[1:]))
        assert bits(back[:1]).sum() == 0
        ways.add((packed.how == "dense", packed.block))
    assert {(True, 1), (False, 1), (False, 9)} <= ways


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
    assert set(own) - set(loaded.state_dict()) == {x for x in own if "num_batches_tracked" in x}


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
        stored += sum(tensors[f"{x}:{name}"].nbytes for x in ("values", "where"))
        assert arrays[name].how != "dense"
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

    monkeypatch.setattr(sparsepath.storage, "save_file", full)
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
    ],
)
def test_bad_input_gets_a_sentence(model, options, says, tmp_path):
    with pytest.raises(BadInput, match=says) as caught:
        save(model, tmp_path / "net", **options)
    assert len(str(caught.value).splitlines()) == 1
    assert not list(tmp_path.iterdir())


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
    assert about["format"] == "sparsepath artifact 1"
    manifest = json.loads(about["manifest"])

    def tensor(name):
        first, last = header[name]["data_offsets"]
        return content[start + first : start + last]

    for name, entry in manifest["arrays"].items():
        if entry["dtype"] != "float32":
            continue
        values = np.frombuffer(tensor(f"values:{name}"), np.float32)
        count = math.prod(entry["shape"]) // entry["block"]
        kept, place = [], 0
        if entry["how"] == "dense":
            kept = range(count)
        elif entry["how"] == "mask":
            where = tensor(f"where:{name}")
            kept = [n for n in range(count) if where[n // 8] >> n % 8 & 1]
        else:
            codes = tensor(f"where:{name}")
            if entry["how"] == "gaps4":
                codes = [half for byte in codes for half in (byte & 15, byte >> 4)]
            more = 15 if entry["how"] == "gaps4" else 255
            for code in codes:
                place += code
                if code < more:
                    kept.append(place)
                    place += 1
        array = np.zeros((count, entry["block"]), np.float32)
        array[list(kept)] = values.reshape(-1, entry["block"])
        yield name, entry["how"], torch.from_numpy(array.reshape(entry["shape"]))


def test_a_file_can_be_read_from_its_description_alone(tmp_path):
    torch.manual_seed(0)
    layers = [nn.Linear(64, 64) for _ in range(4)]
    for layer, zero in zip(layers, (0.0, 0.5, 0.9, 0.99), strict=True):
        layer.weight.data[torch.rand(64, 64) < zero] = 0
    model = nn.Sequential(*layers, nn.Linear(64, 3))
    save(model, tmp_path / "net")
    found = list(by_description(tmp_path / "net"))
    assert {how for _, how, _ in found} == {"dense", "mask", "gaps4", "gaps8"}
    assert len(found) == len(model.state_dict())
    for name, _, array in found:
        assert torch.equal(array, model.state_dict()[name])
