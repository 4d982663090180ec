"""TopK and N:M against enumeration of every subset, ties included."""

import itertools
import math
from collections.abc import Hashable

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from sparsepath import (
    ADMM,
    BadInput,
    Blocks,
    NofM,
    TopK,
    elements,
    kernels,
    mean_norm_guard,
    outputs,
    positions,
    sqrt_size,
    tiles,
    weighted,
)

from .cases import LAYERS, PARTITIONS, PROPERTY, cut, labels, members, place

SMALL = nn.Conv2d(3, 2, 2)  # 6 kernels


def integers(shape: torch.Size, seed: int) -> Tensor:
    """Small whole numbers, so that norms tie often and their squares are exact."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(-1, 2, shape, generator=generator).float()


def best_subset(squares: list[float], k: int) -> set[int]:
    """The k indices of most energy, by enumeration; among equals the first in order."""
    return set(max(itertools.combinations(range(len(squares)), k), key=lambda c: _sum(squares, c)))


def _sum(squares: list[float], chosen: tuple[int, ...]) -> float:
    return sum(squares[i] for i in chosen)


def kept_only(V: Tensor, blocks: list[list[tuple[int, ...]]], kept: set[int]) -> Tensor:
    F = torch.zeros_like(V)
    for number in kept:
        for index in blocks[number]:
            F[index] = V[index]
    return F


def squares_of(V: Tensor, blocks: list[list[tuple[int, ...]]]) -> list[float]:
    return [sum(V[index].item() ** 2 for index in block) for block in blocks]


@pytest.mark.parametrize("partition", ["kernels", "outputs", "inputs", "columns"])
@PROPERTY
@given(seed=st.integers(0, 2**32), share=st.floats(0, 1))
def test_topk_is_the_best_of_all_subsets(partition: str, seed: int, share: float) -> None:
    V, blocks = integers(SMALL.weight.shape, seed), members(SMALL, partition)
    k = round(share * len(blocks))
    expected = kept_only(V, blocks, best_subset(squares_of(V, blocks), k))
    assert torch.equal(TopK(k).prox(V, cut(SMALL, partition)), expected)
    assert torch.equal(TopK(k / len(blocks)).prox(V, cut(SMALL, partition)), expected)


@PROPERTY
@given(seed=st.integers(0, 2**32), k=st.integers(0, 9))
def test_topk_together_is_the_best_of_all_subsets_of_all_layers(seed: int, k: int) -> None:
    model = nn.Sequential(SMALL, nn.Linear(4, 3, bias=False))
    weights = [SMALL.weight, model[1].weight]
    with torch.no_grad():
        for number, W in enumerate(weights):
            W.copy_(integers(W.shape, seed + number))
    cuts = [members(SMALL, "kernels"), members(model[1], "kernels")]
    squares = [s for W, blocks in zip(weights, cuts, strict=True) for s in squares_of(W, blocks)]
    best = best_subset(squares, k)
    admm = ADMM(model, TopK(k, together=True), rho=1.0)
    admm.step()
    split = len(cuts[0])
    for name, W, blocks, kept in (
        ("0.weight", weights[0], cuts[0], {i for i in best if i < split}),
        ("1.weight", weights[1], cuts[1], {i - split for i in best if i >= split}),
    ):
        assert torch.equal(admm.F[name], kept_only(W.detach(), blocks, kept))


def groups_of(layer: nn.Module, partition: str, m: int) -> list[list[int]]:
    """The numbers of the blocks in each m neighbours along one group's inputs, by a plain loop."""
    ins = getattr(layer, "in_channels", layer.weight.shape[1]) // getattr(layer, "groups", 1)
    found: dict[Hashable, list[int]] = {}
    for number, block in enumerate(members(layer, partition)):
        w = place(layer, block[0])
        tap = w.tap if len(block) == 1 else ()
        found.setdefault((w.group, w.out, tap, (w.inp % ins) // m), []).append(number)
    return list(found.values())


@pytest.mark.parametrize(
    ("kind", "partition"),
    [
        ("linear", "elements"),
        ("conv1d", "elements"),
        ("conv2d", "kernels"),
        ("transposed1d", "elements"),
        ("grouped", "kernels"),
        ("grouped", "elements"),
        ("grouped transposed", "elements"),
    ],
)
@PROPERTY
@given(seed=st.integers(0, 2**32), m=st.sampled_from([1, 2, 4]), share=st.floats(0, 1))
def test_n_of_m_is_the_best_of_all_subsets_of_each_group(
    kind: str, partition: str, seed: int, m: int, share: float
) -> None:
    layer, n = LAYERS[kind](), round(share * m)
    V, blocks = integers(layer.weight.shape, seed), members(layer, partition)
    squares, kept = squares_of(V, blocks), set()
    for group in groups_of(layer, partition, m):
        assert len(group) == m
        kept |= {group[i] for i in best_subset([squares[number] for number in group], n)}
    projection = NofM(n, m)
    F = projection.prox(V, cut(layer, partition))
    assert torch.equal(F, kept_only(V, blocks, kept))
    assert projection.value(F, cut(layer, partition)) == 0
    allowed = all(
        sum(squares[number] > 0 for number in g) <= n for g in groups_of(layer, partition, m)
    )
    assert projection.value(V, cut(layer, partition)) == (0 if allowed else math.inf)


def test_equal_norms_keep_the_lowest_index() -> None:
    blocks, V = elements(nn.Linear(4, 1)), torch.tensor([[1.0, -1.0, 1.0, -1.0]])
    assert TopK(2).prox(V, blocks).tolist() == [[1, -1, 0, 0]]
    assert NofM(1, 2).prox(V, blocks).tolist() == [[1, 0, 1, 0]]


def test_what_is_not_a_number_shows_and_takes_no_place() -> None:
    V = torch.arange(1.0, 7.0).view(2, 3, 1, 1).expand(2, 3, 2, 2).clone()
    V[1, 2, 0, 1] = math.nan  # the largest but for that
    V[0, 0, 1, 1] = math.nan
    blocks = kernels(SMALL)
    for k in range(5):
        F = TopK(k).prox(V, blocks)
        kept = [i for i, kernel in enumerate(F.flatten(0, 1)) if kernel.bool().any()]
        assert kept == [0, *range(5 - k, 5), 5]
        assert F[1, 2, 0, 1].isnan()
        assert F[1, 2, 0, 0] == 6
    counts = TopK(3, together=True).per_layer({"a": blocks.norms(V), "b": torch.zeros(4)})
    assert {name: own.k for name, own in counts.items()} == {"a": 3, "b": 0}


def test_topk_values_an_allowed_f_at_zero_and_any_other_at_infinity() -> None:
    blocks, F = elements(nn.Linear(4, 1)), torch.tensor([[1.0, 0.0, 2.0, 0.0]])
    assert TopK(2).value(F, blocks) == 0
    assert TopK(3).value(F, blocks) == 0
    assert TopK(1).value(F, blocks) == math.inf
    assert TopK(0).value(torch.zeros(1, 4), blocks) == 0


@pytest.mark.parametrize("partition", PARTITIONS)
def test_topk_takes_every_partition(partition: str) -> None:
    layer = LAYERS["grouped"]()
    blocks = cut(layer, partition)
    F = TopK(3).prox(layer.weight.detach(), blocks)
    assert int(blocks.alive(F).sum()) == 3
    assert len({labels(layer, partition)[tuple(i)] for i in F.nonzero().tolist()}) == 3


@pytest.mark.parametrize("projection", [TopK(2), NofM(1, 2)])
def test_a_projection_ignores_the_step_but_checks_it(projection: TopK | NofM) -> None:
    V, blocks = torch.randn(4, 4), elements(nn.Linear(4, 4))
    assert torch.equal(projection.prox(V, blocks, 1e3), projection.prox(V, blocks))
    with pytest.raises(BadInput, match="step must be"):
        projection.prox(V, blocks, -1.0)


@pytest.mark.parametrize("k", [-1, 1.5, -0.1, math.nan, "3", None, True])
def test_a_k_that_is_neither_count_nor_share_is_refused(k: object) -> None:
    with pytest.raises(BadInput, match="TopK's k"):
        TopK(k)


def test_a_k_above_the_block_count_is_refused() -> None:
    model = nn.Sequential(SMALL, nn.Linear(4, 3))
    with pytest.raises(BadInput, match="k = 7 is larger than the 6 blocks of this weight; give 6"):
        TopK(7).prox(SMALL.weight.detach(), kernels(SMALL))
    with pytest.raises(BadInput, match=r"k = 4 is larger than the 3 blocks of '1.weight'"):
        ADMM(model, TopK(4), rho=1.0)
    with pytest.raises(BadInput, match="k = 10 is larger than the 9 blocks of all layers; give 9"):
        ADMM(model, TopK(10, together=True), rho=1.0)
    admm = ADMM(model, TopK(9, together=True), rho=1.0)
    with pytest.raises(BadInput, match="k = 10 is larger"):
        admm.position = 10
    assert admm.position == 9


@pytest.mark.parametrize(
    ("n", "m", "sentence"),
    [
        (3, 2, "n = 3 is larger than its m = 2; give 2 or less"),
        (-1, 2, "n must be a whole number of at least 0"),
        (1, 0, "m must be a whole number of at least 1"),
        (1.0, 2, "n must be a whole number"),
    ],
)
def test_an_n_of_m_that_is_none_is_refused(n: int, m: int, sentence: str) -> None:
    with pytest.raises(BadInput, match=sentence):
        NofM(n, m)


def test_n_of_m_that_does_not_divide_a_layer_is_refused() -> None:
    with pytest.raises(
        BadInput, match=r"does not divide '0.weight': its 3 blocks along the inputs"
    ):
        ADMM(nn.Sequential(SMALL), NofM(2, 4), rho=1.0)
    with pytest.raises(BadInput, match="does not divide 'this weight'"):
        NofM(2, 4).prox(SMALL.weight.detach(), kernels(SMALL))


@pytest.mark.parametrize(
    ("layer", "partition"),
    [(SMALL, outputs), (SMALL, positions), (nn.Linear(4, 3), kernels)],
)
def test_n_of_m_refuses_blocks_that_hold_all_their_inputs(
    layer: nn.Module, partition: object
) -> None:
    with pytest.raises(BadInput, match="needs blocks beside each other along the inputs"):
        ADMM(nn.Sequential(layer), NofM(1, 2), rho=1.0, blocks=partition)


def test_n_of_m_walks_tiles_too() -> None:
    blocks = tiles(2, 1)(nn.Linear(4, 2))
    assert isinstance(blocks, Blocks)
    F = NofM(1, 2).prox(torch.tensor([[1.0, 2, 3, 4], [1, 2, 9, 4]]), blocks)
    assert F.tolist() == [[0, 2, 3, 0], [0, 2, 9, 0]]


@pytest.mark.parametrize("projection", [TopK(2), TopK(2, together=True), NofM(1, 3)])
def test_what_makes_no_sense_for_a_count_is_refused(projection: TopK | NofM) -> None:
    with pytest.raises(BadInput, match="counts its blocks and has no threshold to guard"):
        ADMM(SMALL, projection, rho=1.0, guard=mean_norm_guard())
    with pytest.raises(BadInput, match="counts its blocks, whatever their cost"):
        ADMM(SMALL, projection, rho=1.0, blocks=weighted(kernels, sqrt_size))


def test_a_projection_is_moved_along_its_path_by_its_count() -> None:
    assert TopK(5).at(3) == TopK(3)
    assert TopK(5, together=True).at(0.5) == TopK(0.5, together=True)
    assert NofM(3, 4).at(2) == NofM(2, 4)
    assert (TopK(5).count, NofM(3, 4).count) == (5, 3)
    for count in (1.5, "2", math.nan):
        with pytest.raises(BadInput, match="NofM"):
            NofM(3, 4).at(count)


def test_identity_is_the_projection_but_for_its_count() -> None:
    assert TopK(5).identity == TopK(3).identity != TopK(3, together=True).identity
    assert NofM(3, 4).identity == NofM(1, 4).identity != NofM(1, 2).identity


def test_a_share_leaves_even_a_small_layer_one_block() -> None:
    layer = nn.Linear(3, 2)
    blocks = outputs(layer)
    assert blocks is not None
    F = TopK(0.1).prox(layer.weight.detach(), blocks)
    assert int(blocks.alive(F).sum()) == 1
    assert not TopK(0.0).prox(layer.weight.detach(), blocks).any()
