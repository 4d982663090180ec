"""Networks that nobody would draw keep their function when they are compacted, and then saved."""

import tempfile
from pathlib import Path

import torch
from hypothesis import given, settings
from hypothesis import strategies as some
from torch import nn
from tracing import untraced

from sparsepath.deploy.files.artifact import load, save
from sparsepath.deploy.shrinking.compact import compact

from .test_compact import pruned, same

functional = nn.functional
SIZE = 8


class Step(nn.Module):
    """A function of maps, with a layer it may use."""

    def __init__(self, function, layer=None):
        super().__init__()
        self.function, self.layer = function, layer

    def forward(self, x):
        return self.function(x) if self.layer is None else self.function(x, self.layer(x))


def excited(x, y):
    return x * torch.sigmoid(y.mean((2, 3), keepdim=True))


@some.composite
def networks(draw):
    """Up to nine steps over maps of one size, then perhaps a classifier."""
    channels = inputs = draw(some.integers(1, 6))
    layers = []
    for _ in range(draw(some.integers(2, 9))):
        kind = draw(some.sampled_from(KINDS))
        layer, channels = kind(draw, channels)
        layers.append(layer)
        if draw(some.booleans()):
            layers.append(nn.BatchNorm2d(channels))
        if draw(some.booleans()):
            layers.append(draw(some.sampled_from([nn.ReLU(), nn.ReLU6(), nn.Sigmoid()])))
    end = draw(some.sampled_from(["maps", "flat", "mean", "view"]))
    if end == "flat":
        layers += [nn.Flatten(), nn.Linear(channels * SIZE**2, 5), nn.ReLU(), nn.Linear(5, 3)]
    elif end == "mean":
        layers += [Step(lambda x: x.mean((2, 3))), nn.Linear(channels, 3)]
    elif end == "view":
        count = channels * SIZE**2
        shapes = draw(some.sampled_from([(-1, count), (-1, channels, SIZE**2)]))
        # Turned maps have no view of another shape.
        layers.append(Step(lambda x: x.contiguous().view(*shapes).relu()))
        layers.append(nn.Linear(count, 3) if len(shapes) == 2 else nn.Conv1d(channels, 3, 1))
    share = draw(some.sampled_from([0.0, 0.3, 0.6, 0.9]))
    seed = draw(some.integers(0, 99))
    shape = (4, inputs, SIZE, SIZE)
    return inputs, pruned(nn.Sequential(*layers), share=share, seed=seed, shape=shape).double()


def plain(draw, channels):
    outputs, biased = draw(some.integers(1, 9)), draw(some.booleans())
    size = draw(some.sampled_from([1, 3]))
    return nn.Conv2d(channels, outputs, size, padding=size // 2, bias=biased), outputs


def without_padding(draw, channels):
    outputs = draw(some.integers(1, 9))
    layer = nn.Sequential(nn.Conv2d(channels, outputs, 3), nn.Upsample(SIZE, mode="bilinear"))
    return layer, outputs


def grouped(draw, channels):
    groups = draw(some.sampled_from([n for n in range(1, channels + 1) if channels % n == 0]))
    outputs = groups * draw(some.integers(1, 3))
    return nn.Conv2d(channels, outputs, 3, padding=1, groups=groups), outputs


def transposed(draw, channels):
    groups = draw(some.sampled_from([n for n in range(1, channels + 1) if channels % n == 0]))
    outputs = groups * draw(some.integers(1, 3))
    return nn.Sequential(
        nn.MaxPool2d(2), nn.ConvTranspose2d(channels, outputs, 2, stride=2, groups=groups)
    ), outputs


def added(draw, channels):
    layer = nn.Conv2d(channels, channels, 3, padding=1, bias=draw(some.booleans()))
    function = draw(some.sampled_from([torch.add, torch.sub, torch.mul, excited]))
    return Step(lambda x, y: function(x, y), layer), channels


def narrow(draw, channels):
    return Step(lambda x, y: x * y.sigmoid(), nn.Conv2d(channels, 1, 1)), channels


def joined(draw, channels):
    outputs = draw(some.integers(1, 5))
    layer = nn.Conv2d(channels, outputs, 3, padding=1)
    return Step(lambda x, y: torch.cat((y, x, y), 1), layer), channels + 2 * outputs


def widened(draw, channels):
    before, behind = draw(some.integers(0, 2)), draw(some.integers(0, 3))
    value = draw(some.sampled_from([0.0, 0.5]))
    room = (0, 0, 0, 0, before, behind)
    return Step(lambda x: functional.pad(x, room, value=value)), channels + before + behind


def framed(draw, channels):
    mode = draw(some.sampled_from(["constant", "replicate"]))
    return Step(lambda x: functional.pad(x[:, :, 1:-1, 1:-1], (1, 1, 1, 1), mode)), channels


def sliced(draw, channels):
    start = draw(some.integers(0, channels - 1))
    stop = draw(some.integers(start + 1, channels))
    return Step(lambda x: x[:, start:stop]), stop - start


def pooled(draw, channels):
    pool = draw(some.sampled_from([nn.AvgPool2d(3, 1, 1), nn.MaxPool2d(3, 1, 1)]))
    return pool, channels


def shuffled(draw, channels):
    return nn.Sequential(
        nn.Conv2d(channels, 4 * channels, 1), nn.MaxPool2d(2), nn.PixelShuffle(2)
    ), channels


def turned(draw, channels):
    return Step(
        lambda x: x.flatten(1).relu().view(-1, channels, SIZE, SIZE).transpose(2, 3)
    ), channels


def opaque(draw, channels):
    return Step(lambda x: x.roll(1, 1).softmax(1)), channels


def twice(draw, channels):
    layer = nn.Conv2d(channels, channels, 1)
    return nn.Sequential(layer, nn.ReLU(), layer), channels


KINDS = [
    *(plain, plain, without_padding, grouped, transposed, added, narrow, joined, widened, framed),
    *(sliced, pooled, shuffled, turned, opaque, twice),
]


@untraced
@settings(deadline=None, max_examples=50)
@given(networks(), some.sampled_from([1, 1, 1, 4]))
def test_any_network_keeps_its_function(built, multiple):
    channels, model = built
    torch.manual_seed(0)
    images = torch.randn(2, channels, SIZE, SIZE, dtype=torch.float64)
    made = compact(model, images, multiple=multiple)
    same(model, made.model, (1, channels, SIZE, SIZE), (3, channels, SIZE, SIZE))
    again = compact(made.model, images, multiple=multiple)
    assert again.widths == {name: (after, after) for name, (_, after) in made.widths.items()}
    if any(node.call is not None for node in made.model.graph()):
        return
    with tempfile.TemporaryDirectory() as folder:
        save(made.model, Path(folder) / "net")
        loaded = load(Path(folder) / "net").model
    assert torch.equal(loaded(images), made.model(images))
