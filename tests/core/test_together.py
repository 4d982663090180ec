"""Weights taken at once, as on a GPU, go the same way as one by one, in few launches."""

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from sparsepath import ADMM, L0, L1, L12, Penalty, TopK, admm, mean_norm_guard, penalties
from sparsepath.guard import Guard
from sparsepath.lab.models import CNN, LowRankCNN, Network
from sparsepath.penalties import Radial
from sparsepath.together import lengths, numbers, together

from .live import same, shaken


def all_at_once(tensors: Mapping[str, Tensor]) -> list[list[str]]:
    return [list(tensors)]


def network(layers: int = 3, *, mixed: bool = False) -> nn.Sequential:
    torch.manual_seed(0)
    row = [nn.Conv2d(4, 4, 3) for _ in range(layers)]
    model = nn.Sequential(*row, nn.Flatten(), nn.Linear(16, 3))
    if mixed:
        model[1].to(torch.bfloat16)  # whose F and Gamma are float32 all the same
        return model
    return model.to(memory_format=torch.channels_last)


def walked(
    penalty: Penalty, guard: Guard | None, *, mixed: bool, device: str = "cpu"
) -> tuple[Any, ...]:
    model = network(mixed=mixed).to(device)
    step = penalty.step_at(0.45) if isinstance(penalty, Radial) else 0.0
    own = ADMM(model, penalty, rho=0.3, mu=0.3 * step, guard=guard)
    found = []
    for seed in range(3):
        shaken(model, seed)
        found.append(own.step())
    return found, own.state_dict(), dict(own.U)


@pytest.mark.parametrize(
    ("penalty", "guard"),
    [
        (L0(), None),
        (L0(), mean_norm_guard(0.2)),
        (L1(), None),
        (L12(), mean_norm_guard(0.2)),
        (TopK(0.4, together=True), None),
    ],
    ids=repr,
)
@pytest.mark.parametrize("mixed", [False, True])
def test_all_at_once_is_as_one_by_one(
    penalty: Penalty, guard: Guard | None, mixed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    residuals, *states = walked(penalty, guard, mixed=mixed)
    monkeypatch.setattr(admm, "together", all_at_once)
    at_once, *their_states = walked(penalty, guard, mixed=mixed)
    assert at_once == residuals
    assert residuals[0].flipped > 0
    assert all(same(one, other) for one, other in zip(states, their_states, strict=True))
    assert bool(guard) == any(each.guarded for each in residuals)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
@pytest.mark.parametrize("penalty", [L0(), L1(), L12()], ids=repr)
@pytest.mark.parametrize("mixed", [False, True])
def test_a_gpu_goes_the_same_way(penalty: Penalty, mixed: bool) -> None:
    guard = mean_norm_guard(0.2)
    residuals, state, U = walked(penalty, guard, mixed=mixed)
    others, their_state, their_U = walked(penalty, guard, mixed=mixed, device="cuda")
    for one, other in zip(residuals, others, strict=True):
        assert other.flipped == one.flipped
        assert (other.primal, other.dual) == pytest.approx((one.primal, one.dual), rel=1e-5)
    for kind, theirs in ((state["F"], their_state["F"]), (U, their_U)):
        for name, tensor in kind.items():
            torch.testing.assert_close(theirs[name].cpu(), tensor)


class Launches(TorchDispatchMode):
    """Counts what is not a mere view."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: Counter[str] = Counter()

    def __torch_dispatch__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        if not function.is_view and function.overloadpacket.__name__ not in (
            "scalar_tensor",  # a number, made where Python is
            "promote_types",
        ):
            self.seen[str(function)] += 1
        return function(*args, **(kwargs or {}))


@pytest.mark.parametrize(
    ("network", "penalty", "most"),
    [(CNN, L0(), 60), (CNN, L1(), 70), (LowRankCNN, L0(), 92), (LowRankCNN, L1(), 110)],
    ids=str,
)
def test_a_step_takes_few_launches_on_a_gpu(
    network: type[Network], penalty: Penalty, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(admm, "together", all_at_once)
    no_kernel: Callable[..., bool] = lambda *args, **options: False
    monkeypatch.setattr(penalties, "threshold_blocks", no_kernel)
    own = ADMM(network(10, 3), penalty, rho=0.1, mu=1e-4, layers=network.sparsified)
    own.step()
    with Launches() as counted:
        own.step()
    assert 0 < counted.seen.total() <= most, counted.seen


def test_equal_norms_live_in_the_order_of_the_layers_whichever_are_taken_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    model = nn.Sequential(*(nn.Linear(2, 2, bias=False) for _ in range(3)))
    for layer in model:
        nn.init.ones_(layer.weight)
    monkeypatch.setattr(admm, "together", lambda tensors: [[name] for name in reversed(tensors)])
    own = ADMM(model, TopK(3, together=True), rho=1.0)
    own.step()
    alive = [int(own.support()[f"{number}.weight"].sum()) for number in range(3)]
    assert alive == [2, 1, 0]


def test_a_gpu_takes_all_that_it_holds_at_once_and_a_cpu_one_after_the_other() -> None:
    places = {"a": "cpu", "b": "meta", "c": "cpu", "d": "meta"}
    tensors = {name: torch.empty(2, device=place) for name, place in places.items()}
    assert together(tensors) == [["a"], ["b", "d"], ["c"]]


def test_lengths_are_norms_that_no_half_precision_rounds_or_overflows() -> None:
    rows = [torch.full((10000,), 200.0, dtype=torch.float16), torch.full((4,), 1e-30)]
    assert numbers(lengths(rows)) == pytest.approx([20000.0, 2e-30], rel=1e-6, abs=0)
