"""The points of a path: a range of mu found from the norms, or counts, checked before training."""

import itertools
import math
from collections.abc import Sequence

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from sparsepath import (
    ADMM,
    L0,
    L1,
    L12,
    MCP,
    BadInput,
    LogSum,
    NofM,
    Penalty,
    Schedule,
    Stage,
    TopK,
    elements,
    kernels,
    mu_range,
    outputs,
    regularisation_path,
    weighted,
)
from sparsepath.blocks import Blocks

from .quadratic import Quadratic, descend, quality


@pytest.mark.parametrize("penalty", [L1(), L0(), L12(), MCP(0.2), LogSum(0.2)])
@pytest.mark.parametrize("partition", [kernels, weighted(outputs, lambda *_: 3.0)])
def test_mu_is_spaced_by_logarithm_and_reaches_the_shares_of_the_blocks(
    penalty: L1, partition: object
) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 700), nn.Conv2d(10, 30, 2))
    admm = ADMM(model, penalty, rho=0.3, blocks=partition)
    mus = mu_range(admm, points=7, reach=(0.1, 0.9))
    assert len(mus) == 7
    ratios = [after / before for before, after in itertools.pairwise(mus)]
    assert ratios == pytest.approx([ratios[0]] * 6)
    assert ratios[0] > 1
    for mu, share in ((mus[0], 0.1), (mus[-1], 0.9)):
        fresh = ADMM(model, penalty, rho=0.3, mu=mu, blocks=partition)
        fresh.step()
        masks = fresh.support().values()
        dead = sum(int((~mask).sum()) for mask in masks) / sum(mask.numel() for mask in masks)
        assert dead == pytest.approx(share, abs=0.01)


def test_each_block_is_zeroed_at_a_mu_of_its_own_cost() -> None:
    layer = nn.Linear(1, 4, bias=False)
    with torch.no_grad():
        layer.weight.copy_(torch.tensor([[1.0], [2.0], [3.0], [4.0]]))
    costs = torch.tensor([[100.0], [1.0], [1.0], [100.0]])
    admm = ADMM(layer, L1(), rho=1.0, blocks=weighted(kernels, lambda *_: costs))
    # They die at mu = 1/100, 4/100, 2 and 3.
    assert mu_range(admm, points=2, reach=(0.25, 1.0)) == pytest.approx([0.01, 3.0])
    assert mu_range(admm, points=2, reach=(0.5, 0.75)) == pytest.approx([0.04, 2.0])


def test_zero_blocks_count_for_nothing_in_the_range_of_mu() -> None:
    layer = nn.Linear(1, 4, bias=False)
    with torch.no_grad():
        layer.weight.copy_(torch.tensor([[0.0], [0.0], [1.0], [4.0]]))
    admm = ADMM(layer, L1(), rho=2.0)
    assert mu_range(admm, points=2, reach=(0.1, 1.0)) == pytest.approx([2.0, 8.0])
    assert mu_range(admm, points=1) == pytest.approx([8.0])
    assert len(mu_range(admm)) == 20


def test_the_range_of_mu_takes_many_million_blocks() -> None:
    layer = nn.Linear(2**12, 2**12 + 1, bias=False)  # more elements than float32 can count
    admm = ADMM(layer, L1(), rho=1.0, blocks=elements)
    assert mu_range(admm, points=1, reach=(0.0, 1.0))[0] == layer.weight.abs().max().item()


def test_mus_of_any_number_type_become_floats() -> None:
    admm = ADMM(Quadratic(), L0(), rho=0.7)
    mus = np.array([0.25, 1.0], dtype=np.float32)
    path = regularisation_path(admm, descend, evaluate=quality, mus=mus)
    assert [type(point.mu) for point in path] == [float, float]


def test_equal_norms_make_a_path_of_one_mu() -> None:
    layer = nn.Linear(1, 4, bias=False)
    nn.init.ones_(layer.weight)
    assert mu_range(ADMM(layer, L1(), rho=2.0)) == pytest.approx([2.0])


def test_a_path_without_mus_finds_its_own() -> None:
    admm = ADMM(Quadratic(), L0(), rho=0.7)
    mus = mu_range(admm)
    path = regularisation_path(admm, descend, evaluate=quality, schedule=Schedule(xi=1))
    assert [point.mu for point in itertools.islice(path, 3)] == mus[:3]


def test_a_model_of_zeros_has_no_path() -> None:
    layer = nn.Linear(2, 2)
    nn.init.zeros_(layer.weight)
    with pytest.raises(BadInput, match="Every block of this model is zero"):
        mu_range(ADMM(layer, L0(), rho=1.0))


