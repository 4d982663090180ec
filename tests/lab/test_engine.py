"""The engine against the loop anyone would write: the same losses, gradients and weights."""

import copy
from types import SimpleNamespace

import pytest
import torch
from torch import nn
from torch.nn import functional

from sparsepath import ADMM, L0, BadInput
from sparsepath.lab.engine import Engine, loss_of
from sparsepath.lab.lane import Lane
from sparsepath.lab.models import CNN, DigitNet, Network, build

STEPS, BATCH = 20, 8
# How a step is computed, and how near its losses come to float32's: bfloat16 keeps 8 bits, so a
# product is off by 2^-9 and a loss of 2.3 by about 0.01.
GPU = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")]
CPU_FLOAT32 = pytest.param("cpu", torch.float32, 1e-5, id="cpu-float32")
CPU_BFLOAT16 = pytest.param("cpu", torch.bfloat16, 0.02, id="cpu-bfloat16")
GPU_FLOAT32 = pytest.param("cuda", torch.float32, 1e-4, id="cuda-float32", marks=GPU)
GPU_BFLOAT16 = pytest.param("cuda", torch.bfloat16, 0.02, id="cuda-bfloat16", marks=GPU)
ways = pytest.mark.parametrize(
    ("device", "dtype", "tolerance"), [CPU_FLOAT32, CPU_BFLOAT16, GPU_FLOAT32, GPU_BFLOAT16]
)


@pytest.fixture(autouse=True)
def full_float32(monkeypatch: pytest.MonkeyPatch) -> None:
    """Convolutions of a GPU in float32 proper, not in its 10-bit stand-in."""
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)


def lane_and_twin(
    device: str = "cpu",
    dtype: torch.dtype = torch.float32,
    *,
    dropout: float = 0.0,
    beta: float = 0.9,
    network: Network | None = None,
) -> tuple[Lane, nn.Module]:
    torch.manual_seed(0)
    if network is None:
        network = CNN(dropout=dropout) if device == "cuda" else DigitNet(dropout=dropout)
    model = network.to(device).train()
    twin = copy.deepcopy(model)
    side, channels = (32, 3) if device == "cuda" else (12, 1)
    lane = Lane(
        model,
        sparsified=[f"{layer}.weight" for layer in network.sparsified],
        example=torch.zeros(BATCH, side, side, channels, device=device, dtype=dtype),
        steps=STEPS,
        beta=beta,
    )
    lane.images.copy_(torch.randn(lane.images.shape))
    lane.labels.copy_(torch.randint(10, lane.labels.shape))
    lane.rates.copy_(torch.linspace(0.001, 0.01, STEPS))
    return lane, twin


def engine_of(*lanes: Lane) -> Engine:
    return Engine(lanes, batch=BATCH)


def plain_losses(lane: Lane, twin: nn.Module, *, proximity, support=None) -> list[float]:
    """The same steps with torch's own SGD, in float32."""
    beta = float(lane.beta)
    sgd = torch.optim.SGD(twin.parameters(), lr=0.0, momentum=beta, weight_decay=5e-4)
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


@ways
def test_a_performance_step_is_sgd_on_the_loss_and_the_pull(
    device: str, dtype: torch.dtype, tolerance: float
) -> None:
    lane, twin = lane_and_twin(device, dtype)
    layers = type(twin).sparsified
    admm = ADMM(twin, L0(), rho=0.5, mu=0.01, layers=layers)
    admm.step()  # so that U is not W
    lane.begin(U=admm.U, rho=admm.rho)
    before = lane.W.clone()
    losses = engine_losses(engine_of(lane), lane)
    assert not torch.equal(before, lane.W)
    expected = plain_losses(lane, twin, proximity=admm.proximity)
    assert losses == pytest.approx(expected, rel=tolerance, abs=tolerance)
    if dtype == torch.float32:
        for own, other in zip(lane.model.parameters(), twin.parameters(), strict=True):
            torch.testing.assert_close(own, other, rtol=tolerance, atol=tolerance)


@ways
def test_a_fine_tune_is_sgd_that_holds_the_support(
    device: str, dtype: torch.dtype, tolerance: float
) -> None:
    lane, twin = lane_and_twin(device, dtype)
    admm = ADMM(twin, L0(), rho=1.0, layers=type(twin).sparsified)
    admm.mu = 0.02
    admm.step()
    support = admm.support()
    assert any((~mask).any() for mask in support.values())
    support.impose(twin)
    support.impose(lane.model)
    lane.begin(support=support)
    losses = engine_losses(engine_of(lane), lane)
    expected = plain_losses(lane, twin, proximity=lambda: 0.0, support=support)
    assert losses == pytest.approx(expected, rel=tolerance, abs=tolerance)
    weights = dict(lane.model.named_parameters())
    for name, mask in support.items():
        assert not weights[name][(~mask).expand_as(weights[name])].any()


