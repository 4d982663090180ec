"""The engine against the loop anyone would write: the same losses, gradients and weights."""

import copy

import pytest
import torch
from torch import nn
from torch.nn import functional

from sparsepath import ADMM, L0, BadInput
from sparsepath.lab.engine import Engine, Lane, Optimizer
from sparsepath.lab.models import CNN, DigitNet

STEPS, BATCH = 20, 8
# bfloat16 keeps 8 bits: a product is off by 2^-9, and a loss of 2.3 by about 0.01.
GPU = pytest.param(
    "cuda",
    marks=[pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")],
)


def lane_and_twin(device: str, *, dropout: float = 0.0) -> tuple[Lane, nn.Module]:
    torch.manual_seed(0)
    network = CNN(dropout=dropout) if device == "cuda" else DigitNet(dropout=dropout)
    model = network.to(device).train()
    twin = copy.deepcopy(model)
    side, channels = (32, 3) if device == "cuda" else (12, 1)
    dtype = torch.bfloat16 if device == "cuda" else torch.float32
    lane = Lane(
        model,
        sparsified=[f"{layer}.weight" for layer in network.sparsified],
        example=torch.zeros(BATCH, side, side, channels, device=device, dtype=dtype),
        steps=STEPS,
    )
    lane.images.copy_(torch.randn(lane.images.shape))
    lane.labels.copy_(torch.randint(10, lane.labels.shape))
    lane.rates.copy_(torch.linspace(0.001, 0.01, STEPS))
    return lane, twin


def plain_losses(lane: Lane, twin: nn.Module, *, proximity, support=None) -> list[float]:
    """The same steps with torch's own SGD, in float32."""
    sgd = torch.optim.SGD(twin.parameters(), lr=0.0, momentum=0.9, weight_decay=5e-4)
    losses = []
    for step in range(STEPS):
        part = slice(step * BATCH, (step + 1) * BATCH)
        sgd.param_groups[0]["lr"] = float(lane.rates[step])
        sgd.zero_grad()
        images = lane.images[part].float().permute(0, 3, 1, 2)
        loss = functional.cross_entropy(twin(images), lane.labels[part])
        (loss + proximity()).backward()
        sgd.step()
        if support is not None:
            support.impose(twin)
        losses.append(float(loss.detach()))
    return losses


def engine_losses(engine: Engine, lane: Lane) -> list[float]:
    losses = []
    engine.cursor.zero_()
    for _ in range(STEPS):
        lane.loss.zero_()
        engine._replay()
        losses.append(float(lane.loss))
    return losses


@pytest.mark.parametrize("device", ["cpu", GPU])
def test_a_performance_step_is_sgd_on_the_loss_and_the_pull(device: str) -> None:
    lane, twin = lane_and_twin(device)
    layers = type(twin).sparsified
    admm = ADMM(twin, L0(), rho=0.5, mu=0.01, layers=layers)
    admm.step()  # so that U is not W
    lane.begin(U=admm.U, rho=admm.rho)
    before = lane.W.clone()
    losses = engine_losses(Engine([lane], Optimizer(batch=BATCH)), lane)
    assert not torch.equal(before, lane.W)
    tolerance = 1e-5 if device == "cpu" else 0.02
    expected = plain_losses(lane, twin, proximity=admm.proximity)
    assert losses == pytest.approx(expected, rel=tolerance, abs=tolerance)
    for own, other in zip(lane.model.parameters(), twin.parameters(), strict=True):
        torch.testing.assert_close(own, other, rtol=tolerance, atol=tolerance / 5)


@pytest.mark.parametrize("device", ["cpu", GPU])
def test_a_fine_tune_is_sgd_that_holds_the_support(device: str) -> None:
    lane, twin = lane_and_twin(device)
    admm = ADMM(twin, L0(), rho=1.0, layers=type(twin).sparsified)
    admm.mu = 0.02
    admm.step()
    support = admm.support()
    assert any((~mask).any() for mask in support.values())
    support.impose(twin)
    support.impose(lane.model)
    lane.begin(support=support)
    losses = engine_losses(Engine([lane], Optimizer(batch=BATCH)), lane)
    tolerance = 1e-5 if device == "cpu" else 0.02
    expected = plain_losses(lane, twin, proximity=lambda: 0.0, support=support)
    assert losses == pytest.approx(expected, rel=tolerance, abs=tolerance)
    weights = dict(lane.model.named_parameters())
    for name, mask in support.items():
        assert not weights[name][(~mask).expand_as(weights[name])].any()


@pytest.mark.parametrize("device", ["cpu", GPU])
def test_one_steps_gradient_is_the_plain_one(device: str) -> None:
    lane, twin = lane_and_twin(device)
    engine = Engine([lane], Optimizer(batch=BATCH))
    lane.begin()
    engine.cursor.zero_()
    engine._replay()
    images = lane.images[:BATCH].float().permute(0, 3, 1, 2)
    loss = functional.cross_entropy(twin(images), lane.labels[:BATCH])
    expected = torch.autograd.grad(loss, [dict(twin.named_parameters())[n] for n in lane.names])
    for own, other in zip(lane.gradients, expected, strict=True):
        error = (own - other).norm() / other.norm()
        assert error < (1e-5 if device == "cpu" else 0.02)


def test_lanes_side_by_side_train_as_they_would_alone() -> None:
    alone, _ = lane_and_twin("cpu")
    first, _ = lane_and_twin("cpu")
    second, _ = lane_and_twin("cpu")
    second.labels.copy_(second.labels.flip(0))
    for lane in (first, second):
        lane.images.copy_(alone.images)
    first.labels.copy_(alone.labels)
    Engine([alone], Optimizer(batch=BATCH)).epoch()
    Engine([first, second], Optimizer(batch=BATCH)).epoch()
    assert torch.equal(alone.W, first.W)
    assert not torch.equal(first.W, second.W)


def test_a_new_stage_keeps_every_address_and_forgets_the_momentum() -> None:
    lane, twin = lane_and_twin("cpu")
    admm = ADMM(twin, L0(), rho=0.5, mu=0.01, layers=DigitNet.sparsified)
    tensors = [lane.W, lane.U, lane.mask, lane.pull, lane.rates, lane.momentum, lane.images]
    addresses = [tensor.data_ptr() for tensor in tensors]
    Engine([lane], Optimizer(batch=BATCH)).epoch()
    assert lane.momentum.any()
    admm.step()
    lane.begin(U=admm.U, rho=admm.rho)
    assert [tensor.data_ptr() for tensor in tensors] == addresses
    assert not lane.momentum.any()
    assert float(lane.pull) == 0.5


def test_every_lane_decays_by_its_own() -> None:
    free, _ = lane_and_twin("cpu")
    decayed, _ = lane_and_twin("cpu")
    decayed.images.copy_(free.images)
    decayed.labels.copy_(free.labels)
    free.decay.fill_(0.0)
    decayed.decay.fill_(1.0)
    Engine([free, decayed], Optimizer(batch=BATCH)).epoch()
    assert decayed.W.norm() < 0.95 * free.W.norm()


def test_an_engine_without_lanes_and_a_lane_of_unknown_weights_are_refused() -> None:
    with pytest.raises(BadInput, match="at least one lane"):
        Engine([], Optimizer())
    with pytest.raises(BadInput, match="no parameters"):
        Lane(DigitNet(), sparsified=["conv9.weight"], example=torch.zeros(1, 4, 4, 1), steps=1)
