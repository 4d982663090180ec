"""Residuals as the paper defines them, and the balancing of rho by their relative forms."""

import math

import pytest
import torch
from torch import nn

from sparsepath import ADMM, L0, L1, BadInput, ResidualBalancing, Residuals

from .live import network, shaken, started


def test_residuals_are_the_papers_and_their_relative_forms() -> None:
    layer = nn.Linear(2, 2, bias=False).double()
    with torch.no_grad():
        layer.weight.copy_(torch.tensor([[3.0, 4.0], [0.3, 0.4]]))
    admm = ADMM(layer, L1(), rho=2.0, mu=2.0)  # soft threshold at 1: norms 5, 0.5 become 4, 0
    residuals = admm.step()
    away = math.hypot(1, 0.5)
    assert residuals.primal == pytest.approx(away)
    assert residuals.dual == pytest.approx(away)  # F_previous is W here
    assert residuals.primal_relative == pytest.approx(away / math.hypot(5, 0.5))
    # Gamma = 2 (W - F), so ||Gamma / rho|| = ||W - F||.
    assert residuals.dual_relative == pytest.approx(1.0)
    assert residuals.guarded == ()
    again = admm.step()  # V = W + Gamma / rho: norms 6 and 1 become 5 and 0, so F = W in one row
    assert again.primal == pytest.approx(0.5)
    assert again.dual == pytest.approx(1.0)
    assert again.primal_relative == pytest.approx(0.5 / math.hypot(5, 0.5))
    assert again.dual_relative == pytest.approx(1 / math.hypot(1, 1))


def test_the_primal_residual_is_relative_to_the_longer_of_w_and_f() -> None:
    layer = nn.Linear(1, 1, bias=False).double()
    nn.init.constant_(layer.weight, 3.0)
    admm = ADMM(layer, L0(), rho=1.0, mu=8.0)  # hard threshold at 4: F = 0, Gamma = 3
    admm.step()
    nn.init.constant_(layer.weight, 2.0)
    residuals = admm.step()  # V = 5 stays
    assert residuals.primal == pytest.approx(3.0)
    assert residuals.primal_relative == pytest.approx(3 / 5)


def test_nothing_of_nothing_is_nothing() -> None:
    layer = nn.Linear(2, 2, bias=False)
    nn.init.zeros_(layer.weight)
    assert ADMM(layer, L0(), rho=1.0).step() == Residuals(0.0, 0.0, 0.0, 0.0)
    admm = ADMM(layer, L0(), rho=1.0)
    nn.init.ones_(layer.weight)
    assert admm.step().dual_relative == math.inf


def test_residuals_of_a_half_precision_model_are_float32s() -> None:
    layer = nn.Linear(4, 4, bias=False).half()
    for size in (1e-4, 300.0):  # of which the squares under- and overflow in float16
        nn.init.constant_(layer.weight, size)
        admm = ADMM(layer, L1(), rho=1.0, mu=size)
        # Rows of norm 2 size become size: ||W|| = 4 size and ||W - F|| = 2 size.
        assert admm.step().primal_relative == pytest.approx(0.5, rel=1e-3)


# Balancing rho.


def test_balancing_moves_rho_towards_the_larger_relative_residual() -> None:
    rule = ResidualBalancing(ratio=10.0, factor=2.0)
    assert rule(1.0, Residuals(0, 0, primal_relative=1.0, dual_relative=0.05)) == 2.0
    assert rule(1.0, Residuals(0, 0, primal_relative=0.05, dual_relative=1.0)) == 0.5
    assert rule(1.0, Residuals(0, 0, primal_relative=1.0, dual_relative=0.2)) == 1.0
    assert rule(1.0, Residuals(0, 0, primal_relative=0.0, dual_relative=0.0)) == 1.0


def test_balancing_keeps_gamma_and_moves_u() -> None:
    model = network()
    admm = started(model, L1(), balancing=ResidualBalancing(ratio=1.0001, factor=4.0))
    before = admm.rho
    Gamma = {name: t.clone() for name, t in admm.Gamma.items()}
    residuals = admm.step()
    assert admm.rho in (before * 4, before / 4)
    for name, W in admm.W.items():
        # The dual step was made with the old rho, and the change of rho leaves Gamma unscaled.
        expected = Gamma[name] + before * (W.detach() - admm.F[name])
        torch.testing.assert_close(admm.Gamma[name], expected)
        torch.testing.assert_close(admm.U[name], admm.F[name] - admm.Gamma[name] / admm.rho)
    admm.proximity().backward()
    for name, W in admm.W.items():
        assert torch.equal(W.grad, admm.rho * (W.detach() - admm.U[name]))
    assert residuals.primal_relative != residuals.dual_relative


def test_balancing_rests_while_nothing_is_pruned() -> None:
    # Gamma = 0 makes the relative dual residual infinite; rho would fall with every step, and
    # mu / rho rise, though there is nothing to balance.
    model = network()
    admm = ADMM(model, L0(), rho=1.0, mu=1e-9, balancing=ResidualBalancing())
    for seed in range(3):
        shaken(model, seed)
        admm.step()
    assert admm.rho == 1.0


@pytest.mark.parametrize("value", [1.0, 0.5, -1, math.nan, "2"])
def test_balancing_that_balances_nothing_is_refused(value: object) -> None:
    with pytest.raises(BadInput, match="The balancing ratio must be"):
        ResidualBalancing(ratio=value)
    with pytest.raises(BadInput, match="The balancing factor must be"):
        ResidualBalancing(factor=value)


def test_flips_count_blocks_that_die_and_blocks_that_come_back() -> None:
    """W stands still: at l0 a block below the threshold dies, then V = 2 W brings it back."""
    layer = nn.Linear(2, 3, bias=False)
    with torch.no_grad():
        layer.weight.copy_(torch.tensor([[0.3, 0.0], [0.7, 0.0], [2.0, 0.0]]))
    admm = ADMM(layer, L0(), rho=1.0, mu=0.5)  # threshold 1
    assert [admm.step().flipped for _ in range(4)] == [2, 1, 1, 2]
