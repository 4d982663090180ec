"""Chains of layers against the layers one by one, with plain stand-ins for the GPU's kernels."""

import importlib
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from sparsepath.lab.models import NETWORKS, build
from sparsepath.lab.models.products import SameSize


def product_relu(rows: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    return (rows @ weight.t() + bias).relu()


def masked_product(gradient: Tensor, weight: Tensor, below: Tensor) -> tuple[Tensor, Tensor]:
    found = torch.where(below > 0, gradient @ weight, 0)
    return found, found.view(-1, 64, found.shape[1]).sum(1)


def winners(gradient: Tensor, rows: Tensor, width: int) -> tuple[Tensor, Tensor]:
    def maps(given: Tensor, width: int) -> Tensor:
        return given.view(1, -1, width, given.shape[1]).permute(0, 3, 1, 2)

    _, places = nn.functional.max_pool2d(maps(rows, width), 2, return_indices=True)
    given = nn.functional.max_unpool2d(maps(gradient, width // 2), places, 2)
    found = torch.where(rows > 0, given.permute(0, 2, 3, 1).reshape(rows.shape), 0)
    return found, found.view(-1, 4, rows.shape[1]).sum(1)


def in_rows(kernel: Callable[..., Any]) -> Callable[..., Any]:
    """The kernel, once its tensors lie row by row: the GPU's reads no strides."""

    def checked(*given: Any) -> Any:
        assert all(part.is_contiguous() for part in given if isinstance(part, Tensor))
        return kernel(*given)

    return checked


@pytest.fixture
def chains(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The module, which wants Triton, as a machine without a GPU can have it."""
    kernels = ModuleType("sparsepath.lab.models.triton_kernels")
    for made in (product_relu, masked_product, winners):
        setattr(kernels, made.__name__, in_rows(made))
    kernels.ROOMY = True
    kernels.ROWS, kernels.SIDES = 64, dict.fromkeys((32, 64, 96, 128, 160, 192))
    monkeypatch.setitem(sys.modules, kernels.__name__, kernels)
    monkeypatch.delitem(sys.modules, "sparsepath.lab.models.chains", raising=False)
    found = importlib.import_module("sparsepath.lab.models.chains")
    monkeypatch.delitem(sys.modules, "sparsepath.lab.models.chains")
    return found


def check_same(chains: ModuleType, layers: list[nn.Module], images: Tensor) -> int:
    """How many chains there were; all values and gradients are those of the plain layers."""
    torch.manual_seed(0)
    asked = [parameter for layer in layers for parameter in layer.parameters()]
    for parameter in asked:
        if parameter.dim() == 1:
            nn.init.normal_(parameter, std=0.3)
    begun = []
    usual = chains.Chain.apply
    chains.Chain.apply = lambda *given: (begun.append(given), usual(*given))[1]
    try:
        ours = chains.trained(layers, images)
    finally:
        chains.Chain.apply = usual
    theirs = nn.Sequential(*layers)(images)
    torch.testing.assert_close(ours, theirs)
    weights = torch.randn_like(theirs)
    if images.requires_grad:
        asked = [images, *asked]
    torch.testing.assert_close(
        torch.autograd.grad((ours * weights).sum(), asked),
        torch.autograd.grad((theirs * weights).sum(), asked),
        rtol=1e-4,  # a bias's gradient is summed in float32
        atol=1e-4,
    )
    return len(begun)


@pytest.mark.parametrize("name", ["nin", "low-rank-nin", "cnn", "low-rank-cnn"])
def test_a_network_in_chains_is_the_same_network(chains: ModuleType, name: str) -> None:
    network = build(name, classes=10, image_shape=(3, 32, 32), dropout=0.0).double()
    images = torch.randn(2, 3, 32, 32, dtype=torch.double)
    assert check_same(chains, list(network.children()), images) == 4


@pytest.mark.parametrize("batch_norm", [False, True])
@pytest.mark.parametrize("size", [28, 32])
@pytest.mark.parametrize("name", NETWORKS)
def test_what_suits_no_chain_goes_layer_by_layer(
    chains: ModuleType, name: str, size: int, batch_norm: bool
) -> None:
    network = build(
        name, classes=7, image_shape=(1, size, size), dropout=0.0, batch_norm=batch_norm
    ).double()
    images = torch.randn(3, 1, size, size, dtype=torch.double)
    check_same(chains, list(network.children()), images)


def test_images_that_want_a_gradient_get_it(chains: ModuleType) -> None:
    relu, pool = nn.ReLU(), nn.MaxPool2d(2)
    for layers in (
        [SameSize(32, 64, 1), relu, SameSize(64, 96, 1), relu],
        [SameSize(32, 64, 1), relu, pool],
        [SameSize(8, 32, 3), relu, SameSize(32, 64, 1), relu, pool],
        [SameSize(8, 32, 3), relu],
        [SameSize(8, 32, 3), relu, nn.MaxPool2d(3)],
        [SameSize(8, 32, 3)],
    ):
        channels = layers[0].in_channels
        images = torch.randn(4, channels, 8, 8, dtype=torch.double, requires_grad=True)
        check_same(chains, [layer.double() for layer in layers], images)


@pytest.mark.parametrize("first", [8, 31])
def test_maps_that_suit_no_link_are_none(chains: ModuleType, first: int) -> None:
    """Patches cannot be cut of maps that lack their ReLU, nor can 31 maps be 32."""
    relu = nn.ReLU()
    for middle, size in ((3, 3), (7, 3), (31, 1)):
        layers = [SameSize(first, middle, 3), relu, SameSize(middle, 32, size), relu]
        images = torch.randn(4, first, 8, 8, dtype=torch.double, requires_grad=True)
        check_same(chains, [layer.double() for layer in layers], images)
    layers = [SameSize(first, 32, 1), relu, SameSize(32, 32, 1), relu]
    check_same(chains, [layer.double() for layer in layers], images)


@pytest.mark.parametrize("first", [32, 8])
def test_one_image_in_any_order_of_memory_is_laid_out_in_rows(
    chains: ModuleType, first: int
) -> None:
    layers = [SameSize(first, 64, 1 if first == 32 else 3), nn.ReLU(), SameSize(64, 64, 1)]
    layers += [nn.ReLU(), nn.MaxPool2d(2)]
    images = torch.randn(1, first, 8, 8, dtype=torch.double)
    for stored in (images, images.to(memory_format=torch.channels_last)):
        assert check_same(chains, [layer.double() for layer in layers], stored) == 1


def test_a_pool_that_also_tells_places_is_left_alone(chains: ModuleType) -> None:
    layers = [SameSize(32, 64, 1), nn.ReLU(), nn.MaxPool2d(2, return_indices=True)]
    images = torch.randn(4, 32, 8, 8)
    torch.testing.assert_close(chains.trained(layers, images), nn.Sequential(*layers)(images))
