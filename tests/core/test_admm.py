"""ADMM beside a live model: its pull, its two steps and what it refuses."""

import math
from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from tracing import untraced

from sparsepath import (
    ADMM,
    L0,
    L1,
    BadInput,
    Penalty,
    Stage,
    kernels,
    outputs,
    sparsity,
    sqrt_size,
    tiles,
    weighted,
)
from sparsepath.blocks import Blocks

from . import reference
from .cases import PENALTIES
from .live import network, same, shaken, started
from .quadratic import RATE, Quadratic, descend, together

PAPER = {"l1": (L1(), reference.soft, 0.6), "l0": (L0(), reference.hard, 0.3)}


# The pull.


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_gradient_of_proximity_is_exactly_rho_times_w_minus_u(dtype: torch.dtype) -> None:
    model = network().to(dtype)
    admm = started(model)
    admm.proximity().backward()
    for name, W in admm.W.items():
        assert W.grad is not None
        assert torch.equal(W.grad, admm.rho * (W.detach() - admm.U[name]))
        assert W.grad.norm() > 0
    assert model[0].bias.grad is None


def test_the_value_of_proximity_is_half_rho_times_the_squared_distance() -> None:
    model = network()
    admm = started(model)
    squares = sum(
        float(w - f + g / 0.3) ** 2
        for name, W in admm.W.items()
        for w, f, g in zip(
            W.detach().flatten().double(),
            admm.F[name].flatten().double(),
            admm.Gamma[name].flatten().double(),
            strict=True,
        )
    )
    assert admm.proximity().item() == pytest.approx(0.15 * squares, rel=1e-5)


def test_the_pull_is_nothing_before_the_first_step() -> None:
    admm = ADMM(network(), L0(), rho=2.0)
    assert admm.proximity().item() == 0


def test_the_pull_carries_no_graph_and_does_not_grow_with_the_iterations() -> None:
    model = network()
    admm = ADMM(model, L1(), rho=0.3, mu=0.03)
    sizes = []
    for seed in range(4):
        shaken(model, seed)
        admm.proximity().backward()
        admm.step()
        for state in (admm.F, admm.Gamma, admm.U):
            assert not any(t.requires_grad or t.grad_fn for t in state.values())
        sizes.append(_graph_size(admm.proximity()))
        model.zero_grad()
        admm.proximity().backward()
        for name, W in admm.W.items():  # no path to W but the one in W - U
            assert torch.equal(W.grad, admm.rho * (W.detach() - admm.U[name]))
    assert len(set(sizes)) == 1


def _graph_size(tensor: Tensor) -> int:
    todo, seen = [tensor.grad_fn], set()
    while todo:
        node = todo.pop()
        if node is not None and node not in seen:
            seen.add(node)
            todo += [after for after, _ in node.next_functions]
    return len(seen)


@untraced
def test_a_compiled_training_step_sees_each_new_u_and_rho() -> None:
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    model = network()
    admm = ADMM(model, L1(), rho=0.3, mu=0.03)
    compiled = torch.compile(admm.proximity, backend="aot_eager", fullgraph=True)
    for seed in range(3):
        shaken(model, seed)
        assert compiled().item() == pytest.approx(admm.proximity().item(), rel=1e-6)
        admm.step()
        admm.rho *= 2
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == 1


# The two steps.


@pytest.mark.parametrize("kind", PAPER)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_iterations_equal_the_plain_reference_dual_included(kind: str, dtype: torch.dtype) -> None:
    penalty, shrink, mu = PAPER[kind]
    model = Quadratic(dtype=dtype)
    rho = 0.7
    admm = ADMM(model, penalty, rho=rho, mu=mu)
    W, F, Gamma = together(admm.W), together(admm.F), together(admm.Gamma)
    close = (
        {"rtol": 1e-11, "atol": 1e-12} if dtype == torch.float64 else {"rtol": 2e-4, "atol": 1e-5}
    )
    assert W == F
    assert not any(Gamma)
    for iteration in range(5):
        descend(model, Stage(0, mu, iteration, 3, admm.proximity))
        for _ in range(3):
            pull = [rho * (w - f) + g for w, f, g in zip(W, F, Gamma, strict=True)]
            slope = model.gradient(W)
            W = [w - RATE * (s + p) for w, s, p in zip(W, slope, pull, strict=True)]
        residuals = admm.step()
        F, Gamma, primal, dual = reference.iterate(W, F, Gamma, model.blocks(), mu, rho, shrink)
        np.testing.assert_allclose(together(admm.W), W, **close)
        np.testing.assert_allclose(together(admm.F), F, **close)
        np.testing.assert_allclose(together(admm.Gamma), Gamma, **close)
        assert residuals.primal == pytest.approx(primal, rel=close["rtol"])
        assert residuals.dual == pytest.approx(dual, rel=close["rtol"])
    assert 0 < sum(f == 0 for f in F) < len(F)


