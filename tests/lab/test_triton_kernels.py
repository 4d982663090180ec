"""The GPU's own kernels against plain torch."""

from types import ModuleType

import pytest
import torch
from torch import Tensor
from torch.nn import functional

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU"),
]
PAIRS = [(32, 192), (192, 160), (160, 96), (96, 160), (160, 192), (192, 192), (64, 128), (128, 32)]
"""Of the networks' links, there and back, and the sizes that none of them has."""


@pytest.fixture(scope="module")
def kernels() -> ModuleType:
    from sparsepath.lab.models import triton_kernels

    if not triton_kernels.ROOMY:
        pytest.skip("this GPU has too little shared memory")
    assert {side for pair in PAIRS for side in pair} == set(triton_kernels.SIDES)
    return triton_kernels


def drawn(*shape: int) -> Tensor:
    return torch.randn(*shape, device="cuda").bfloat16()


def check_rounded(found: Tensor, exact: Tensor) -> None:
    """Within a rounding to bfloat16 and the order of a float32 sum."""
    torch.testing.assert_close(found.double(), exact, rtol=2**-8, atol=1e-3)


@pytest.mark.parametrize(("depth", "width"), PAIRS)
def test_a_product_with_its_relu(kernels: ModuleType, depth: int, width: int) -> None:
    torch.manual_seed(depth + width)
    for rows in (64, 64 * 301):
        given, weight, bias = drawn(rows, depth), drawn(width, depth), drawn(width)
        exact = (given.double() @ weight.double().t() + bias.double()).relu()
        check_rounded(kernels.product_relu(given, weight, bias), exact)


@pytest.mark.parametrize(("depth", "width"), PAIRS)
def test_a_gradient_with_the_relus_zeros(kernels: ModuleType, depth: int, width: int) -> None:
    torch.manual_seed(depth + width)
    for rows in (64, 64 * 301):
        gradient, weight = drawn(rows, depth), drawn(depth, width)
        below = drawn(rows, width).relu()
        exact = torch.where(below > 0, gradient.double() @ weight.double(), 0)
        found, parts = kernels.masked_product(gradient, weight, below)
        check_rounded(found, exact)
        torch.testing.assert_close(parts.double().sum(0), exact.sum(0), rtol=1e-3, atol=0.05)


@pytest.mark.parametrize("shape", [(128, 32, 32, 96), (3, 16, 16, 192), (5, 6, 10, 40)])
def test_a_pools_gradient_goes_to_the_first_of_the_largest(
    kernels: ModuleType, shape: tuple[int, int, int, int]
) -> None:
    torch.manual_seed(0)
    count, height, width, maps = shape
    images = (drawn(*shape) * 4).round().relu() / 4  # many are equal
    gradient = drawn(count, height // 2, width // 2, maps)
    pixels = images.permute(0, 3, 1, 2).double().requires_grad_()
    pooled = functional.max_pool2d(pixels, 2)
    (exact,) = torch.autograd.grad(pooled, pixels, gradient.permute(0, 3, 1, 2).double())
    exact = torch.where(images > 0, exact.permute(0, 2, 3, 1), 0)
    found, parts = kernels.winners(gradient.flatten(0, 2), images.flatten(0, 2), width)
    assert torch.equal(found.view(shape).double(), exact)
    torch.testing.assert_close(parts.double().sum(0), exact.sum((0, 1, 2)), rtol=1e-4, atol=1e-3)


def test_what_is_no_number_stays_none(kernels: ModuleType) -> None:
    given, weight, bias = drawn(64, 32), drawn(96, 32), drawn(96)
    given[3, 5] = torch.nan
    found = kernels.product_relu(given, weight, bias)
    assert found[3].isnan().all()
    assert found.isnan().sum() == 96
