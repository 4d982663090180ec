"""ADMM's state: in place, in float32 or better, saved, loaded, and refused when another's."""

import copy
from collections.abc import Callable

import pytest
import torch
from torch import nn

from sparsepath import (
    ADMM,
    L0,
    L1,
    MCP,
    BadInput,
    ResidualBalancing,
    TopK,
    kernels,
    outputs,
    weighted,
)
from sparsepath.blocks import Blocks

from .live import network, same, shaken, started


def _pointers(admm: ADMM) -> list[int]:
    return [t.data_ptr() for state in (admm.F, admm.Gamma, admm.U) for t in state.values()]


def test_state_is_updated_in_place() -> None:
    model = network()
    admm = started(model)
    pointers, state = _pointers(admm), admm.state_dict()
    admm.step()
    assert _pointers(admm) == pointers
    admm.restart()
    assert _pointers(admm) == pointers
    admm.load_state_dict(state)
    assert _pointers(admm) == pointers
    admm.rho = 5.0
    assert _pointers(admm) == pointers


def test_u_is_f_minus_gamma_over_rho_after_every_change() -> None:
    model = network()
    admm = started(model)

    def consistent() -> bool:
        return all(
            torch.allclose(admm.U[name], admm.F[name] - admm.Gamma[name] / admm.rho)
            for name in admm.W
        )

    state = admm.state_dict()
    assert consistent()
    admm.rho = 7.0
    assert consistent()
    admm.load_state_dict(state)
    assert admm.rho == 0.3
    assert consistent()
    admm.restart()
    assert consistent()


def test_restart_sets_f_to_w_and_gamma_to_zero() -> None:
    model = network()
    admm = started(model)
    assert any(Gamma.any() for Gamma in admm.Gamma.values())
    admm.restart()
    for name, W in admm.W.items():
        assert torch.equal(admm.F[name], W)
        assert not admm.Gamma[name].any()
    assert admm.proximity().item() == 0


def test_the_models_own_state_is_untouched() -> None:
    model = network()
    keys, hooks = list(model.state_dict()), len(model._forward_hooks)
    kept = copy.deepcopy(model.state_dict())
    admm = ADMM(model, L0(), rho=1.0, mu=10.0)
    admm.proximity()
    admm.step()
    admm.support()
    assert list(model.state_dict()) == keys
    assert len(model._forward_hooks) == hooks
    assert all(torch.equal(kept[key], value) for key, value in model.state_dict().items())


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_state_is_float32_for_a_half_precision_model(dtype: torch.dtype) -> None:
    model = network().to(dtype)
    admm = started(model)
    for state in (admm.F, admm.Gamma, admm.U):
        assert {t.dtype for t in state.values()} == {torch.float32}
    admm.proximity().backward()
    assert model[0].weight.grad.dtype == dtype
    assert admm.step().primal > 0


def test_a_model_of_mixed_precision_is_pulled_in_each_ones_own() -> None:
    model = nn.Sequential(nn.Linear(3, 3).double(), nn.Linear(3, 3).bfloat16(), nn.Linear(3, 3))
    admm = started(model)
    admm.proximity().backward()
    grad = model[0].weight.grad
    assert torch.equal(grad, 0.3 * (model[0].weight.detach() - admm.U["0.weight"]))
    assert admm.F["0.weight"].dtype == torch.float64


def test_the_memory_order_of_a_weight_is_kept() -> None:
    model = network().to(memory_format=torch.channels_last)
    assert started(model).F["0.weight"].is_contiguous(memory_format=torch.channels_last)


def test_f_gamma_and_u_cannot_be_rebound() -> None:
    admm = ADMM(network(), L0(), rho=1.0)
    for mapping in (admm.F, admm.Gamma, admm.U):
        assert list(mapping) == ["0.weight", "3.weight"]
        with pytest.raises(TypeError):
            mapping["0.weight"] = torch.zeros(1)