def test_mu_zero_is_the_dense_network() -> None:
    model = network()
    admm = ADMM(model, L0(), rho=1.0)
    shaken(model)
    assert admm.step().primal == 0
    assert all(torch.equal(admm.F[name], W) for name, W in admm.W.items())
    assert all(bool(mask.all()) for mask in admm.support().values())


@pytest.mark.parametrize("partition", [kernels, outputs, weighted(outputs, sqrt_size)])
def test_on_a_convex_problem_admm_reaches_the_proximal_gradient_optimum(
    partition: Callable[[nn.Module], Blocks | None],
) -> None:
    generator = torch.Generator().manual_seed(0)
    X = torch.randn(40, 6, generator=generator, dtype=torch.float64)
    Y = X[:, :3] @ torch.randn(3, 5, generator=generator, dtype=torch.float64)
    Y[:, 3:] *= 0.05
    layer = nn.Linear(6, 5, bias=False, dtype=torch.float64)
    cost = math.sqrt(6) if isinstance(partition, weighted) else 1.0
    mu = 0.3

    # Plain ISTA on the rows, in numpy.
    x, y, W = X.numpy(), Y.numpy(), np.zeros((5, 6))
    L = np.linalg.eigvalsh(x.T @ x / 40)[-1]
    for _ in range(3000):
        V = W - (W @ x.T - y.T) @ x / 40 / L
        norms = np.linalg.norm(V, axis=1, keepdims=True)
        W = V * np.maximum(0, 1 - mu * cost / L / norms)
    assert 0 < (W == 0).all(axis=1).sum() < 5

    rho = 0.5
    admm = ADMM(layer, L1(), rho=rho, mu=mu, blocks=partition)
    optimizer = torch.optim.SGD(layer.parameters(), lr=1 / (L + rho))
    for _ in range(80):
        for _ in range(25):
            optimizer.zero_grad()
            loss = (layer(X) - Y).square().sum() / 80
            (loss + admm.proximity()).backward()
            optimizer.step()
        residuals = admm.step()
    np.testing.assert_allclose(admm.F["weight"].numpy(), W, atol=1e-6)
    assert residuals.primal < 1e-6
    # The dual is the loss's negative gradient: Gamma = -grad L(W) at the optimum.
    slope = (W @ x.T - y.T) @ x / 40
    np.testing.assert_allclose(admm.Gamma["weight"].numpy(), -slope, atol=1e-5)


def test_the_convex_optimum_is_an_independent_solvers() -> None:
    import cvxpy  # here, because it is slow to load

    generator = np.random.default_rng(0)
    x, y = generator.standard_normal((30, 4)), np.sign(generator.standard_normal(30))
    layer = nn.Linear(4, 1, bias=False, dtype=torch.float64)
    X, Y = torch.tensor(x), torch.tensor(y)
    admm = ADMM(layer, L1(), rho=0.5, mu=0.08, blocks=tiles(1, 2))
    optimizer = torch.optim.LBFGS(
        layer.parameters(), tolerance_grad=1e-12, tolerance_change=0, line_search_fn="strong_wolfe"
    )

    def closure() -> Tensor:
        optimizer.zero_grad()
        loss = nn.functional.softplus(-Y * layer(X)[:, 0]).mean() + admm.proximity()
        loss.backward()
        return loss

    for _ in range(60):
        optimizer.step(closure)
        admm.step()
    w = cvxpy.Variable(4)
    loss = cvxpy.sum(cvxpy.logistic(-cvxpy.multiply(y, x @ w))) / 30
    penalty = cvxpy.norm2(w[:2]) + cvxpy.norm2(w[2:])
    cvxpy.Problem(cvxpy.Minimize(loss + 0.08 * penalty)).solve()
    np.testing.assert_allclose(admm.F["weight"][0].numpy(), w.value, atol=1e-5)


