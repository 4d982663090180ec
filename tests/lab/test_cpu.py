"""Training by the CPU's own kernels gives what torch's layers give, but for the sign of a zero."""

import math
from collections.abc import Generator
from functools import partial
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.nn.modules.module import (
    register_module_forward_hook,
    register_module_forward_pre_hook,
)

from sparsepath import native
from sparsepath.lab.dropout import Keyed, keyed
from sparsepath.lab.engine import Engine
from sparsepath.lab.lane import Lane
from sparsepath.lab.models import NETWORKS, cpu

pytestmark = pytest.mark.skipif(not native.available(), reason="the kernels were not built")
DTYPES = [torch.bfloat16, torch.float32]


@pytest.fixture(params=[1, 2])
def threads(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Generator[int, None, None]:
    """Kernels that are spread over so many threads, however few the numbers."""
    monkeypatch.setattr(native, "GRAIN", 1)
    before = torch.get_num_threads()
    torch.set_num_threads(request.param)
    yield int(request.param)
    torch.set_num_threads(before)


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


NANS = {torch.bfloat16: (0x7F81, 0x7FC0, -0x7F, -0x40), torch.float32: (0x7FC00000, -0x400000)}
"""Of both signs, by their bits: a number of Python's would have but one."""


@pytest.mark.parametrize(
    ("dtype", "nan"), [(dtype, nan) for dtype, nans in NANS.items() for nan in nans]
)
@pytest.mark.parametrize("place", range(4))
def test_a_nan_of_either_sign_is_not_lost(dtype: torch.dtype, nan: int, place: int) -> None:
    images = torch.full((1, 16, 2, 2), 3.0, dtype=dtype)
    bits(images)[..., place // 2, place % 2] = nan
    assert images.isnan().sum() == 16
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
        torch.zeros(0, 8, 6, 6).to(memory_format=torch.channels_last),
    ],
    ids=["odd height", "odd width", "map after map", "float64", "one image", "no image"],
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


class Leaky(nn.ReLU):
    """A user's own, in the place of a ReLU."""

    def forward(self, input: Tensor) -> Tensor:
        return nn.functional.leaky_relu(input, 0.1)


@pytest.mark.parametrize(
    "layers",
    [
        [Leaky(), nn.MaxPool2d(2)],
        [nn.Identity(), nn.MaxPool2d(2)],
        [nn.ReLU(), nn.Identity(), nn.MaxPool2d(2)],
        [nn.MaxPool2d(2), nn.ReLU()],
        [nn.ReLU()],
    ],
    ids=["subclass", "no ReLU", "apart", "ReLU last", "ReLU alone"],
)
def test_other_layers_are_called_as_they_are(layers: list[nn.Module]) -> None:
    images = torch.randn(2, 8, 6, 6).to(memory_format=torch.channels_last)
    assert cpu.trained(layers, images).equal(nn.Sequential(*layers)(images))


HOOKS = {
    "forward": nn.Module.register_forward_hook,
    "before": nn.Module.register_forward_pre_hook,
    "backward": nn.Module.register_full_backward_hook,
    "before backward": nn.Module.register_full_backward_pre_hook,
    "everywhere": lambda layer, hook: register_module_forward_hook(hook),
    "before, everywhere": lambda layer, hook: register_module_forward_pre_hook(hook),
}


@pytest.mark.parametrize("name", HOOKS)
@pytest.mark.parametrize("at", [0, 1])
def test_hooks_are_called(at: int, name: str) -> None:
    layers: list[nn.Module] = [nn.ReLU(), nn.MaxPool2d(2)]
    seen: list[nn.Module] = []

    def hook(layer: nn.Module, *given: object) -> None:
        seen.append(layer)

    handle = HOOKS[name](layers[at], hook)
    images = torch.randn(2, 8, 6, 6).to(memory_format=torch.channels_last).requires_grad_()
    cpu.trained(layers, images).sum().backward()
    handle.remove()
    assert layers[at] in seen


def test_a_forward_of_a_layers_own_is_called() -> None:
    layers: list[nn.Module] = [nn.ReLU(), nn.MaxPool2d(2)]
    layers[0].forward = lambda input: input * 2  # type: ignore[method-assign]
    images = torch.randn(2, 8, 6, 6).to(memory_format=torch.channels_last)
    assert cpu.trained(layers, images).equal(layers[1](2 * images))


def test_gradients_may_come_several_at_once() -> None:
    images = pixels(2, 8, 6, 4, dtype=torch.float32)
    rows = torch.randn(5, 7, requires_grad=True)
    drop = Keyed(0.4, torch.tensor(2**31 - 5, dtype=torch.int32), 1)
    for make, values in ((lambda x: cpu.trained(LAYERS, x), images), (drop, images), (drop, rows)):
        made = make(values)
        several = torch.randn(3, *made.shape)
        grad = partial(torch.autograd.grad, made, values, retain_graph=True)
        (batched,) = grad(several, is_grads_batched=True)
        assert batched.equal(torch.stack([grad(one)[0] for one in several]))


@pytest.mark.filterwarnings("ignore:There is a performance drop")
def test_many_batches_may_go_at_once() -> None:
    batches = torch.randn(2, 4, 8, 6, 6)
    drop = Keyed(0.4, torch.tensor(7, dtype=torch.int32), 1)
    train = lambda images: drop(cpu.trained(LAYERS, images))
    found = torch.func.vmap(train)(batches)
    assert found.equal(torch.stack([train(images) for images in batches]))


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::torch.jit.TracerWarning")
def test_what_is_compiled_or_traced_is_torchs(tmp_path: Path) -> None:
    images = pixels(2, 8, 6, 4, dtype=torch.float32).detach()
    drop = Keyed(0.4, torch.tensor(7, dtype=torch.int32), 1)
    train = lambda x: drop(cpu.trained(LAYERS, x))
    compiled = torch.compile(train, backend="aot_eager", fullgraph=True)
    assert compiled(images).equal(train(images))
    traced = torch.jit.trace(lambda x: cpu.trained(LAYERS, x), images)
    traced.save(str(tmp_path / "net.pt"))  # what holds a call of ours cannot be saved
    assert traced(images).equal(plain(images))


def test_indices_are_returned_where_they_are_asked_for() -> None:
    images = torch.randn(2, 8, 6, 6).to(memory_format=torch.channels_last)
    pooled, indices = cpu.trained([nn.ReLU(), nn.MaxPool2d(2, return_indices=True)], images)
    assert pooled.shape == indices.shape


@pytest.mark.parametrize("order", [torch.contiguous_format, torch.channels_last])
def test_gradients_come_in_any_order_of_memory(order: torch.memory_format) -> None:
    images = pixels(2, 8, 6, 4, dtype=torch.float32)
    gradient = torch.randn(2, 8, 3, 2).contiguous(memory_format=order)
    ours, theirs = (
        torch.autograd.grad(make(images), images, gradient)[0]
        for make in (lambda x: cpu.trained(LAYERS, x), plain)
    )
    assert ours.equal(theirs)


def test_gradients_can_be_differentiated_again() -> None:
    torch.manual_seed(0)
    model = NETWORKS["cnn"](dropout=0.3).train()
    keyed(model, torch.tensor(3, dtype=torch.int32))
    images = torch.randn(4, 3, 32, 32).to(memory_format=torch.channels_last).requires_grad_()
    penalties = []
    for library in (native._LIBRARY, None):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(native, "_LIBRARY", library)
            (gradient,) = torch.autograd.grad(model(images).sum(), images, create_graph=True)
            penalties.append(torch.autograd.grad(gradient.square().sum(), model.fc2.weight)[0])
    torch.testing.assert_close(*penalties)
    assert penalties[0].norm() > 0


def test_a_network_trains_by_the_kernels_and_is_evaluated_without() -> None:
    model = NETWORKS["cnn"](dropout=0.0)
    images = torch.randn(2, 3, 32, 32).to(memory_format=torch.channels_last)

    def kinds() -> set[str]:
        waiting, found = [model(images).grad_fn], set()
        while waiting:
            node = waiting.pop()
            found.add(type(node).__name__)
            waiting += [into for into, _ in node.next_functions if into is not None]
        return found

    assert "ReluPoolBackward" in kinds()
    model.eval()
    assert "ReluPoolBackward" not in kinds()


def test_a_network_trains_whatever_the_usual_device_is() -> None:
    model = NETWORKS["cnn"](dropout=0.3).train()
    keyed(model, torch.tensor(3, dtype=torch.int32))
    images = torch.randn(2, 3, 32, 32).to(memory_format=torch.channels_last)
    expected = model(images)
    with torch.device("meta"):  # as one of a GPU would be
        found = model(images)
        found.sum().backward()
    assert found.equal(expected)


def test_every_number_of_bfloat16_is_dropped_as_torch_does() -> None:
    patterns = torch.arange(-(2**15), 2**15, dtype=torch.int16).view(torch.bfloat16)
    values = patterns[~patterns.isnan()].repeat(3)
    layer = Keyed(0.3, torch.tensor(5, dtype=torch.int32), 0)
    living = layer(values)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(native, "_LIBRARY", None)
        assert bits(living).equal(bits(layer(values)))


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
