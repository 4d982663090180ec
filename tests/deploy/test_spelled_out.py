"""A network of functions that are spelled out is cut, kept, run and exported like any other."""

import pytest
import torch

from sparsepath import deploy
from sparsepath.deploy.capture.capture import capture

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