def test_the_support_is_where_f_is_not_zero() -> None:
    layer = nn.Linear(2, 3, bias=False)
    with torch.no_grad():
        layer.weight.copy_(torch.tensor([[3.0, 4.0], [0.3, 0.4], [0.0, 2.0]]))
    admm = ADMM(layer, L0(), rho=1.0, mu=0.5)
    admm.step()
    assert admm.support()["weight"].tolist() == [[True], [False], [True]]
    nn.init.zeros_(layer.weight)  # of F, not of W
    assert admm.support()["weight"].tolist() == [[True], [False], [True]]


# Bad input.


@pytest.mark.parametrize("rho", [1e-40, 1e40])
def test_a_rho_that_weights_cannot_hold_is_refused(rho: float) -> None:
    with pytest.raises(BadInput, match=r"^rho must be from 1e-38 to 1e38, not "):
        ADMM(network(), L0(), rho=rho)
    admm = started(network())
    with pytest.raises(BadInput, match=r"^rho must be from 1e-38 to 1e38, not "):
        admm.rho = rho
    for most in (1e-38, 1e38):
        admm.rho = most
        admm.step()


@pytest.mark.parametrize("rho", [0, -1.0, math.nan, math.inf, "0.1", None, True])
def test_a_rho_that_pulls_nowhere_is_refused(rho: object) -> None:
    with pytest.raises(BadInput, match=r"^rho must be .*above zero, not "):
        ADMM(network(), L0(), rho=rho)
    admm = started(network())
    before = admm.state_dict()
    with pytest.raises(BadInput, match="rho must be"):
        admm.rho = rho
    assert same(before, admm.state_dict())


@pytest.mark.parametrize("mu", [-1e-9, math.nan, math.inf, "0.1", None])
def test_a_mu_that_is_no_weight_is_refused(mu: object) -> None:
    with pytest.raises(BadInput, match=r"^mu must be .*zero or more, not "):
        ADMM(network(), L0(), rho=1.0, mu=mu)
    admm = ADMM(network(), L0(), rho=1.0, mu=0.5)
    with pytest.raises(BadInput, match="mu must be"):
        admm.mu = mu
    assert admm.mu == admm.position == 0.5


def test_what_is_no_penalty_is_refused() -> None:
    with pytest.raises(BadInput, match=r"A penalty such as L0\(\) is needed, not <class"):
        ADMM(network(), L0, rho=1.0)


def test_what_is_no_model_is_refused() -> None:
    for given, shown in (("net.pt", "'net.pt'"), (None, "None")):
        with pytest.raises(BadInput, match=f"^model must be of the class Module, not {shown}.$"):
            ADMM(given, L0(), rho=1.0)  # type: ignore[arg-type]


@pytest.mark.parametrize("poison", [math.nan, math.inf, 1e20])
def test_weights_that_are_no_longer_finite_are_refused_before_anything_changes(
    poison: float,
) -> None:
    model = network()
    admm = started(model)
    before = admm.state_dict()
    with torch.no_grad():
        model[3].weight[0, 0] = poison
    with pytest.raises(BadInput, match=r"'3.weight' is no longer finite.*rho = 0.3"):
        admm.step()
    assert same(before, admm.state_dict())


def test_a_penalty_of_ones_own_needs_only_a_value_and_a_prox() -> None:
    class Clip(Penalty):
        def value(self, F: Tensor, blocks: Blocks) -> Tensor:
            return F.abs().amax()

        def prox(
            self, V: Tensor, blocks: Blocks, step: float, *, out: Tensor | None = None
        ) -> Tensor:
            return torch.clamp(V, -step, step, out=out)

    class Anew(Clip):
        """Gives a tensor of its own, which is never to be changed."""

        def prox(
            self, V: Tensor, blocks: Blocks, step: float, *, out: Tensor | None = None
        ) -> Tensor:
            given.append(torch.clamp(V, -step, step))
            kept.append(given[-1].clone())
            return given[-1]

    given: list[Tensor] = []
    kept: list[Tensor] = []
    for penalty in (Clip(), Anew()):
        admm = ADMM(network(), penalty, rho=1.0, mu=0.01)
        admm.step()
        assert max(F.abs().max().item() for F in admm.F.values()) == pytest.approx(0.01)
        assert admm.state_dict()["penalty"] == repr(admm.penalty)
    assert len(given) == 2
    assert all(torch.equal(one, other) for one, other in zip(given, kept, strict=True))


@pytest.mark.parametrize("kind", PENALTIES)
def test_every_penalty_runs(kind: str) -> None:
    model = network()
    admm = started(model, PENALTIES[kind].penalty(0.5))
    assert math.isfinite(admm.step().primal)
    assert sparsity(model, admm.blocks).of_blocks == 0
