"""Which weights survive: zeros that hold through every optimizer, and are released after."""

import contextlib
import copy
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.optim import LBFGS, SGD, Adagrad, Adam, AdamW, NAdam, Optimizer, RMSprop, Rprop

from sparsepath import BadInput, Support
from sparsepath.storage import write_tensors

Make = Callable[[Iterable[nn.Parameter]], Optimizer]


class Noisy(Optimizer):
    """Moves every weight without asking its gradient, as some optimizers do."""

    def __init__(self, params: Iterable[nn.Parameter]) -> None:
        super().__init__(params, {})

    def step(self, closure: None = None) -> None:
        with torch.no_grad():
            for p in self.param_groups[0]["params"]:
                p.add_(0.01)


OPTIMIZERS: dict[str, Make] = {
    "SGD": lambda p: SGD(p, lr=0.1),
    "SGD, momentum, decay": lambda p: SGD(p, lr=0.1, momentum=0.9, weight_decay=0.1),
    "SGD, nesterov": lambda p: SGD(p, lr=0.1, momentum=0.9, nesterov=True, weight_decay=0.1),
    "Adam": lambda p: Adam(p, lr=0.01, weight_decay=0.1, amsgrad=True),
    "AdamW": lambda p: AdamW(p, lr=0.01),
    "AdamW, fused": lambda p: AdamW(p, lr=0.01, fused=True),
    "NAdam": lambda p: NAdam(p, lr=0.01),
    "RMSprop": lambda p: RMSprop(p, lr=0.01, momentum=0.9, centered=True, weight_decay=0.1),
    "Adagrad": lambda p: Adagrad(p, lr=0.1),
    "Rprop": lambda p: Rprop(p, lr=0.01),
    "LBFGS": lambda p: LBFGS(p, lr=0.5, max_iter=4, line_search_fn="strong_wolfe"),
    "LBFGS, plain": lambda p: LBFGS(p, lr=0.1, max_iter=4),
    "Noisy": Noisy,
}
every_optimizer = pytest.mark.parametrize("make", OPTIMIZERS.values(), ids=OPTIMIZERS)


def network(seed: int = 0) -> nn.Sequential:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Conv2d(1, 4, 3), nn.Tanh(), nn.Flatten(), nn.Linear(16, 3))


torch.manual_seed(1)
X, Y = torch.randn(20, 1, 4, 4), torch.randint(3, (20,))


def support() -> Support:
    """Half of the filters and a third of the units, as masks that broadcast."""
    filters = torch.tensor([True, False, True, False]).view(4, 1, 1, 1)
    return Support({"0.weight": filters, "3.weight": torch.tensor([[True], [False], [True]])})


def dead(model: nn.Sequential) -> Tensor:
    return torch.cat([model[0].weight[1::2].flatten(), model[3].weight[1].flatten()])


def living(model: nn.Sequential) -> Tensor:
    return torch.cat([model[0].weight[::2].flatten(), model[3].weight[::2].flatten()])


def descend(model: nn.Module, optimizer: Optimizer, steps: int = 5) -> list[float]:
    """Plain training; also gives the largest dead weight that any evaluation of the loss saw."""
    seen = []

    def closure() -> Tensor:
        seen.append(float(dead(model).detach().abs().max()))
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(X), Y)
        loss.backward()
        return loss

    for _ in range(steps):
        if isinstance(optimizer, LBFGS):
            optimizer.step(closure)
        else:
            closure()
            optimizer.step()
    return seen


@every_optimizer
@pytest.mark.parametrize("stale", [False, True])
def test_zeros_hold_exactly_and_the_others_move(make: Make, stale: bool) -> None:
    model = network()
    optimizer = make(list(model.parameters()))
    if stale:  # momentum and curvature from before the support
        descend(model, optimizer)
        assert dead(model).all()
    before = living(model).detach().clone()
    with support().held(model, optimizer):
        seen = descend(model, optimizer)
        assert not dead(model).any()
    assert max(seen) == 0  # nor did any evaluation within a step see one move
    assert bool((living(model) != before).all())


@every_optimizer
def test_the_support_is_released_afterwards(make: Make) -> None:
    model = network()
    optimizer = make(list(model.parameters()))
    with contextlib.suppress(RuntimeError), support().held(model, optimizer):
        descend(model, optimizer, 1)
        raise RuntimeError
    assert not dead(model).any()
    descend(model, optimizer, 2)
    assert dead(model).all()
    assert not model[0].weight._backward_hooks
    assert not optimizer._optimizer_step_post_hooks


