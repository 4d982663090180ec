"""On trained weights: every layer of the reproduction's networks by every method, and the whole."""

from itertools import product
from pathlib import Path

import pytest
import torch
from torch import nn
from tracing import untraced

from sparsepath.deploy import compile, load
from sparsepath.deploy.running.kernels import Conv, Linear, available
from sparsepath.deploy.running.program import Program
from sparsepath.lab.models import NETWORKS

PAPER = Path(__file__).parents[2] / "reproduction" / "cifar10" / "paper"
TRAINED = sorted(path.stem for path in PAPER.glob("*.sparsepath"))
LIMIT = {"winograd4": 1e-4, "winograd2": 1e-5}
EPS = torch.finfo(torch.float32).eps

pytestmark = pytest.mark.skipif(not available(), reason="there are no native kernels here")


def trained(name):
    """The network, and images as it saw them: normalised, and smooth as photographs are."""
    network = NETWORKS[name.rsplit("-", 1)[0]](10, 3).eval()
    network.load_state_dict(load(PAPER / f"{name}.sparsepath").model.state_dict())
    rough = torch.randn(18, 3, 8, 8, generator=torch.Generator().manual_seed(0))
    return network, nn.functional.interpolate(rough, size=(32, 32), mode="bicubic")


def layers(network, images):
    """Every layer with weights, its input in the network and its name."""
    found = []
    hooks = [
        layer.register_forward_hook(
            lambda layer, given, _, name=name: found.append((name, layer, given[0]))
        )
        for name, layer in network.named_modules()
        if isinstance(layer, nn.Conv2d | nn.Linear)
    ]
    with torch.no_grad():
        network(images)
    for hook in hooks:
        hook.remove()
    return found


def by_our_kernels(layer, x, method, *, grid, woven):
    program = Program()
    given = program.input(x.shape[1:])
    if isinstance(layer, nn.Linear):
        linear = Linear(layer.weight, layer.bias, few=method == "rows")
        program.output(program.linear(given, linear))
    else:
        options = {"padding": layer.padding, "method": method, "woven": woven}
        conv = Conv(layer.weight, layer.bias, **options)
        program.output(program.leave(program.conv(program.enter(given, grid=grid), conv)))
    (y,) = program.run([x])
    return y


def methods(layer):
    if isinstance(layer, nn.Linear):
        return ("linear", "rows")
    shape = (layer.in_channels, layer.out_channels, layer.groups)
    return Conv.methods(layer.kernel_size, layer.stride, layer.dilation, shape)


@untraced
@pytest.mark.parametrize("name", TRAINED)
@torch.no_grad()
def test_every_layer_of_a_trained_network_is_as_exact_as_promised(name):
    for layer_name, layer, x in layers(*trained(name)):
        own = layer(x)
        exact = layer.double()(x.double())
        largest = float(exact.abs().max())
        torchs = float((own - exact).abs().max()) / largest
        layer.float()
        for method in methods(layer):
            limit = LIMIT.get(method, 2 * torchs + 4 * EPS)
            weaves = (0, 2, 4) if method.startswith("winograd") else (0,)
            for grid, woven in product((1, 4), weaves):
                y = by_our_kernels(layer, x, method, grid=grid, woven=woven)
                error = float((y - exact).abs().max()) / largest
                assert error <= limit, (layer_name, method, grid, woven)


@untraced
@pytest.mark.parametrize("name", TRAINED)
@torch.no_grad()
def test_a_trained_network_is_as_exact_as_its_layers(name):
    network, images = trained(name)
    runtime = compile(network, images, tune=False)
    given = [runtime(images), runtime(images[:1])]  # in batches, and image by image
    exact = network.double()(images.double())
    for y in given:
        assert float((y - exact[: len(y)]).abs().max()) <= 1e-4 * float(exact.abs().max())
