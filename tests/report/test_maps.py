"""Block maps: the cells of the page are the blocks of the weights."""

import base64
import json
import math

import numpy as np
import pytest
import torch
from records import record
from torch import nn

from sparsepath.blocks import elements, kernels, outputs, tiles
from sparsepath.report.maps import BlockMap, arranged, block_maps, pack_all
from sparsepath.storage import write_tensors


def unpacked(packed, number):
    """What the page's script does with the map of a point."""
    raw = base64.b64decode(packed["points"][number])
    if packed["tile"] == [1, 1]:
        bits = np.unpackbits(np.frombuffer(raw, np.uint8))[: packed["count"]]
        return bits.astype(bool)
    high, wide = packed["tile"]
    shape = math.ceil(packed["rows"] / high), math.ceil(packed["columns"] / wide)
    return np.frombuffer(raw, np.uint8).reshape(shape) / 255


def map_of(alive, *, columns):
    rows = math.ceil(alive.size / columns)
    return BlockMap(rows, columns, alive.size, {"1": alive})


def test_bits_come_back_as_they_were():
    alive = np.random.default_rng(0).random(7 * 11) < 0.3
    packed = map_of(alive, columns=11).packed()
    assert np.array_equal(unpacked(packed, "1"), alive)
    assert "points" in json.loads(json.dumps(packed))


@pytest.mark.parametrize("count", [96, 90], ids=["whole", "last row short"])
def test_a_pooled_map_has_the_share_of_live_blocks_in_each_tile(count):
    alive = np.random.default_rng(0).random(count) < 0.5
    found = unpacked(map_of(alive, columns=12).packed(4), "1")
    whole = np.full(96, np.nan)
    whole[:count] = alive
    # 8 rows and 12 columns to at most 4 of each: tiles of 2 x 3.
    wanted = np.nanmean(whole.reshape(4, 2, 4, 3), axis=(1, 3))
    assert np.abs(found - wanted).max() < 1 / 255


@pytest.mark.parametrize(
    ("partition", "layer", "shape"),
    [
        (kernels, nn.Conv2d(3, 8, 5), (8, 3)),
        (tiles(2, 3), nn.Conv2d(6, 8, 3), (4, 2)),
        (elements, nn.Conv2d(3, 8, 5), (8, 75)),
        (outputs, nn.Conv2d(3, 8, 5), (8, 1)),
        (outputs, nn.Conv2d(3, 90, 1), (9, 10)),
        (kernels, nn.Conv2d(8, 8, 3, groups=4), (8, 2)),
        (kernels, nn.Linear(7, 5), (5, 1)),
    ],
    ids=str,
)
def test_blocks_stand_in_rows_of_outputs(partition, layer, shape):
    assert arranged(partition(layer)) == shape


HEADER = {"network": "digit-net", "classes": 4, "image_shape": [1, 12, 12]}


def run_with_weights(folder, *, network="digit-net", header=True):
    """A record and the weights of its first point, in which kernel (3, 1) of conv2 alone lives."""
    from sparsepath.lab.models import build

    model = build("digit-net", classes=4, image_shape=(1, 12, 12))
    with torch.no_grad():
        model.conv2.weight.zero_()
        model.conv2.weight[3, 1, 0, 0] = 1e-30
    about = {"sparsepath": json.dumps({**HEADER, "network": network})} if header else {}
    write_tensors(folder / "points" / "01.safetensors", model.state_dict(), about)
    return record(dense={**record()["dense"], "blocks": {"conv2.weight": 1}})


def test_the_maps_of_a_run_come_from_its_weights(tmp_path):
    whole = run_with_weights(tmp_path)
    found = block_maps(tmp_path, whole)["conv2.weight"]
    assert list(found.points) == ["1"]  # the second point has no weights
    alive = found.points["1"].reshape(found.rows, found.columns)
    assert np.argwhere(alive).tolist() == [[3, 1]]


def test_making_maps_leaves_the_generators_alone(tmp_path):
    whole = run_with_weights(tmp_path)
    before = torch.get_rng_state()
    block_maps(tmp_path, whole)
    assert torch.equal(before, torch.get_rng_state())


@pytest.mark.parametrize("change", [{"network": "unknown"}, {"header": False}], ids=str)
def test_weights_of_another_making_have_no_maps(tmp_path, change):
    assert block_maps(tmp_path, run_with_weights(tmp_path, **change)) == {}


def test_torn_or_missing_weights_have_no_maps(tmp_path):
    assert block_maps(tmp_path, record()) == {}
    whole = run_with_weights(tmp_path)
    (tmp_path / "points" / "01.safetensors").write_bytes(b"torn")
    assert block_maps(tmp_path, whole) == {}


def large(layers, *, count=100_000):
    alive = np.random.default_rng(0).random(count) < 0.1
    columns = math.ceil(math.sqrt(count))
    rows = math.ceil(count / columns)
    points = {str(number): alive for number in range(1, 10)}
    return {f"layer {n}": BlockMap(rows, columns, count, points) for n in range(layers)}


def length(packed):
    return len(json.dumps(packed, separators=(",", ":")))


@pytest.mark.parametrize("room", [1_000_000, 300_000, 60_000, 8_000])
def test_maps_take_no_more_room_than_there_is(room):
    packed, fit = pack_all([large(2)], room=room)
    assert fit
    assert length(packed) <= 1.05 * room
    # Nothing is pooled that need not be.
    tile = packed[0]["layer 0"]["tile"][0]
    assert room < 1_000_000 or tile == 1


def test_maps_that_do_not_fit_are_left_out():
    packed, fit = pack_all([large(1), large(1)], room=1000)
    assert not fit
    assert packed == [{}, {}]


def test_small_layers_keep_their_bits_where_large_ones_are_pooled():
    maps = {**large(1), "small": map_of(np.ones(12, bool), columns=4)}
    packed, _ = pack_all([maps], room=20_000)
    assert packed[0]["small"]["tile"] == [1, 1]
    assert packed[0]["layer 0"]["tile"] != [1, 1]