def test_every_lane_has_its_own_momentum() -> None:
    pairs = [lane_and_twin(beta=beta) for beta in (0.9, 0.0)]
    engine = engine_of(*(lane for lane, _ in pairs))
    engine.epoch()
    ends = [float(lane.loss) for lane, _ in pairs]
    expected = [sum(plain_losses(lane, twin, proximity=lambda: 0.0)) for lane, twin in pairs]
    assert expected[0] != pytest.approx(expected[1], rel=1e-3)
    assert ends == pytest.approx(expected, rel=1e-5)


def drawn_network(name: str) -> Network:
    """A network whose biases say something too."""
    torch.manual_seed(0)
    network = build(name, classes=10, image_shape=(3, 32, 32), dropout=0.0)
    for parameter in network.parameters():
        if parameter.dim() == 1:
            nn.init.normal_(parameter, std=0.1)
    return network


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
@pytest.mark.parametrize("name", ["nin", "low-rank-nin", "cnn", "low-rank-cnn"])
def test_the_papers_networks_have_the_plain_gradient_in_bfloat16(name: str) -> None:
    check_gradient("cuda", torch.bfloat16, 0.02, network=drawn_network(name))


@ways
def test_one_steps_gradient_is_the_plain_one(
    device: str, dtype: torch.dtype, tolerance: float
) -> None:
    check_gradient(device, dtype, tolerance)


def check_gradient(
    device: str, dtype: torch.dtype, tolerance: float, *, network: Network | None = None
) -> None:
    lane, twin = lane_and_twin(device, dtype, network=network)
    engine = engine_of(lane)
    lane.begin()
    engine.cursor.zero_()
    engine._replay()
    weights = [dict(twin.named_parameters())[name] for name in lane.names]

    def gradients(*, bfloat16: bool) -> list[torch.Tensor]:
        images = lane.images[:BATCH].float().permute(0, 3, 1, 2)
        with torch.autocast(device, torch.bfloat16, enabled=bfloat16):
            loss = functional.cross_entropy(twin(images), lane.labels[:BATCH])
        return list(torch.autograd.grad(loss, weights))

    exact = gradients(bfloat16=False)
    # A rounded maximum picks another pixel of a pool, so bfloat16's gradients are off by up to a
    # fifth in the first layer: the engine may be off as far as eager bfloat16 is, and half more.
    rounded = gradients(bfloat16=True) if dtype == torch.bfloat16 else exact
    for own, other, eager in zip(lane.gradients, exact, rounded, strict=True):
        error, usual = ((found - other).norm() / other.norm() for found in (own, eager))
        assert error <= 1.5 * usual + 10 * tolerance * (dtype == torch.float32)


@ways
def test_a_distilled_step_asks_for_the_labels_and_for_the_teachers_softened_answers(
    device: str, dtype: torch.dtype, tolerance: float
) -> None:
    lane, twin = lane_and_twin(device, dtype)
    other, _ = lane_and_twin(device, dtype)
    taught = Lane(
        other.model,
        sparsified=(),
        example=lane.images[:BATCH],
        steps=STEPS,
        teacher=_louder(twin),
        distil=0.75,
    )
    taught.images.copy_(lane.images)
    taught.labels.copy_(lane.labels)
    engine = engine_of(taught)
    engine.cursor.zero_()
    taught.loss.zero_()
    engine._replay()
    images, labels = lane.images[:BATCH].float().permute(0, 3, 1, 2), lane.labels[:BATCH]
    logits, answers = twin(images), _louder(twin)(images).detach()
    hard = functional.cross_entropy(logits, labels)
    soft = -((answers / 4).softmax(1) * (logits / 4).log_softmax(1)).sum(1).mean()
    expected = 0.25 * hard + 0.75 * 4 * soft
    assert float(taught.loss) == pytest.approx(float(expected.detach()), rel=tolerance)
    expected.backward()
    gradients = dict(twin.named_parameters())
    last = [name for name in gradients if name.endswith("weight")][-1]
    stored = dict(zip(taught.names, taught.gradients, strict=True))[last]
    error = (stored - gradients[last].grad).norm() / gradients[last].grad.norm()
    assert float(error) < 5 * tolerance


def test_a_teacher_pulls_no_harder_than_labels_can() -> None:
    sure = torch.tensor([[30.0, -30.0]], requires_grad=True)
    teacher = nn.Sequential(nn.Flatten(), nn.Linear(2, 2))
    with torch.no_grad():
        for parameter in teacher.parameters():
            parameter.zero_()
        teacher[1].bias.copy_(torch.tensor([-30.0, 30.0]))
    pupil = nn.Sequential(nn.Flatten())
    images, labels = sure.view(1, 1, 1, 2), torch.tensor([0])
    loss = loss_of(pupil, {}, images, labels, teacher, torch.tensor(1.0))
    (pull,) = torch.autograd.grad(loss, sure)
    assert float(pull.abs().max()) == pytest.approx(1.0, rel=1e-3)  # a wrong label's pull


