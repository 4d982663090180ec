"""Convolutions as a GPU trains them soonest: those of few or odd maps as products."""

import torch
from torch import Tensor, nn
from torch.nn import functional

EIGHT = 8
"""What numbers of maps should be multiples of, for a GPU's matrix units."""


class SameSize(nn.Conv2d):
    """A convolution of stride 1 that keeps the size of its maps."""

    def __init__(self, inputs: int, outputs: int, size: int) -> None:
        """Kernels of an odd `size`."""
        super().__init__(inputs, outputs, size, padding=size // 2)

    def forward(self, images: Tensor) -> Tensor:
        """The same maps everywhere; how they are made differs."""
        if self.training and images.is_cuda:  # in this order: a trace has no device to ask for
            assert self.bias is not None
            return convolved(images, self.weight, self.bias)
        return super().forward(images)


def convolved(images: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """A convolution that keeps the size, by cuDNN if its numbers of maps suit the matrix units."""
    outputs, inputs, height, width = weight.shape
    if inputs % EIGHT or outputs % EIGHT:
        return as_product(images, weight, bias)
    return functional.conv2d(images, weight, bias, padding=(height // 2, width // 2))


def as_product(images: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """The same as one product of patches and weights, both filled up with zeros."""
    outputs, _, height, width = weight.shape
    rows, columns = images.shape[2:]
    around = (width // 2, width // 2, height // 2, height // 2)
    pixels = functional.pad(images, around).permute(0, 2, 3, 1)
    shifted = [
        pixels[:, y : y + rows, x : x + columns] for y in range(height) for x in range(width)
    ]
    patches, flat = torch.cat(shifted, -1), weight.permute(0, 2, 3, 1).flatten(1)
    lacking, more = -flat.shape[1] % EIGHT, -outputs % EIGHT
    products = functional.linear(
        functional.pad(patches, (0, lacking)),
        functional.pad(flat, (0, lacking, 0, more)),
        functional.pad(bias, (0, more)),
    )
    return products[..., :outputs].permute(0, 3, 1, 2)
