"""Every penalty on every partition: its prox against the objective that defines it."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn
from tracing import untraced

from sparsepath import (
    L0,
    L1,
    L12,
    MCP,
    SCAD,
    BadInput,
    LogSum,
    NofM,
    TopK,
    kernels,
    outputs,
    sqrt_size,
    weighted,
)
from sparsepath.blocks import Blocks

from .cases import LAYERS, PARTITIONS, PENALTIES, PROPERTY, cut, drawn, members, per_weight

every_penalty = pytest.mark.parametrize("kind", PENALTIES)
every_partition = pytest.mark.parametrize("partition", PARTITIONS)
LAYER = LAYERS["grouped"]()

seeds = st.integers(0, 2**32)
scales = st.floats(-3, 3).map(lambda e: 10**e)
steps = st.floats(-6, 4).map(lambda e: 10**e)
thetas = st.floats(-3, 3).map(lambda e: 10**e)


def objective(case: str, theta: float, step: float, t: np.ndarray, x: np.ndarray) -> np.ndarray:
    """What one block of norm x pays for a norm t, by the textbook's formula."""
    return step * PENALTIES[case].phi(t, theta) + (t - x) ** 2 / 2


def flat_norms(blocks: Blocks, V: Tensor) -> np.ndarray:
    return blocks.norms(V).double().numpy().ravel()


def total(case: str, theta: float, step: float, F: Tensor, V: Tensor, blocks: Blocks) -> float:
    """step * f(F) + 1/2 ||F - V||^2 in float64."""
    penalty = PENALTIES[case].phi(flat_norms(blocks, F.double()), theta).sum()
    return float(step * penalty + (F.double() - V.double()).square().sum() / 2)


@untraced
@every_penalty
@every_partition
@PROPERTY
@given(seed=seeds, scale=scales, step=steps, theta=thetas)
def test_prox_beats_a_dense_grid(
    kind: str, partition: str, seed: int, scale: float, step: float, theta: float
) -> None:
    blocks, V = cut(LAYER, partition), drawn(LAYER, seed) * scale
    F = PENALTIES[kind].penalty(theta).prox(V, blocks, step)
    x, t = flat_norms(blocks, V), flat_norms(blocks, F)
    share = np.concatenate([np.linspace(0, 1.2, 1201), np.geomspace(1e-9, 1e-3, 50)])
    grid = objective(kind, theta, step, share[:, None] * x, x).min(axis=0)
    assert (objective(kind, theta, step, t, x) <= grid + 1e-12 * (x**2 + step)).all()


@untraced
@every_penalty
@every_partition
@PROPERTY
@given(seed=seeds, step=steps, theta=thetas)
def test_prox_beats_other_blocks(
    kind: str, partition: str, seed: int, step: float, theta: float
) -> None:
    blocks, V = cut(LAYER, partition), drawn(LAYER, seed)
    F = PENALTIES[kind].penalty(theta).prox(V, blocks, step)
    least = total(kind, theta, step, F, V, blocks)
    generator = torch.Generator().manual_seed(seed)
    coin = torch.rand(blocks.grid, generator=generator) < 0.5
    noise = torch.randn(V.shape, generator=generator, dtype=V.dtype)
    rivals = [torch.zeros_like(V), V]
    rivals += [per_weight(blocks, coin) * whole + per_weight(blocks, ~coin) * F for whole in rivals]
    rivals += [F + size * noise for size in (1e-4, 1e-2, 1.0)]
    for rival in rivals:
        assert least <= total(kind, theta, step, rival, V, blocks) * (1 + 1e-12)


@untraced
@every_penalty
@every_partition
@PROPERTY
@given(seed=seeds, step=steps, theta=thetas)
def test_prox_scales_each_block_towards_zero(
    kind: str, partition: str, seed: int, step: float, theta: float
) -> None:
    blocks, V = cut(LAYER, partition), drawn(LAYER, seed)
    F = PENALTIES[kind].penalty(theta).prox(V, blocks, step)
    ratio = per_weight(blocks, blocks.norms(F) / blocks.norms(V))
    assert bool((ratio <= 1 + 1e-12).all())
    torch.testing.assert_close(F, ratio * V, rtol=1e-12, atol=0)