def test_state_goes_round_and_on_bit_by_bit() -> None:
    model = network()
    admm = started(model, MCP(3.0), fit_shape=True, balancing=ResidualBalancing(1.01, 2.0))
    state, twin = copy.deepcopy(admm.state_dict()), copy.deepcopy(model)
    # Files of tensors come back in their own order.
    state["F"] = dict(reversed(state["F"].items()))
    other = ADMM(twin, MCP(3.0), rho=9.0, fit_shape=True, balancing=ResidualBalancing(1.01, 2.0))
    other.load_state_dict(state)
    assert (other.mu, other.rho) == (admm.mu, admm.rho)
    for seed in range(3):
        shaken(model, seed)
        shaken(twin, seed)
        assert admm.step() == other.step()
    for mine, its in ((admm.F, other.F), (admm.Gamma, other.Gamma), (admm.U, other.U)):
        assert same(dict(mine), dict(its))


def test_a_projections_count_goes_with_the_state() -> None:
    model = network()
    admm = ADMM(model, TopK(3), rho=1.0)
    admm.position = 2
    other = ADMM(model, TopK(1), rho=1.0)
    other.load_state_dict(admm.state_dict())
    assert other.penalty == TopK(2)
    assert other.position == 2


def test_state_is_a_copy() -> None:
    model = network()
    admm = started(model)
    state = admm.state_dict()
    kept = copy.deepcopy(state)
    admm.step()
    assert same(state, kept)


def _cost(layer: nn.Module, blocks: Blocks) -> float:
    return 2.0


def _cut(layer: nn.Module) -> Blocks | None:
    return outputs(layer)


def test_state_names_its_blocks_alike_in_every_process() -> None:
    for partition, name in ((weighted(kernels, _cost), "weighted(kernels, _cost)"), (_cut, "_cut")):
        assert ADMM(network(), L0(), rho=1.0, blocks=partition).state_dict()["blocks"] == name


def _other_shape() -> nn.Sequential:
    return nn.Sequential(nn.Conv2d(2, 5, 3), nn.ReLU(), nn.Flatten(), nn.Linear(16, 3))


@pytest.mark.parametrize(
    ("other", "sentence"),
    [
        (lambda: ADMM(network(), L1(), rho=1.0), r"made with penalty L1\(\), not with L0\(\)"),
        (lambda: ADMM(network(), MCP(2.0), rho=1.0), r"made with penalty MCP\(theta=2.0\)"),
        (lambda: ADMM(network(), TopK(1), rho=1.0), "made with penalty TopK"),
        (
            lambda: ADMM(network(), L0(), rho=1.0, blocks=outputs),
            "blocks outputs, not with kernels",
        ),
        (lambda: ADMM(nn.Linear(2, 2), L0(), rho=1.0), r"another model.*\['weight'\], not for"),
        (lambda: ADMM(network(), L0(), rho=1.0, layers="0"), r"choice of layers.*\['0.weight'\]"),
        (lambda: ADMM(_other_shape(), L0(), rho=1.0), r"'0.weight' has shape \(5, 2, 3, 3\), not"),
    ],
)
def test_state_of_another_is_refused_and_nothing_changes(
    other: Callable[[], ADMM], sentence: str
) -> None:
    admm = started(network(), L0())
    before = admm.state_dict()
    with pytest.raises(BadInput, match=sentence):
        admm.load_state_dict(other().state_dict())
    assert same(before, admm.state_dict())


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"rho": 0.0}, "rho must be"),
        ({"position": -1.0}, "mu must be"),
        ({"units": {}}, r"it has units for \[\], not for"),
    ],
)
def test_damaged_state_is_refused_and_nothing_changes(
    change: dict[str, object], sentence: str
) -> None:
    admm = started(network(), L0())
    before = admm.state_dict()
    with pytest.raises(BadInput, match=sentence):
        admm.load_state_dict({**ADMM(network(), L0(), rho=1.0).state_dict(), **change})
    assert same(before, admm.state_dict())