def _louder(network: nn.Module) -> nn.Module:
    """A teacher with other answers than its pupil."""
    teacher = copy.deepcopy(network)
    with torch.no_grad():
        for parameter in teacher.parameters():
            parameter.mul_(1.2)
    return teacher


@pytest.mark.parametrize("dropout", [0.0, 0.5])
def test_lanes_side_by_side_train_as_they_would_alone(dropout: float) -> None:
    alone, _ = lane_and_twin(dropout=dropout)
    first, _ = lane_and_twin(dropout=dropout)
    second, _ = lane_and_twin(dropout=dropout)
    second.labels.copy_(second.labels.flip(0))
    for lane in (first, second):
        lane.images.copy_(alone.images)
    first.labels.copy_(alone.labels)
    engine_of(alone).epoch()
    engine_of(first, second).epoch()
    assert torch.equal(alone.W, first.W)
    assert not torch.equal(first.W, second.W)


def test_a_new_stage_keeps_every_address_and_forgets_the_momentum() -> None:
    lane, twin = lane_and_twin()
    admm = ADMM(twin, L0(), rho=0.5, mu=0.01, layers=DigitNet.sparsified)
    tensors = [lane.W, lane.U, lane.mask, lane.pull, lane.rates, lane.momentum, lane.images]
    addresses = [tensor.data_ptr() for tensor in tensors]
    engine_of(lane).epoch()
    assert lane.momentum.any()
    admm.step()
    lane.begin(U=admm.U, rho=admm.rho)
    assert [tensor.data_ptr() for tensor in tensors] == addresses
    assert not lane.momentum.any()
    assert float(lane.pull) == 0.5


def test_the_group_lasso_descends_its_subgradient_as_far_as_it_is_told() -> None:
    lane, twin = lane_and_twin()
    blocks = ADMM(twin, L0(), rho=1.0, layers=DigitNet.sparsified).blocks
    lane = Lane(
        copy.deepcopy(twin),
        sparsified=list(blocks),
        example=lane.images[:BATCH],
        steps=STEPS,
        lasso=blocks,
    )
    lane.images.normal_()
    with torch.no_grad():
        twin.conv2.weight[0, 0] = 0.0  # a block without a direction must not give NaN
        lane.model.conv2.weight[0, 0] = 0.0
    engine = engine_of(lane)
    lane.begin()
    lane.lasso.fill_(0.3)
    engine.cursor.zero_()
    engine._replay()
    loss = functional.cross_entropy(
        twin(lane.images[:BATCH].permute(0, 3, 1, 2)), lane.labels[:BATCH]
    )
    weights = dict(twin.named_parameters())
    lengths = sum(weights[name].flatten(2).norm(dim=2).sum() for name in blocks)
    expected = torch.autograd.grad(loss + 0.3 * lengths, [weights[name] for name in lane.names])
    for own, other in zip(lane.gradients, expected, strict=True):
        torch.testing.assert_close(own, other, rtol=1e-4, atol=1e-5)
    lane.begin()
    assert float(lane.lasso) == 0.0, "every stage begins without it"


def test_every_lane_decays_by_its_own() -> None:
    free, _ = lane_and_twin()
    decayed, _ = lane_and_twin()
    decayed.images.copy_(free.images)
    decayed.labels.copy_(free.labels)
    free.decay.fill_(0.0)
    decayed.decay.fill_(1.0)
    engine_of(free, decayed).epoch()
    assert decayed.W.norm() < 0.95 * free.W.norm()


def test_an_engine_without_lanes_and_a_lane_of_unknown_weights_are_refused() -> None:
    with pytest.raises(BadInput, match="at least one lane"):
        Engine([])
    lanes = [lane_and_twin(dtype=dtype)[0] for dtype in (torch.float32, torch.bfloat16)]
    with pytest.raises(BadInput, match=r"of one dtype, not of torch.bfloat16 and torch.float32"):
        Engine(lanes)
    with pytest.raises(BadInput, match="no parameters"):
        Lane(DigitNet(), sparsified=["conv9.weight"], example=torch.zeros(1, 4, 4, 1), steps=1)


def test_a_gpu_that_only_emulates_bfloat16_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    def emulated(including_emulation: bool = True) -> bool:
        return including_emulation  # as torch says of a V100

    monkeypatch.setattr(torch.cuda, "is_bf16_supported", emulated)
    images = SimpleNamespace(dtype=torch.bfloat16)
    lane = SimpleNamespace(W=SimpleNamespace(device=torch.device("cuda")), images=images)
    with pytest.raises(BadInput, match="'cuda' has no bfloat16"):
        Engine([lane])
