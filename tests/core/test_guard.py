"""The over-pruning guard: never a higher threshold, and marked where it is lower."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from sparsepath import (
    ADMM,
    L0,
    L1,
    L12,
    MCP,
    BadInput,
    LogSum,
    kernels,
    mean_norm_guard,
    outputs,
    weighted,
)

from .cases import PROPERTY
from .live import network, same, started

seeds = st.integers(0, 2**32)
norms_of_any_skew = st.tuples(seeds, st.floats(0.1, 8)).map(
    lambda drawn: torch.rand(50, generator=torch.Generator().manual_seed(drawn[0])) ** drawn[1]
)


@PROPERTY
@given(norms=norms_of_any_skew, threshold=st.floats(0, 2), limit=st.floats(0, 1))
def test_the_guard_never_raises_the_threshold(
    norms: Tensor, threshold: float, limit: float
) -> None:
    guarded = mean_norm_guard(limit)(norms, threshold)
    pruned = sum(norm <= threshold for norm in norms.tolist()) / len(norms)
    mean = sum(norms.tolist()) / len(norms)
    if pruned > limit:
        assert guarded == pytest.approx(min(threshold, mean))
    else:
        assert guarded == threshold
    assert guarded <= threshold


def test_the_guard_keeps_a_threshold_under_the_mean_of_skewed_norms() -> None:
    norms = torch.tensor([0.1] * 9 + [9.1])  # nine in ten pruned at 0.5, and their mean is 1
    assert mean_norm_guard()(norms, 0.5) == 0.5
    assert mean_norm_guard()(norms, 3.0) == pytest.approx(1.0)
    assert mean_norm_guard(0.95)(norms, 3.0) == 3.0


def test_the_guard_counts_a_norm_at_the_threshold_as_pruned() -> None:
    norms = torch.tensor([1.0, 1.0, 0.4])
    assert mean_norm_guard(0.6)(norms, 1.0) == pytest.approx(0.8)  # and not 1: all are pruned
    assert mean_norm_guard(0.6)(norms, 3.0) == pytest.approx(0.8)


@pytest.mark.parametrize("limit", [-0.1, 1.1, math.nan, "half"])
def test_a_limit_that_is_no_share_is_refused(limit: object) -> None:
    with pytest.raises(BadInput, match="The guard's limit"):
        mean_norm_guard(limit)


def test_the_guard_lowers_the_threshold_and_marks_the_step() -> None:
    model = nn.Sequential(nn.Linear(1, 4, bias=False), nn.Linear(4, 4, bias=False))
    with torch.no_grad():
        model[0].weight.copy_(torch.tensor([[1.0], [2.0], [3.0], [6.0]]))  # of mean 3
        model[1].weight.fill_(100.0)
    for penalty in (L0(), L1(), L12(), MCP(1.0), LogSum(1.0)):
        step = penalty.step_at(5.0)
        admm = ADMM(model, penalty, rho=2.0, mu=2.0 * step, guard=mean_norm_guard())
        assert admm.step().guarded == ("0.weight",)
        alive = admm.support()["0.weight"].flatten().tolist()
        assert alive[:2] + alive[3:] == [False, False, True]
        free = ADMM(model, penalty, rho=2.0, mu=2.0 * step)
        assert free.step().guarded == ()
        assert torch.equal(admm.F["1.weight"], free.F["1.weight"])
        assert torch.equal(
            admm.F["0.weight"],
            penalty.prox(model[0].weight.detach(), admm.blocks["0.weight"], penalty.step_at(3.0)),
        )


def test_the_guard_never_prunes_more() -> None:
    layer = nn.Linear(1, 10, bias=False)
    with torch.no_grad():
        layer.weight.copy_(torch.tensor([[0.1]] * 9 + [[9.1]]))  # mean 1, over the threshold 0.5
    admm = ADMM(layer, L1(), rho=1.0, mu=0.5, guard=mean_norm_guard())
    assert admm.step().guarded == ()
    assert admm.F["weight"][-1].item() == pytest.approx(8.6)


def test_the_guard_takes_one_cost_per_layer_into_account() -> None:
    layer = nn.Linear(1, 4, bias=False)
    with torch.no_grad():
        layer.weight.copy_(torch.tensor([[1.0], [2.0], [3.5], [5.5]]))  # of mean 3
    for cost in (2.0, 2):
        blocks = weighted(kernels, lambda *_, cost=cost: cost)
        admm = ADMM(layer, L1(), rho=1.0, mu=2.5, blocks=blocks, guard=mean_norm_guard())
        assert admm.step().guarded == ("weight",)  # threshold 2.5 * 2 = 5 falls to 3
        assert admm.F["weight"].flatten().tolist() == pytest.approx([0, 0, 0.5, 2.5])


def test_a_guard_that_raises_the_threshold_is_refused_before_anything_changes() -> None:
    model = network()
    admm = started(model, guard=lambda norms, threshold: threshold)
    admm.guard = lambda norms, threshold: threshold * (1 + len(norms) % 2)
    before = admm.state_dict()
    with pytest.raises(
        BadInput, match=r"made 0.2 of the threshold 0.1 of '3.weight'; a guard may only lower"
    ):
        admm.step()
    assert same(before, admm.state_dict())


@pytest.mark.parametrize("value", [-5.0, float("nan")])
def test_a_guard_that_makes_no_threshold_is_refused_before_anything_changes(value: float) -> None:
    admm = started(network(), guard=lambda norms, threshold: threshold)
    admm.guard = lambda norms, threshold: value if len(norms) % 2 else threshold
    before = admm.state_dict()
    with pytest.raises(BadInput, match="a guard may only lower it, to zero at the least"):
        admm.step()
    assert same(before, admm.state_dict())


def test_a_guard_without_a_common_threshold_is_refused() -> None:
    dear = weighted(outputs, lambda layer, blocks: torch.ones(blocks.grid))
    with pytest.raises(BadInput, match="have a cost each and so no common threshold to guard"):
        ADMM(network(), L0(), rho=1.0, blocks=dear, guard=mean_norm_guard())


def test_a_guard_does_nothing_without_mu_or_without_living_blocks() -> None:
    model = network()
    assert ADMM(model, L0(), rho=1.0, guard=mean_norm_guard()).step().guarded == ()
    nn.init.zeros_(model[0].weight)
    admm = ADMM(model, L0(), rho=1.0, mu=1e-9, guard=mean_norm_guard())
    admm.step()
    assert not admm.F["0.weight"].any()
