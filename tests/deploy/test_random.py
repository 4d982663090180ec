"""Networks that nobody would draw: whatever hypothesis puts together keeps its function."""

import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as some
from torch import nn
from tracing import untraced

from sparsepath.deploy.running.runtime import compile

from .cases import scrambled
from .test_runtime import exact


class Beside(nn.Module):
    """A layer whose maps are added to its input's, where they fit, or stand beside them."""

    def __init__(self, layer, *, joined):
        super().__init__()
        self.layer, self.joined = layer, joined

    def forward(self, x):
        maps = self.layer(x)
        return torch.cat((x, maps), 1) if self.joined else x + maps


@some.composite
def networks(draw):
    """Up to seven layers, with the channels they leave."""
    channels = inputs = draw(some.integers(1, 5))
    layers = []
    for _ in range(draw(some.integers(1, 7))):
        kind = draw(some.sampled_from(["conv", "same", "beside", "norm", "relu", "pool", "group"]))
        outputs = draw(some.integers(1, 9))
        size = draw(some.sampled_from([1, 2, 3, 5, (1, 3), (3, 1)]))
        if kind == "conv":
            stride, dilation = draw(some.integers(1, 3)), draw(some.integers(1, 2))
            padding = draw(some.integers(0, 2))
            layers.append(nn.Conv2d(channels, outputs, size, stride, padding, dilation))
            channels = outputs
        elif kind == "same":
            layers.append(nn.Conv2d(channels, outputs, 3, padding=1))
            channels = outputs
        elif kind == "group":
            layers.append(nn.Conv2d(channels, 2 * channels, 3, padding=1, groups=channels))
            channels *= 2
        elif kind == "beside":
            joined = draw(some.booleans())
            outputs = outputs if joined else channels
            layers.append(Beside(nn.Conv2d(channels, outputs, 3, padding=1), joined=joined))
            channels += outputs if joined else 0
        elif kind == "norm":
            layers.append(nn.BatchNorm2d(channels))
        elif kind == "relu":
            layers.append(draw(some.sampled_from([nn.ReLU(), nn.ReLU6(), nn.ReLU(inplace=True)])))
        else:
            up = draw(some.booleans())
            pools = [nn.MaxPool2d(2, ceil_mode=up), nn.MaxPool2d(3, 2, 1, ceil_mode=up)]
            layers.append(draw(some.sampled_from([*pools, nn.AvgPool2d(2), nn.AvgPool2d(3, 1, 1)])))
    if draw(some.booleans()):
        layers += [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, 3)]
    zero = draw(some.sampled_from([0.0, 0.5, 0.9, 1.0]))
    return inputs, scrambled(nn.Sequential(*layers), zero=zero, seed=draw(some.integers(0, 9)))


@untraced
@settings(deadline=None, max_examples=60)
@given(networks(), some.data())
def test_any_network_keeps_its_function(built, data):
    channels, model = built
    for _ in range(2):
        batch, height, width = (data.draw(some.integers(1, top)) for top in (20, 19, 19))
        images = torch.randn(batch, channels, height, width)
        try:
            wanted = exact(model, images)
        except RuntimeError:  # too small for its layers
            model.float()
            assume(False)
        runtime = compile(model, images, tune=False)
        largest = max(wanted.abs().max().item(), 1e-3)
        assert ((runtime(images) - wanted).abs().max() / largest).item() < 1e-4
        assert runtime(images[:1]).shape == wanted[:1].shape