@pytest.mark.parametrize("weight", [float("nan"), float("inf"), 1e25])
def test_weights_without_a_finite_norm_have_no_path(weight: float) -> None:
    layer = nn.Conv2d(2, 3, 3)
    with torch.no_grad():
        layer.weight[1, 1] = weight
    with pytest.raises(BadInput, match="'weight' has blocks whose norm is no finite number"):
        mu_range(ADMM(layer, L0(), rho=1.0))


@pytest.mark.parametrize("reach", [(0.9, 0.1), (0.5, 0.5), (-0.1, 0.5), (0.1, 1.1)])
def test_a_reach_that_goes_nowhere_is_refused(reach: tuple[float, float]) -> None:
    with pytest.raises(BadInput, match="from a share of the blocks to a larger one, not"):
        mu_range(ADMM(Quadratic(), L0(), rho=1.0), reach=reach)


@pytest.mark.parametrize(
    ("mus", "sentence"),
    [
        ([], "at least one mu"),
        ([0.1, 0.1], "mu must grow, but 0.1 follows 0.1"),
        ([0.2, 0.1], "mu must grow, but 0.1 follows 0.2"),
        ([-0.1, 0.1], "mu must be"),
        ([0.1, math.nan], "mu must be"),
        ([0.1, math.inf], "mu must be"),
        ([0.1, "0.2"], "mu must be"),
    ],
)
def test_mus_that_do_not_grow_are_refused(mus: Sequence[float], sentence: str) -> None:
    admm = ADMM(Quadratic(), L0(), rho=1.0)
    with pytest.raises(BadInput, match=sentence):
        next(regularisation_path(admm, descend, evaluate=quality, mus=mus))


# Projections walk counts.


def test_topk_walks_counts_that_fall() -> None:
    admm = ADMM(Quadratic(), TopK(4), rho=0.7)
    counts = [4, 3, 1]
    points = list(regularisation_path(admm, descend, evaluate=quality, mus=counts))
    assert [point.mu for point in points] == counts
    for point, k in zip(points, counts, strict=True):
        assert all(int(mask.sum()) == k for mask in point.support.values())
    assert admm.penalty == TopK(1)


def test_n_of_m_walks_counts_that_fall() -> None:
    admm = ADMM(Quadratic(), NofM(2, 2), rho=0.7, blocks=elements, layers="conv")
    points = list(regularisation_path(admm, descend, evaluate=quality, mus=[2, 1]))
    assert [point.sparsity.of_sparsified for point in points] == [0.0, 0.5]


@pytest.mark.parametrize(
    ("counts", "sentence"),
    [
        ([3, 4], "counts fall, but 4 follows 3"),
        ([5, 3], "k = 5 is larger than the 4 blocks of 'fc1.weight'"),
        ([3, 2.5], "TopK's k is a count, or a share"),
        ([3, -1], "TopK's k must be"),
        ([3, math.nan], "TopK's k must be"),
    ],
)
def test_counts_that_are_none_are_refused_before_any_training(
    counts: list[float], sentence: str
) -> None:
    admm = ADMM(Quadratic(), TopK(3), rho=0.7)
    trained: list[Stage] = []
    with pytest.raises(BadInput, match=sentence):
        regularisation_path(
            admm, lambda model, stage: trained.append(stage), evaluate=quality, mus=counts
        )
    assert not trained


def test_a_projection_without_counts_is_refused_before_any_training() -> None:
    admm = ADMM(Quadratic(), TopK(3), rho=0.7)
    with pytest.raises(BadInput, match="has no threshold to find mu by"):
        regularisation_path(admm, lambda *_: None, evaluate=quality)


def test_a_projection_has_no_range_of_mu() -> None:
    with pytest.raises(BadInput, match="has no threshold to find mu by: give mus, as in"):
        mu_range(ADMM(Quadratic(), TopK(3), rho=0.7))


def test_a_penalty_of_ones_own_walks_mu_upwards() -> None:
    class Ridge(Penalty):
        def value(self, F: Tensor, blocks: Blocks) -> Tensor:
            return F.square().sum() / 2

        def prox(
            self, V: Tensor, blocks: Blocks, step: float, *, out: Tensor | None = None
        ) -> Tensor:
            return torch.div(V, 1 + step, out=out)

    admm = ADMM(Quadratic(), Ridge(), rho=0.7)
    path = regularisation_path(admm, descend, evaluate=quality, mus=[0.1, 0.2])
    assert [point.mu for point in path] == [0.1, 0.2]
    with pytest.raises(BadInput, match="give mus, as in"):
        mu_range(admm)
