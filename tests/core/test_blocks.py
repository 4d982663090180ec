"""Every partition of every layer against a plain loop over the weight's indices."""

import math

import pytest
import torch
from torch import nn

from sparsepath import BadInput, Blocks, elements, kernels, outputs, sqrt_size, tiles, weighted
from sparsepath.blocks import axes_of

from .cases import CUTS, LAYERS, PARTITIONS, cut, drawn, labels, members, per_weight

every_cut = pytest.mark.parametrize(("kind", "partition"), CUTS)


@every_cut
def test_blocks_are_as_many_and_as_large_as_a_plain_loop_finds(kind: str, partition: str) -> None:
    layer = LAYERS[kind]()
    blocks, expected = cut(layer, partition), members(layer, partition)
    assert blocks.count == len(expected)
    assert {blocks.size} == {len(block) for block in expected}
    assert blocks.shape == tuple(layer.weight.shape)


@every_cut
def test_a_norm_is_the_root_of_the_squares_of_its_blocks_weights(kind: str, partition: str) -> None:
    layer = LAYERS[kind]()
    W, blocks = drawn(layer, 0), cut(layer, partition)
    norms = per_weight(blocks, blocks.norms(W))
    for block in members(layer, partition):
        expected = math.sqrt(sum(W[index].item() ** 2 for index in block))
        assert all(norms[index].item() == pytest.approx(expected, rel=1e-14) for index in block)


@every_cut
def test_the_mask_says_of_each_weight_whether_its_block_lives(kind: str, partition: str) -> None:
    layer = LAYERS[kind]()
    W, blocks = torch.zeros(layer.weight.shape), cut(layer, partition)
    living = members(layer, partition)[::3]
    for block in living:
        W[block[-1]] = 1e-30  # its square underflows: life is not read from the norm
    mask = blocks.mask(blocks.alive(W))
    assert mask.dtype == torch.bool
    expected = torch.zeros(W.shape, dtype=torch.bool)
    for block in living:
        for index in block:
            expected[index] = True
    assert torch.equal(mask.expand(W.shape), expected)


@every_cut
def test_the_mask_is_as_small_as_can_be(kind: str, partition: str) -> None:
    layer = LAYERS[kind]()
    blocks, of = cut(layer, partition), labels(layer, partition)
    mask = blocks.mask(torch.ones(blocks.grid, dtype=torch.bool))
    for axis, length in enumerate(mask.shape):
        # An axis may be dropped exactly where going along it never leaves the block.
        constant = all(of[index] == of[_at(index, axis, 0)] for index in of)
        assert length == (1 if constant else layer.weight.shape[axis])


def _at(index: tuple[int, ...], axis: int, value: int) -> tuple[int, ...]:
    return (*index[:axis], value, *index[axis + 1 :])


@every_cut
@pytest.mark.parametrize("last", [False, True])
def test_norms_broadcast_against_the_weight_without_a_copy(
    kind: str, partition: str, last: bool
) -> None:
    layer = LAYERS[kind]()
    W, blocks = layer.weight.detach(), cut(layer, partition)
    if last:  # the memory order of channels_last, for any number of taps
        W = W.movedim(1, -1).contiguous().movedim(-1, 1)
    seen = blocks.of(W)
    assert seen.data_ptr() == W.data_ptr()
    assert torch.broadcast_shapes(blocks.norms(W).shape, seen.shape) == seen.shape
    seen.zero_()
    assert not W.any()


@pytest.mark.parametrize("partition", PARTITIONS)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_norms_of_half_precision_are_float32(partition: str, dtype: torch.dtype) -> None:
    layer = LAYERS["conv2d"]()
    W, blocks = drawn(layer, 0, dtype) * 100, cut(layer, partition)
    norms = blocks.norms(W)
    assert norms.dtype == torch.float32
    torch.testing.assert_close(norms, blocks.norms(W.double()).float(), rtol=1e-6, atol=0)
    assert blocks.norms(W.double()).dtype == torch.float64


def test_channels_last_has_the_same_norms() -> None:
    layer = LAYERS["grouped"]()
    W = drawn(layer, 0)
    for partition in PARTITIONS:
        blocks = cut(layer, partition)
        other = W.to(memory_format=torch.channels_last)
        torch.testing.assert_close(blocks.norms(other), blocks.norms(W))