@every_optimizer
def test_training_is_as_if_the_dead_weights_did_not_exist(make: Make) -> None:
    # A model that never had them: the same network, with dead weights no parameters at all.
    whole, small = network(), network()
    support().impose(small)
    free = [p.detach().clone() for p in (small[0].weight[::2], small[3].weight[::2])]
    free = [nn.Parameter(p) for p in free]
    rest = [nn.Parameter(small[i].bias.detach().clone()) for i in (0, 3)]
    own, other = make(list(whole.parameters())), make([*free, *rest])

    def loss_of_small() -> Tensor:
        filters = torch.zeros(4, 1, 3, 3).index_copy(0, torch.tensor([0, 2]), free[0])
        units = torch.zeros(3, 16).index_copy(0, torch.tensor([0, 2]), free[1])
        hidden = nn.functional.conv2d(X, filters, rest[0]).tanh().flatten(1)
        return nn.functional.cross_entropy(hidden @ units.T + rest[1], Y)

    def closure() -> Tensor:
        other.zero_grad()
        loss = loss_of_small()
        loss.backward()
        return loss

    for _ in range(5):
        if isinstance(other, LBFGS):
            other.step(closure)
        else:
            closure()
            other.step()
    with support().held(whole, own):
        descend(whole, own)
    torch.testing.assert_close(whole[0].weight[::2], free[0], rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(whole[3].weight[::2], free[1], rtol=1e-4, atol=1e-5)


def test_dead_weights_have_no_gradient_so_that_clipping_does_not_count_them() -> None:
    model = network()
    optimizer = SGD(model.parameters(), lr=0.1)
    with support().held(model, optimizer):
        nn.functional.cross_entropy(model(X), Y).backward()
        assert not model[0].weight.grad[1::2].any()
        assert model[0].weight.grad[::2].all()


def test_the_optimizer_forgets_what_it_knew_of_dead_weights() -> None:
    model = network()
    optimizer = SGD(model.parameters(), lr=0.1, momentum=0.9)
    descend(model, optimizer)
    kept = optimizer.state[model[0].weight]["momentum_buffer"].clone()
    with support().held(model, optimizer):
        momentum = optimizer.state[model[0].weight]["momentum_buffer"]
        assert not momentum[1::2].any()
        assert not model[0].weight.grad[1::2].any()
        assert torch.equal(momentum[::2], kept[::2])
    model.zero_grad()
    for p in model.parameters():
        p.grad = torch.zeros_like(p)
    optimizer.step()  # released, and nothing left to push them
    assert not dead(model).any()


def test_zeros_hold_under_amp_and_accumulation() -> None:
    model = network()
    optimizer = AdamW(model.parameters(), lr=0.01)
    scaler = torch.amp.GradScaler("cpu")
    before = living(model).detach().clone()
    with support().held(model, optimizer):
        for _ in range(3):
            optimizer.zero_grad()
            for part in (slice(0, 10), slice(10, 20)):
                with torch.autocast("cpu", torch.bfloat16):
                    loss = nn.functional.cross_entropy(model(X[part]), Y[part])
                scaler.scale(loss).backward()
            scaler.unscale_(optimizer)
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            scaler.step(optimizer)
            scaler.update()
            assert not dead(model).any()
    assert bool((living(model) != before).all())


def test_an_infinite_gradient_of_a_dead_weight_is_none() -> None:
    layer = nn.Linear(2, 2, bias=False)
    optimizer = SGD(layer.parameters(), lr=0.1)
    with Support({"weight": torch.tensor([[True], [False]])}).held(layer, optimizer):
        (layer.weight * torch.tensor([[1.0], [torch.inf]])).sum().backward()
        assert layer.weight.grad.tolist() == [[1, 1], [0, 0]]


def test_gradients_from_before_are_masked_too() -> None:
    model = network()
    optimizer = SGD(model.parameters(), lr=0.1)
    nn.functional.cross_entropy(model(X), Y).backward()
    with support().held(model, optimizer):
        assert not model[3].weight.grad[1].any()
        optimizer.step()
        assert not dead(model).any()


def test_a_frozen_weight_is_held_too() -> None:
    model = network()
    model[0].requires_grad_(False)
    optimizer = SGD(model[3].parameters(), lr=0.1)
    with support().held(model, optimizer):
        descend(model, optimizer)
    assert not dead(model).any()


def test_impose_zeroes_what_is_outside_and_nothing_else() -> None:
    model = network()
    before = copy.deepcopy(model.state_dict())
    support().impose(model)
    assert not dead(model).any()
    assert not dead(model).signbit().any()
    assert torch.equal(model[0].weight[::2], before["0.weight"][::2])
    assert torch.equal(model[3].weight[::2], before["3.weight"][::2])
    assert torch.equal(model[3].bias, before["3.bias"])


def test_an_empty_support_does_nothing() -> None:
    one, other = network(), network()
    free, held = (Adam(model.parameters(), lr=0.01) for model in (one, other))
    descend(one, free)
    Support({}).impose(other)
    with Support({}).held(other, held):
        descend(other, held)
    for mine, its in zip(one.parameters(), other.parameters(), strict=True):
        assert torch.equal(mine, its)


def test_a_support_is_a_mapping() -> None:
    own = support()
    assert list(own) == ["0.weight", "3.weight"]
    assert len(own) == 2
    assert own["3.weight"].tolist() == [[True], [False], [True]]
    assert "0.bias" not in own
    assert repr(own) == "Support(0.weight: 2/4, 3.weight: 2/3)"


def test_supports_are_equal_where_the_same_weights_survive() -> None:
    other = dict(support())
    assert support() == Support(other)
    other["3.weight"] = torch.tensor([[True], [True], [True]])
    assert support() != Support(other)
    assert support() != Support({"0.weight": support()["0.weight"]})
    assert support() != Support({**support(), "3.weight": torch.ones(3, 16, dtype=torch.bool)})
    assert support() != 3
    with pytest.raises(TypeError):
        hash(support())


def test_a_support_goes_to_a_file_and_back(tmp_path: Path) -> None:
    path = tmp_path / "folder" / "support.safetensors"
    support().save(path)
    assert Support.load(path) == support()
    assert Support.load(str(path))["0.weight"].dtype == torch.bool
    assert [p.name for p in path.parent.iterdir()] == [path.name]
    Support({}).save(path)
    assert Support.load(path) == Support({})


def test_masks_that_share_memory_can_be_saved(tmp_path: Path) -> None:
    mask = torch.tensor([[True], [False]])
    Support({"a": mask, "b": mask.expand(2, 3)}).save(tmp_path / "s")
    assert Support.load(tmp_path / "s")["b"].tolist() == [[True] * 3, [False] * 3]


def test_a_file_that_holds_no_support_is_refused(tmp_path: Path) -> None:
    write_tensors(tmp_path / "other", {"a": torch.ones(2)}, {"format": "something else"})
    with pytest.raises(BadInput, match="holds no support: its format is 'something else'"):
        Support.load(tmp_path / "other")
    (tmp_path / "torn").write_bytes(b"torn")
    for name in ("torn", "none"):
        with pytest.raises(BadInput, match=f"{name}' cannot be read as safetensors"):
            Support.load(tmp_path / name)


@pytest.mark.parametrize(
    ("mask", "given"), [(torch.ones(3), "torch.float32"), ([[True]], "list"), (None, "NoneType")]
)
def test_a_mask_that_is_not_boolean_is_refused(mask: object, given: str) -> None:
    with pytest.raises(BadInput, match=f"mask of 'w' must be a boolean tensor, not {given}"):
        Support({"w": mask})


@pytest.mark.parametrize(
    ("masks", "sentence"),
    [
        ({"1.weight": torch.ones(1, dtype=torch.bool)}, "names '1.weight', which this Sequential"),
        ({"3.weight": torch.ones(5, 1, dtype=torch.bool)}, r"shape \(5, 1\).*weight's \(3, 16\)"),
        ({"3.weight": torch.ones(2, 3, 16, dtype=torch.bool)}, r"shape \(2, 3, 16\), which does"),
    ],
)
def test_a_support_of_another_model_is_refused_and_nothing_changes(
    masks: dict[str, Tensor], sentence: str
) -> None:
    model = network()
    before = copy.deepcopy(model.state_dict())
    wrong = Support({"0.weight": torch.zeros(4, 1, 1, 1, dtype=torch.bool), **masks})
    with pytest.raises(BadInput, match=sentence):
        wrong.impose(model)
    optimizer = SGD(model.parameters(), lr=0.1)
    with pytest.raises(BadInput, match=sentence), wrong.held(model, optimizer):
        pass
    assert all(torch.equal(before[key], value) for key, value in model.state_dict().items())


def test_what_is_no_optimizer_of_this_model_is_refused() -> None:
    model = network()
    with pytest.raises(BadInput, match="needs a torch optimizer, not list"):
        support().held(model, [SGD(model.parameters(), lr=0.1)]).__enter__()
    strange = SGD(network().parameters(), lr=0.1)
    with pytest.raises(BadInput, match="trains none of the support's weights"):
        support().held(model, strange).__enter__()
    assert dead(model).all()
