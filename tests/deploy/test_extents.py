"""Shapes by rule are those of a run; where torch refuses inputs the rules never say otherwise."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from tracing import untraced

from sparsepath.deploy.capture.capture import capture
from sparsepath.deploy.graph import reference
from sparsepath.deploy.graph.fold import folded
from sparsepath.deploy.running import extents as rules
from sparsepath.deploy.running.extents import Unruled, extents
from sparsepath.lab.models import UNet

from .cases import BUILDERS, network, sizes


def by_rule(graph, images):
    types = dict.fromkeys((*graph.inputs, *(node.name for node in graph)), torch.float32)
    return extents(graph, [tuple(images.shape)], types)


@untraced
@pytest.mark.parametrize("name", BUILDERS)
def test_the_shapes_of_a_network_are_those_of_a_run(name):
    side, other = sizes(name)
    graph = folded(capture(network(name)))
    for shape in ((1, 3, side, side), (3, 3, other, side)):
        try:
            expected = reference.shapes(graph, [torch.randn(shape)])
        except RuntimeError:
            continue
        assert by_rule(graph, torch.randn(shape)) == expected


def test_most_networks_need_no_run_of_torch_even_without_numbers(monkeypatch):
    def never(*given):
        raise AssertionError("torch was asked")

    wide = folded(capture(UNet(10, 3, width=8, bilinear=True).eval()))
    monkeypatch.setattr(rules, "run_node", never)
    assert by_rule(folded(capture(network("vgg-16-bn"))), torch.randn(1, 3, 32, 32))
    assert by_rule(folded(capture(network("densenet-bc-100"))), torch.randn(1, 3, 32, 32))
    with pytest.raises(AssertionError, match="torch was asked"):
        by_rule(wide, torch.randn(1, 3, 32, 32))  # which makes maps larger


LAYERS = {
    "conv": lambda n, s, p, d: nn.Conv2d(4, 6, n, s, p, d),
    "grouped": lambda n, s, p, d: nn.Conv2d(4, 6, (n, 1), (1, s), p, d, groups=2),
    "max": lambda n, s, p, d: nn.MaxPool2d(n, s, p, d),
    "max up": lambda n, s, p, d: nn.MaxPool2d((n, 1), s, (p, 0), d, ceil_mode=True),
    "avg": lambda n, s, p, d: nn.AvgPool2d(n, s, p),
    "avg up": lambda n, s, p, d: nn.AvgPool2d(n, (s, 1), p, ceil_mode=True),
    "adaptive": lambda n, s, p, d: nn.AdaptiveAvgPool2d((n - 1, None)),
    "pooled": lambda n, s, p, d: nn.Sequential(
        nn.Conv2d(4, 6, n, padding=p), nn.ReLU(), nn.MaxPool2d(2, ceil_mode=d == 2)
    ),
    "norm": lambda n, s, p, d: nn.Sequential(nn.BatchNorm2d(4), nn.ReLU()),
    "groups": lambda n, s, p, d: nn.GroupNorm(s if s != 3 else 4, 4),
    "bare groups": lambda n, s, p, d: nn.GroupNorm(4 if p else d, 4, affine=False),
    "lines": lambda n, s, p, d: nn.LayerNorm((n, s) if d == 2 else (n,)),
    "slopes": lambda n, s, p, d: nn.PReLU(4 if p else 1),
    "rows": lambda n, s, p, d: nn.Sequential(nn.Flatten(), nn.Linear(4 * n * n, 3)),
    "transposed": lambda n, s, p, d: nn.ConvTranspose2d(
        4, 6, n, s, p, output_padding=min(s, d) - 1, groups=2, dilation=d
    ),
    "shuffled": lambda n, s, p, d: nn.PixelShuffle(s),
    "upsampled": lambda n, s, p, d: nn.Upsample(scale_factor=n, mode="bilinear"),
}


@pytest.mark.parametrize("kind", LAYERS)
@settings(max_examples=25, deadline=None)
@given(
    window=st.integers(1, 5),
    stride=st.integers(1, 4),
    padding=st.integers(0, 3),
    dilation=st.integers(1, 2),
    shape=st.tuples(*[st.integers(1, 3), st.sampled_from([4, 4, 4, 3])], *[st.integers(1, 9)] * 2),
)
def test_a_rule_says_what_torch_does_or_nothing(kind, window, stride, padding, dilation, shape):
    graph = folded(capture(LAYERS[kind](window, stride, padding, dilation).eval()))
    images = torch.randn(shape)
    try:
        expected = reference.shapes(graph, [images])
    except (RuntimeError, ValueError):
        with pytest.raises((Unruled, RuntimeError, ValueError)):
            by_rule(graph, images)
    else:
        if not any(0 in shape for shape in expected.values()):  # of empty maps a run may tell
            assert by_rule(graph, images) == expected


class Joined(nn.Module):
    def forward(self, x, y):
        return torch.cat((x, y), 1) + 1 + torch.cat((x, y), -3)


@pytest.mark.parametrize(
    "other", [(2, 1, 4, 4), (2, 3, 4, 4), (1, 3, 4, 4), (2, 3, 4), (2, 3, 5, 4)]
)
def test_a_concatenation(other):
    graph = capture(Joined(), inputs=2)
    given = [torch.randn(2, 3, 4, 4), torch.randn(other)]
    try:
        expected = reference.shapes(graph, given)
    except (RuntimeError, IndexError):
        with pytest.raises((Unruled, RuntimeError)):
            extents(graph, [tuple(x.shape) for x in given], {})
    else:
        assert extents(graph, [tuple(x.shape) for x in given], {}) == expected