@pytest.mark.parametrize(
    ("layer", "tile", "sentence"),
    [
        (nn.Conv2d(4, 6, 3), tiles(4, 2), "its 6 outputs are no multiple of 4"),
        (nn.Linear(4, 6), tiles(2, 3), "its 4 inputs are no multiple of 3"),
        (nn.ConvTranspose2d(4, 6, 3), tiles(2, 3), "its 4 inputs are no multiple of 3"),
        (nn.Conv2d(4, 6, 3, groups=2), tiles(2, 2), "its 3 outputs per group are no multiple of 2"),
        (nn.Conv2d(4, 4, 3, groups=4), tiles(1, 2), "its 1 inputs are no multiple of 2"),
        (
            nn.ConvTranspose2d(6, 4, 3, groups=2),
            tiles(2, 2),
            "its 3 inputs per group are no multiple of 2",
        ),
    ],
)
def test_tiles_that_do_not_divide_are_refused(layer: nn.Module, tile: tiles, sentence: str) -> None:
    with pytest.raises(BadInput, match=sentence):
        tile(layer)


@pytest.mark.parametrize("size", [0, -1, 1.5, True, "2"])
def test_a_tile_without_a_size_is_refused(size: object) -> None:
    with pytest.raises(BadInput, match="tiles' r must be a whole number"):
        tiles(size, 2)
    with pytest.raises(BadInput, match="tiles' c must be a whole number"):
        tiles(2, size)


@pytest.mark.parametrize(
    "layer", [nn.ReLU(), nn.BatchNorm2d(3), nn.Embedding(4, 3), nn.Sequential()]
)
def test_other_layers_are_left_dense(layer: nn.Module) -> None:
    for partition, _ in PARTITIONS.values():
        assert partition(layer) is None
    assert weighted(kernels, sqrt_size)(layer) is None


def test_a_layer_that_has_no_weights_yet_is_refused() -> None:
    with pytest.raises(BadInput, match=r"LazyLinear.*run it on an example first"):
        kernels(nn.LazyLinear(3))


def test_blocks_refuse_the_weight_of_another_layer() -> None:
    with pytest.raises(BadInput, match=r"shape \(6, 4, 3\), not \(6, 4\)"):
        kernels(nn.Conv1d(4, 6, 3)).norms(torch.ones(6, 4))


def test_partitions_are_named_alike_in_every_process() -> None:
    assert repr(kernels) == "kernels"
    assert repr(tiles(2, 3)) == "tiles(r=2, c=3)"
    assert repr(weighted(kernels, sqrt_size)) == "weighted(kernels, sqrt_size)"


def test_axes_of_a_grouped_weight_carry_their_group() -> None:
    axes = axes_of(nn.Conv2d(8, 12, 2, groups=2))
    assert axes == [[("group", 2), ("out", 6)], [("in", 4)], [("tap", 2)], [("tap", 2)]]


def test_a_cost_may_be_a_number_or_one_for_each_block() -> None:
    layer = nn.Conv2d(4, 6, 3)
    assert weighted(kernels, sqrt_size)(layer).cost == 3.0
    assert weighted(outputs, lambda *_: torch.tensor(2.0))(layer).cost == 2.0
    costs = torch.rand(kernels(layer).grid) + 1
    assert torch.equal(weighted(kernels, lambda *_: costs)(layer).cost, costs)
    assert weighted(kernels, sqrt_size)(layer) == kernels(layer)  # the same blocks, dearer


def test_a_cost_upon_a_cost_multiplies() -> None:
    doubled = weighted(weighted(kernels, sqrt_size), lambda *_: 2.0)
    assert doubled(nn.Conv2d(4, 6, 3)).cost == 6.0


@pytest.mark.parametrize("cost", [0.0, -1.0, math.nan, math.inf])
def test_a_cost_that_is_no_price_is_refused(cost: float) -> None:
    with pytest.raises(BadInput, match="must be finite and above zero"):
        weighted(kernels, lambda *_: cost)(nn.Linear(4, 6))


def test_costs_of_another_shape_are_refused() -> None:
    with pytest.raises(BadInput, match=r"shape \(6,\); give one number or one per block"):
        weighted(elements, lambda *_: torch.ones(6))(nn.Linear(4, 6))


@every_cut
def test_slabs_cover_the_weight_once_in_whole_blocks(
    kind: str, partition: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sparsepath.blocks.SLAB", 20)
    blocks = cut(LAYERS[kind](), partition)
    seen = torch.zeros(blocks.view, dtype=torch.int)
    for slab in blocks.slabs():
        seen[slab] += 1
        assert 0 not in blocks.inside or seen.all()
    assert bool((seen == 1).all())
    assert isinstance(blocks, Blocks)


@pytest.mark.parametrize("kind", ["grouped", "grouped transposed"])
def test_inputs_that_n_of_m_walks_along_keep_their_group(kind: str) -> None:
    blocks = elements(LAYERS[kind]())
    assert blocks.view[blocks.inputs] == 4  # of the 8 inputs in two groups