def test_what_is_no_state_is_refused() -> None:
    with pytest.raises(BadInput, match=r"no state of an ADMM: it lacks \['F', 'Gamma', 'blocks'"):
        ADMM(network(), L0(), rho=1.0).load_state_dict({"rho": 1.0})


# Shapes in units of the median norm.


def test_fitted_shapes_count_in_each_layers_median_norm() -> None:
    model = nn.Sequential(nn.Linear(1, 3, bias=False), nn.Linear(3, 3, bias=False))
    with torch.no_grad():
        model[0].weight.copy_(torch.tensor([[0.1], [0.2], [0.7]]))
        model[1].weight.copy_(torch.diag(torch.tensor([0.0, 20.0, 30.0])))  # of those that live
    admm = ADMM(model, MCP(3.0), rho=1.0, fit_shape=True)
    thetas = [penalty.theta for penalty in admm.penalties.values()]
    assert thetas == pytest.approx([0.6, 60.0])
    assert [p.theta for p in ADMM(model, MCP(3.0), rho=1.0).penalties.values()] == [3.0, 3.0]
    nn.init.constant_(model[0].weight, 5.0)
    admm.restart()
    assert admm.penalties["0.weight"].theta == pytest.approx(15.0)


def test_a_layer_without_living_blocks_keeps_its_unit() -> None:
    layer = nn.Linear(1, 3, bias=False)
    nn.init.constant_(layer.weight, 0.5)
    admm = ADMM(layer, MCP(3.0), rho=1.0, fit_shape=True)
    nn.init.zeros_(layer.weight)
    admm.restart()
    assert admm.penalties["weight"].theta == pytest.approx(1.5)
    assert not admm.F["weight"].any()


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"units": dict.fromkeys(started(network()).W, "wide")}, "must be a number above zero"),
        ({"F": 3}, "has F for 3"),
        ({"rho": float("nan")}, "rho must be a finite number"),
    ],
)
def test_damaged_state_is_refused_before_anything_changes(
    change: dict[str, object], sentence: str
) -> None:
    admm = started(network())
    before = admm.state_dict()
    with pytest.raises(BadInput, match=sentence):
        admm.load_state_dict({**before, **change})
    assert same(before, admm.state_dict())


def test_state_that_is_not_finite_or_no_mapping_is_refused() -> None:
    admm = started(network())
    state = admm.state_dict()
    next(iter(state["Gamma"].values())).view(-1)[0] = float("nan")
    with pytest.raises(BadInput, match=r"This state is damaged: its Gamma of .* is not finite"):
        admm.load_state_dict(state)
    with pytest.raises(BadInput, match="This is no state of an ADMM: None"):
        admm.load_state_dict(None)  # type: ignore[arg-type]


@pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")  # of torch's own imports
def test_a_compiled_model_keeps_its_own_names() -> None:
    model = network()
    admm = ADMM(torch.compile(model), L0(), rho=1.0, mu=1.0)  # type: ignore[arg-type]
    assert list(admm.F) == list(ADMM(model, L0(), rho=1.0).F)
    admm.step()
    admm.support().impose(model)


def test_a_replaced_parameter_is_noticed() -> None:
    model = network()
    admm = started(model)
    model.load_state_dict(copy.deepcopy(model.state_dict()), assign=True)
    with pytest.raises(BadInput, match="was replaced by another parameter: build a new ADMM"):
        admm.step()


@pytest.mark.parametrize("given", ["kernels", True, ResidualBalancing])
@pytest.mark.parametrize("what", ["blocks", "guard", "balancing"])
def test_what_must_be_a_function_is_checked(what: str, given: object) -> None:
    with pytest.raises(BadInput, match=f"{what} must be a function such as"):
        ADMM(network(), L0(), rho=1.0, **{what: given})  # type: ignore[arg-type]
