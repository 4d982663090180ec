"""Training by the CPU's own kernels gives what torch's layers give, but for the sign of a zero."""

import math

import pytest
import torch
from torch import Tensor, nn

from sparsepath import native
from sparsepath.lab.dropout import Keyed
from sparsepath.lab.engine import Engine
from sparsepath.lab.lane import Lane
from sparsepath.lab.models import NETWORKS, cpu

pytestmark = pytest.mark.skipif(not native.available(), reason="the kernels were not built")
DTYPES = [torch.bfloat16, torch.float32]


@pytest.fixture(params=[1, 2])
def threads(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    """Kernels that are spread over so many threads, however few the numbers."""
    monkeypatch.setattr(native, "GRAIN", 1)
    monkeypatch.setattr(torch, "get_num_threads", lambda: request.param)
    return int(request.param)


def pixels(*shape: int, dtype: torch.dtype, seed: int = 0) -> Tensor:
    """Maps in channels_last, of few values, so that many are equal."""
    drawn = torch.randn(shape, generator=torch.Generator().manual_seed(seed)).mul(4).round().div(4)
    drawn[0, 0, :2, :2] = -0.0
    drawn[0, 1, :2, :2] = -1.0
    drawn[0, 2, 1, 0] = math.inf
    drawn[0, 3, :2, :2] = -math.inf
    return drawn.to(dtype).to(memory_format=torch.channels_last).requires_grad_()


def bits(values: Tensor) -> Tensor:
    return values.view(torch.int16 if values.dtype == torch.bfloat16 else torch.int32)


LAYERS = [nn.ReLU(), nn.MaxPool2d(2, ceil_mode=True)]


def plain(images: Tensor) -> Tensor:
    for layer in LAYERS:
        images = layer(images)
    return images


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("maps", [5, 64, 97])
def test_relu_and_pooling_as_one_have_torchs_values(
    dtype: torch.dtype, maps: int, threads: int
) -> None:
    images = pixels(3, maps, 8, 6, dtype=dtype)
    gradient = pixels(3, maps, 4, 3, dtype=dtype, seed=1).detach()
    ours, theirs = cpu.trained(LAYERS, images), plain(images)
    assert type(ours.grad_fn).__name__ == "ReluPoolBackward"
    assert ours.equal(theirs)
    (back,), (expected,) = (torch.autograd.grad(y, images, gradient) for y in (ours, theirs))
    assert back.equal(expected)
    assert back.is_contiguous(memory_format=torch.channels_last)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("place", range(4))
@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_a_nan_of_either_sign_is_not_lost(dtype: torch.dtype, place: int, sign: float) -> None:
    images = torch.full((1, 16, 2, 2), 3.0, dtype=dtype)
    images[..., place // 2, place % 2] = torch.tensor(math.nan).copysign(torch.tensor(sign)).item()
    images = images.to(memory_format=torch.channels_last)
    assert cpu.trained(LAYERS, images).isnan().all()
    assert plain(images).isnan().all()


@pytest.mark.parametrize(
    "images",
    [
        torch.randn(2, 8, 7, 6).to(memory_format=torch.channels_last),
        torch.randn(2, 8, 6, 7).to(memory_format=torch.channels_last),
        torch.randn(2, 8, 6, 6),
        torch.randn(2, 8, 6, 6, dtype=torch.float64).to(memory_format=torch.channels_last),
        torch.randn(8, 6, 6),
    ],
    ids=["odd height", "odd width", "map after map", "float64", "one image"],
)
def test_maps_that_the_kernel_does_not_take_go_through_torch(images: Tensor) -> None:
    assert cpu.trained(LAYERS, images.requires_grad_()).equal(plain(images))
    assert "ReluPool" not in type(cpu.trained(LAYERS, images).grad_fn).__name__


@pytest.mark.parametrize(
    "pool",
    [
        nn.MaxPool2d(3, 2),
        nn.MaxPool2d(2, 1),
        nn.MaxPool2d(2, padding=1),
        nn.MaxPool2d(2, dilation=2),
        nn.AvgPool2d(2),
    ],
    ids=str,
)
def test_other_pooling_is_torchs(pool: nn.Module) -> None:
    images = torch.randn(2, 8, 6, 6).to(memory_format=torch.channels_last)
    assert cpu.trained([nn.ReLU(), pool], images).equal(pool(images.relu()))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("p", [0.05, 0.3, 0.5])
@pytest.mark.parametrize("number", [0, 3])
def test_dropout_has_the_bits_of_its_torch_way(
    dtype: torch.dtype, p: float, number: int, threads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    layer = Keyed(p, torch.tensor(2**31 - 5, dtype=torch.int32), number)
    for values in (
        pixels(3, 7, 8, 6, dtype=dtype),
        torch.randn(5, 33).to(dtype).requires_grad_(),
    ):
        gradient = torch.randn(values.shape).to(dtype)
        found = []
        for library in (native._LIBRARY, None):
            monkeypatch.setattr(native, "_LIBRARY", library)
            living = layer(values)
            found.append((living, *torch.autograd.grad(living, values, gradient)))
        assert type(found[0][0].grad_fn).__name__ == "DroppedBackward"
        assert "Dropped" not in type(found[1][0].grad_fn).__name__
        for ours, theirs in zip(*found, strict=True):
            assert bits(ours.contiguous()).equal(bits(theirs.contiguous()))
        monkeypatch.undo()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", ["cnn", "low-rank-cnn", "nin"])
def test_an_epoch_of_the_engine_ends_in_the_same_bits_with_and_without(
    name: str, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended = []
    for library in (native._LIBRARY, None):
        monkeypatch.setattr(native, "_LIBRARY", library)
        torch.manual_seed(0)
        example = torch.zeros(4, 32, 32, 3, dtype=dtype)
        lane = Lane(NETWORKS[name](dropout=0.2).train(), example=example, steps=2)
        lane.images.copy_(torch.randn(lane.images.shape))
        lane.labels.copy_(torch.randint(10, lane.labels.shape))
        lane.rates.fill_(0.01)
        Engine([lane], batch=4).epoch()
        ended.append(lane.W)
    assert ended[0].equal(ended[1])
