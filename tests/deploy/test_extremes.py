"""With strict, numbers that overflow inside our kernels are torch's, and only those."""

import pytest
import torch
from torch import nn

from sparsepath.deploy.running import kernels, runtime
from sparsepath.deploy.running.extremes import Bounds, Extreme
from sparsepath.deploy.running.kernels import Conv
from sparsepath.deploy.running.library import CCall
from sparsepath.deploy.running.maps import Layout, Map
from sparsepath.deploy.running.runtime import compile

pytestmark = pytest.mark.skipif(not kernels.available(), reason="the kernels are not built")


class Hidden(nn.Module):
    """A convolution behind which an overflow no longer shows."""

    def __init__(self, after, layer):
        super().__init__()
        self.layer, self.after = layer, after

    def forward(self, x):
        return self.after(self.layer(x))


def stack():
    return nn.Sequential(
        nn.Conv2d(3, 6, 3, padding=1), nn.ReLU(), nn.Conv2d(6, 6, 1), nn.Conv2d(6, 4, 1)
    )


@pytest.mark.parametrize("layer", [lambda: nn.Conv2d(3, 6, 3, padding=1), stack])
@pytest.mark.parametrize(
    "after",
    [
        lambda y: y.argmax(1),
        lambda y: y > 0,
        nn.functional.relu6,
        lambda y: nn.functional.relu6(nn.functional.avg_pool2d(y, 3)),
        lambda y: nn.functional.relu6(y.mean((2, 3))),
    ],
    ids=["argmax", "sign", "relu6", "pooled", "mean"],
)
def test_an_overflow_that_no_longer_shows_is_seen(after, layer):
    torch.manual_seed(0)
    model = Hidden(after, layer()).eval()
    strict = compile(model, torch.randn(1, 3, 13, 14), tune=False, strict=True)
    for batch in (1, 5, 18):
        images = torch.rand(batch, 3, 13, 14) * 3e38
        with torch.no_grad():
            wanted = model(images)
        torch.testing.assert_close(strict(images), wanted, rtol=0, atol=0, equal_nan=True)


def normed(layer, *, bias=0.0, mean=0.0, spread=1.0, shift=0.0):
    """A layer of weights of 1e20 before a batch norm that makes its sums small again."""
    norm = nn.BatchNorm2d(6) if isinstance(layer, nn.Conv2d) else nn.BatchNorm1d(6)
    with torch.no_grad():
        layer.weight.fill_(1e20)
        layer.bias.fill_(bias)
        norm.running_var.fill_(spread**2)
        norm.running_mean.fill_(mean)
        norm.bias.fill_(shift)
    flat = [] if isinstance(layer, nn.Conv2d) else [nn.Flatten()]
    return nn.Sequential(*flat, layer, norm).eval()


@pytest.mark.parametrize(
    ("model", "size"),
    [
        (normed(nn.Conv2d(3, 6, 3, padding=1), spread=1e18), 1e19),
        (normed(nn.Conv2d(3, 6, 1), spread=1e18), 1e19),
        (normed(nn.Linear(12, 6), spread=1e18), 1e19),
        (normed(nn.Conv2d(3, 6, 1), bias=2e38, spread=1e-3, mean=2e38), 1.0),
    ],
    ids=["3x3", "1x1", "linear", "bias"],
)
def test_an_overflow_before_a_batch_norm_is_torchs(model, size):
    usual = torch.randn(1, 3, 2, 2)
    strict = compile(model, usual, tune=False, strict=True)
    for batch in (1, 5, 18):
        images = torch.full((batch, 3, 2, 2), size)
        with torch.no_grad():
            wanted = model(images)
        assert not wanted.isfinite().all()
        torch.testing.assert_close(strict(images), wanted, rtol=0, atol=0, equal_nan=True)


def test_a_batch_norm_of_usual_numbers_stays_in_our_kernels(monkeypatch):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(3, 6, 3, padding=1), nn.BatchNorm2d(6), nn.Conv2d(6, 4, 1))
    model.eval()
    model[1].running_var.fill_(1e6)
    images = torch.randn(5, 3, 13, 14)
    strict = compile(model, images, tune=False, strict=True)
    with torch.no_grad():
        wanted = model(images)
    monkeypatch.setattr(runtime.reference, "run", never)
    torch.testing.assert_close(strict(images), wanted)


def never(*given):
    raise AssertionError("it went to torch")


def differences(layers):
    """Each takes the difference of two equal channels: large weights, small results."""
    model = nn.Sequential(*(nn.Conv2d(2, 2, (1, 3), padding=(0, 1)) for _ in range(layers))).eval()
    with torch.no_grad():
        for conv in model:
            conv.weight.fill_(100.0)
            conv.weight[:, 1] = -100.0
            conv.bias.fill_(0.5)
    return model


def test_usual_numbers_stay_in_our_kernels_whatever_the_weights(monkeypatch):
    model = differences(layers=20)
    strict = compile(model, torch.randn(1, 2, 5, 7), tune=False, strict=True)
    images = torch.randn(18, 1, 5, 7).expand(18, 2, 5, 7)
    for batch in (1, 5, 18):
        strict(images[:batch])
    monkeypatch.setattr(runtime.reference, "run", never)
    for batch in (1, 5, 18):
        torch.testing.assert_close(strict(images[:batch]), torch.full((batch, 2, 5, 7), 0.5))


@pytest.mark.parametrize("grid", [1, 2, 4])
def test_what_stands_beyond_the_image_does_not_count(grid):
    images, layout = torch.randn(5, 4, 13, 14), Layout.of(13, 14, grid)
    height, width, per_vector = layout.tile_height, layout.tile_width, 16 // grid**2
    memory = torch.full((-(-5 // per_vector), 6, height, width, 16), 1e38)
    for n in range(5):  # as native/layout.h says
        for y in range(13):
            for x in range(14):
                lane = n % per_vector * grid**2 + y // height * grid + x // width
                at = memory[n // per_vector, 1:5, y % height, x % width]
                at[:, lane] = images[n, :, y, x]
    call = CCall(source=Map(0, 1, 4, 6, layout).packed(), target=Map(1, 0, 3, 3, layout).packed())
    given = ([call], [Conv(torch.randn(3, 4, 1, 1))], memory.data_ptr())
    Bounds().check("conv", *given, batch=5)
    lane = 4 % per_vector * grid**2 + grid**2 - 1
    memory[4 // per_vector, 4, 12 - height * (grid - 1), 13 - width * (grid - 1), lane] = 1e38
    with pytest.raises(Extreme):
        Bounds().check("conv", *given, batch=5)
