"""Every operation that the lanes know, behind a convolution: the same numbers, and in the lanes."""

import pytest
import torch
from torch import nn

from sparsepath.deploy.running import kernels
from sparsepath.deploy.running.runtime import compile

from .cases import scrambled
from .test_capture import Model
from .test_runtime import error, exact

pytestmark = pytest.mark.skipif(not kernels.available(), reason="the kernels are not built")
SIZES = [(8, 8), (7, 5), (9, 6), (4, 13)]


def of(function):
    """A function of a convolution's maps as a module."""
    return Model(lambda self, x: function(x))


NATIVE = {
    "nothing": nn.Identity(),
    "relu": nn.ReLU(),
    "relu6": nn.ReLU6(),
    "max pool": nn.MaxPool2d(2),
    "max pool up": nn.MaxPool2d(2, ceil_mode=True),
    "max pool that overlaps": nn.MaxPool2d(3, 2, 1),
    "max pool that overlaps, up": nn.MaxPool2d(3, 2, 1, ceil_mode=True),
    "max pool with gaps, up": nn.MaxPool2d(2, 3, 1, ceil_mode=True),
    "max pool of stripes": nn.MaxPool2d((1, 3), (2, 1)),
    "avg pool": nn.AvgPool2d(2),
    "avg pool with its edge": nn.AvgPool2d(3, 1, 1),
    "avg pool without its edge": nn.AvgPool2d(3, 2, 1, count_include_pad=False),
    "mean": of(lambda x: x.mean((2, 3))),
    "mean that keeps its axes": of(lambda x: x.mean((-1, -2), keepdim=True)),
    "global pool": nn.AdaptiveAvgPool2d(1),
    "global max": nn.AdaptiveMaxPool2d(1),
    "kept size": nn.AdaptiveAvgPool2d((None, 1)),
    "windows that overlap": nn.AdaptiveMaxPool2d(7),
    "mean windows that overlap": nn.AdaptiveAvgPool2d((7, 4)),
    "every other pixel": of(lambda x: x[:, :, ::2, ::3]),
    "every other row": of(lambda x: x[:, :, ::2]),
    "zero maps behind": of(lambda x: nn.functional.pad(x, (0, 0, 0, 0, 0, 3))),
    "zero maps on both sides": of(lambda x: nn.functional.pad(x, (0, 0, 0, 0, 2, 1))),
    "sum": of(lambda x: x + x[:, :, ::1]),
    "concatenation": of(lambda x: torch.cat((x, x.relu(), x), 1)),
    "two readers": of(lambda x: (x.relu() + x).flatten(1)),
    "1 x 1": nn.Conv2d(6, 5, 1),
    "1 x 3": nn.Conv2d(6, 5, (1, 3), padding=(0, 1)),
    "3 x 1": nn.Conv2d(6, 5, (3, 1), padding=(1, 0)),
    "3 x 3, no padding": nn.Conv2d(6, 5, 3),
    "5 x 5, strides": nn.Conv2d(6, 5, 5, stride=(2, 3), padding=2),
    "dilated": nn.Conv2d(6, 5, 3, padding=2, dilation=2),
    "grouped": nn.Conv2d(6, 4, 3, padding=1, groups=2),
    "depthwise": nn.Conv2d(6, 12, 3, padding=1, groups=6),
    "batch norm twice": nn.Sequential(nn.ReLU(), nn.BatchNorm2d(6), nn.ReLU()),
}
IN_TORCH = {
    "dilated pool": nn.MaxPool2d(2, dilation=2),
    "avg pool up": nn.AvgPool2d(2, ceil_mode=True),
    "mean of maps": of(lambda x: x.mean(1)),
    "some maps": of(lambda x: x[:, 1:4]),
    "sum that broadcasts": of(lambda x: x + x.mean((2, 3), keepdim=True)),
    "number": of(lambda x: x + 1),
    "padded pixels": of(lambda x: nn.functional.pad(x, (1, 0, 1, 0))),
    "other axis": of(lambda x: torch.cat((x, x), 2)),
    "sigmoid": nn.Sigmoid(),
    "transposed": nn.ConvTranspose2d(6, 3, 2, stride=2),
    "uneven windows": nn.AdaptiveMaxPool2d(3),
    "parts": of(lambda x: torch.cat(x.chunk(2, 1)[::-1], 1)),
    "other rows": of(lambda x: x.flatten(2)),
}


def behind_a_convolution(part):
    torch.manual_seed(0)
    return scrambled(nn.Sequential(nn.Conv2d(3, 6, 3, padding=1), part))


@pytest.mark.parametrize("name", [*NATIVE, *IN_TORCH])
def test_every_operation_keeps_its_function_at_every_size(name):
    model = behind_a_convolution({**NATIVE, **IN_TORCH}[name])
    runtime = compile(model, torch.randn(2, 3, 8, 8), tune=False)
    for height, width in SIZES:
        for batch in (1, 17):
            images = torch.randn(batch, 3, height, width)
            assert error(runtime(images), exact(model, images)) < 1e-5


@pytest.mark.parametrize("name", NATIVE)
def test_what_the_lanes_know_stays_in_the_lanes(name):
    model = behind_a_convolution(NATIVE[name])
    for batch in (1, 16):
        report = compile(model, torch.randn(batch, 3, 8, 8), tune=False).report()
        assert {row.method for row in report.rows} & {"torch"} == set()


@pytest.mark.parametrize("name", IN_TORCH)
def test_what_the_lanes_do_not_know_goes_to_torch_alone(name):
    model = behind_a_convolution(IN_TORCH[name])
    report = compile(model, torch.randn(2, 3, 8, 8), tune=False).report()
    assert report.rows[0].method == "winograd2"
    assert {row.method for row in report.rows[1:]} & {"torch"}
    assert all(row.why for row in report.rows)


def test_an_adaptive_pool_that_repeats_pixels_goes_to_torch():
    pool = nn.Sequential(nn.Conv2d(1, 4, 1), nn.AdaptiveAvgPool2d(3)).eval()
    images = torch.randn(2, 1, 1, 1)
    with torch.no_grad():
        wanted = pool(images)
    torch.testing.assert_close(compile(pool, images, tune=False)(images), wanted)
