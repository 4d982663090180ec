"""A network of functions that are spelled out is cut, kept, run and exported like any other."""

import pytest
import torch
from torch import nn

from sparsepath import deploy
from sparsepath.deploy.capture.capture import capture
from sparsepath.deploy.graph.reference import run

from .cases import Response, scrambled


@pytest.fixture
def network():
    torch.manual_seed(0)
    model = scrambled(Response())
    with torch.no_grad():
        for layer in (model.first, model.second, model.third):
            layer.weight[::3] = 0
            layer.bias[::3] = 0
    return model


@pytest.fixture
def images():
    return torch.randn(3, 3, 16, 12, generator=torch.Generator().manual_seed(1))


def test_nothing_of_it_is_left_to_torch(network, images):
    assert all(node.op != "torch" for node in capture(network, example=[images]))


def test_it_is_made_smaller_kept_run_and_exported(network, images, tmp_path):
    others = torch.randn(2, 3, 12, 20, generator=torch.Generator().manual_seed(2))
    small = deploy.compact(network, images).model
    deploy.save(small, tmp_path / "net.sparsepath", example=images)
    loaded = deploy.load(tmp_path / "net.sparsepath").model
    runtime = deploy.compile(loaded, images, tune=False)
    for x in (images, others):
        with torch.no_grad():
            wanted = network(x)
            for other in (small, loaded, runtime):
                torch.testing.assert_close(other(x), wanted, rtol=1e-4, atol=1e-5)
    assert deploy.export(small, images, tmp_path / "net.onnx").difference < 1e-5


def test_what_is_left_of_it_learns_on(network, images):
    """Dead channels that a norm keeps have a length of zero, which has no direction to grow in."""
    small = deploy.compact(network, images).model
    for model in (network, small):
        model(images).square().sum().backward()
        assert all(p.grad is None or p.grad.isfinite().all() for p in model.parameters())


def test_half_precision_overflows_no_sooner_than_in_torch(network, images):
    half = network.half()
    graph = capture(half, example=[images.half()])
    bright = 500 * images.half()
    with torch.no_grad():
        wanted = half(bright)
    assert wanted.isfinite().all()
    torch.testing.assert_close(run(graph, bright), wanted, rtol=1e-2, atol=1e-2)


def test_a_constant_is_as_long_as_its_image_is_large(images):
    class Lengths(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv, self.fc = nn.Conv2d(3, 6, 3), nn.Linear(6, 4)

        def forward(self, x):
            return self.fc(self.conv(x).norm(dim=(2, 3)))

    model = scrambled(Lengths())
    with torch.no_grad():
        model.conv.weight[::2] = 0  # the biases stay
        small = deploy.compact(model, images).model
        for x in (images, images[:, :, :7, :5]):
            torch.testing.assert_close(small(x), model(x))