@every_penalty
@PROPERTY
@given(step=steps, theta=thetas)
def test_threshold_is_where_the_prox_starts_to_let_live(
    kind: str, step: float, theta: float
) -> None:
    penalty = PENALTIES[kind].penalty(theta)
    threshold = penalty.threshold(step)
    assert penalty.step_at(threshold) == pytest.approx(step, rel=1e-9)
    assert penalty.threshold(penalty.step_at(step)) == pytest.approx(step, rel=1e-9)
    near = threshold * torch.tensor([0.0, 0.5, 1 - 1e-6, 1 + 1e-6, 2.0], dtype=torch.float64)
    assert (penalty.shrunk(near, step) > 0).tolist() == [False, False, False, True, True]


@every_penalty
def test_value_is_the_sum_over_a_plain_loop_of_blocks(kind: str) -> None:
    for partition in PARTITIONS:
        F = drawn(LAYER, 5)
        blocks = members(LAYER, partition)
        for index in blocks[0]:
            F[index] = 0
        norms = np.array([math.sqrt(sum(F[i].item() ** 2 for i in block)) for block in blocks])
        value = PENALTIES[kind].penalty(0.3).value(F, cut(LAYER, partition))
        assert value.item() == pytest.approx(PENALTIES[kind].phi(norms, 0.3).sum(), rel=1e-12)


@every_penalty
@every_partition
def test_prox_without_a_step_is_v_itself(kind: str, partition: str) -> None:
    V = drawn(LAYER, 1)
    F = PENALTIES[kind].penalty(1.0).prox(V, cut(LAYER, partition), 0)
    assert torch.equal(F, V)
    assert F.data_ptr() != V.data_ptr()


@every_penalty
@every_partition
def test_prox_of_a_zero_block_is_zero(kind: str, partition: str) -> None:
    V, blocks = torch.zeros(LAYER.weight.shape), cut(LAYER, partition)
    for step in (1e-6, 1.0, 1e3):
        assert not PENALTIES[kind].penalty(1.0).prox(V, blocks, step).any()


@every_penalty
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=["compiled", "torch"])
@pytest.mark.parametrize("side", [3, 11], ids=["short", "long"])
def test_what_is_not_a_number_is_no_small_block(kind: str, dtype: torch.dtype, side: int) -> None:
    layer = nn.Conv2d(2, 3, side)
    V = layer.weight.detach().to(dtype).fill_(1e-6)
    V[1, 0, 1, 2] = math.nan
    F = PENALTIES[kind].penalty(1.0).prox(V, kernels(layer), 1.0)
    lost = F.isnan().flatten(2).any(dim=2)
    assert lost.nonzero().tolist() == [[1, 0]]
    assert F[1, 0].bool().all(), "what is beside it in its block stays, too"
    assert not F[~lost].any()


@every_penalty
@pytest.mark.parametrize(
    "cost", [1.0, 3.0, torch.full((3, 2, 1, 1), 3.0)], ids=["none", "one", "each"]
)
@pytest.mark.parametrize("step", [1e39, 1e308])
def test_a_step_beyond_the_numbers_of_weights_leaves_nothing(
    kind: str, cost: float | Tensor, step: float
) -> None:
    layer = nn.Conv2d(2, 3, 3)
    blocks = replace(kernels(layer), cost=cost)
    assert not PENALTIES[kind].penalty(1.0).prox(layer.weight.detach(), blocks, step).any()


@every_penalty
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_prox_in_low_precision_is_as_good_as_its_rounding(kind: str, dtype: torch.dtype) -> None:
    for partition in PARTITIONS:
        blocks, V = cut(LAYER, partition), drawn(LAYER, 3, dtype)
        for step in (1e-3, 0.1, 1.0):
            F = PENALTIES[kind].penalty(0.5).prox(V, blocks, step)
            exact = PENALTIES[kind].penalty(0.5).prox(V.double(), blocks, step)
            assert F.dtype == dtype
            least = total(kind, 0.5, step, exact, V, blocks)
            # The objective is flat at F, so rounding costs little of it.
            assert total(kind, 0.5, step, F, V, blocks) <= least * (1 + torch.finfo(dtype).eps)


@every_penalty
@every_partition
def test_prox_does_not_depend_on_slabs_or_memory_order(
    kind: str, partition: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    blocks, V = cut(LAYER, partition), drawn(LAYER, 4)
    costs = torch.rand(blocks.grid, dtype=V.dtype) + 0.5
    dear = weighted(PARTITIONS[partition][0], lambda *_: costs)(LAYER)
    penalty = PENALTIES[kind].penalty(0.5)
    whole = [penalty.prox(V, b, 0.05) for b in (blocks, dear)]
    monkeypatch.setattr("sparsepath.blocks.SLAB", 20)
    last = V.to(memory_format=torch.channels_last)
    for b, F in zip((blocks, dear), whole, strict=True):
        torch.testing.assert_close(penalty.prox(V, b, 0.05), F, rtol=1e-13, atol=0)
        again = penalty.prox(last, b, 0.05)
        torch.testing.assert_close(again, F)
        assert again.is_contiguous(memory_format=torch.channels_last)


@pytest.mark.parametrize("penalty", [L1(), L0(), TopK(5), NofM(1, 2)])
@pytest.mark.parametrize("step", [0.0, 0.1])
def test_prox_can_write_where_it_is_told_to_even_into_v(
    penalty: L1 | L0 | TopK | NofM, step: float
) -> None:
    V, blocks = drawn(LAYER, 4), kernels(LAYER)
    F = penalty.prox(V, blocks, step)
    for out in (torch.empty_like(V, memory_format=torch.channels_last), V):
        assert penalty.prox(V, blocks, step, out=out) is out
        assert torch.equal(out, F)


@every_penalty
@every_partition
def test_a_cost_multiplies_the_step_of_its_block(kind: str, partition: str) -> None:
    blocks, V = cut(LAYER, partition), drawn(LAYER, 6)
    penalty = PENALTIES[kind].penalty(0.5)
    fixed = weighted(PARTITIONS[partition][0], lambda *_: 2.5)(LAYER)
    torch.testing.assert_close(penalty.prox(V, fixed, 0.1), penalty.prox(V, blocks, 0.25))
    torch.testing.assert_close(penalty.value(V, fixed), 2.5 * penalty.value(V, blocks))
    choice = torch.arange(blocks.count).view(blocks.grid) % 2
    dear = weighted(PARTITIONS[partition][0], lambda *_: torch.tensor([1.0, 2.5])[choice])(LAYER)
    expected = torch.where(
        per_weight(blocks, choice) == 1,
        penalty.prox(V, blocks, 0.25),
        penalty.prox(V, blocks, 0.1),
    )
    torch.testing.assert_close(penalty.prox(V, dear, 0.1), expected)
    parts = blocks.norms(V)
    paid = (torch.tensor([1.0, 2.5])[choice] * penalty.phi(parts)).sum()
    torch.testing.assert_close(penalty.value(V, dear), paid)


def test_l1_is_the_soft_threshold_at_mu_over_rho() -> None:
    # Rows of norm 5 and 1; mu / rho = 2 leaves 3/5 of the first and nothing of the second.
    V = torch.tensor([[3.0, -4.0], [0.6, 0.8]])
    F = L1().prox(V, outputs(nn.Linear(2, 2)), 2.0)
    torch.testing.assert_close(F, torch.tensor([[1.8, -2.4], [0.0, 0.0]]))


def test_l0_is_the_hard_threshold_at_the_root_of_twice_mu_over_rho() -> None:
    # Rows of norm 5 and 1: b = sqrt(2 * 12) < 5 keeps the first, sqrt(2 * 13) > 5 does not;
    # sqrt(2 * 0.5) = 1 is a tie, which zero wins, though mu / rho = 0.5 is under the norm.
    V, blocks = torch.tensor([[3.0, -4.0], [0.6, 0.8]]).double(), outputs(nn.Linear(2, 2))
    assert torch.equal(L0().prox(V, blocks, 12.0), V * torch.tensor([[1.0], [0.0]]))
    assert not L0().prox(V, blocks, 13.0).any()
    V[1] = torch.tensor([0.0, 1.0])
    assert torch.equal(L0().prox(V, blocks, 0.5), V * torch.tensor([[1.0], [0.0]]))
    assert torch.equal(L0().prox(V, blocks, 0.49), V)


def test_l1_agrees_with_an_independent_solver() -> None:
    import cvxpy  # here, because it is slow to load

    V, blocks = drawn(LAYER, 7), kernels(LAYER)
    step = 0.3 * blocks.norms(V).mean().item()
    F = cvxpy.Variable(V[0, 0].numel() * blocks.count)
    kernel = [F[i : i + blocks.size] for i in range(0, F.size, blocks.size)]
    fit = cvxpy.sum_squares(F - V.numpy().ravel()) / 2
    cvxpy.Problem(cvxpy.Minimize(step * sum(map(cvxpy.norm2, kernel)) + fit)).solve()
    mine = L1().prox(V, blocks, step)
    np.testing.assert_allclose(mine.numpy().ravel(), F.value, atol=1e-5)


@pytest.mark.parametrize("penalty", [MCP(3.0), SCAD(3.0, 2.5), LogSum(3.0)])
def test_scaled_counts_the_shape_in_units_of_the_norm(penalty: MCP | SCAD | LogSum) -> None:
    V, blocks = drawn(LAYER, 8), kernels(LAYER)
    # In units of 0.1 everything is a tenth, and phi, a length or a plain number, with it.
    length = 1.0 if isinstance(penalty, LogSum) else 0.1
    small = penalty.scaled(0.1).prox(0.1 * V, blocks, 0.01 / length * 0.2)
    torch.testing.assert_close(small, 0.1 * penalty.prox(V, blocks, 0.2))
    assert penalty.scaled(2.0).theta == 6.0
    assert L1().scaled(0.1) == L1()


@pytest.mark.parametrize("shape", [0, -1.0, math.nan, math.inf, "3", None, True])
def test_a_shape_that_is_no_length_is_refused(shape: object) -> None:
    for penalty in (MCP, SCAD, LogSum):
        with pytest.raises(BadInput, match="theta must be"):
            penalty(shape)
    with pytest.raises(BadInput, match="SCAD's a must be"):
        SCAD(1.0, shape)


def test_a_scad_without_room_to_bend_is_refused() -> None:
    with pytest.raises(BadInput, match=r"SCAD's a must be above 1 \(3.7 is usual\), not 1"):
        SCAD(1.0, 1)


@every_penalty
@pytest.mark.parametrize("step", [-1.0, math.nan, math.inf, "1"])
def test_a_step_that_is_none_is_refused(kind: str, step: object) -> None:
    with pytest.raises(BadInput, match="step must be"):
        PENALTIES[kind].penalty(1.0).prox(drawn(LAYER, 0), kernels(LAYER), step)


def test_every_penalty_constructs_without_arguments() -> None:
    for penalty in (L1, L0, L12, MCP, SCAD, LogSum):
        assert penalty() == penalty()


def test_square_root_of_size_is_the_group_lassos_cost() -> None:
    V = torch.tensor([[3.0, 4.0]]).double()
    F = L1().prox(V, weighted(outputs, sqrt_size)(nn.Linear(2, 1)), 1.0)
    torch.testing.assert_close(F, V * (1 - math.sqrt(2) / 5))


def test_a_whole_theta_is_the_same_penalty_as_its_float() -> None:
    for whole, real in ((MCP(3), MCP(3.0)), (SCAD(3, 4), SCAD(3.0, 4.0)), (LogSum(2), LogSum(2.0))):
        assert whole.identity == real.identity
