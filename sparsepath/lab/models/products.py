"""Convolutions as a GPU trains them soonest: those of few or odd maps as products."""

import torch
from torch import Tensor, nn
from torch.nn import functional

EIGHT = 8
"""What numbers of maps should be multiples of, for a GPU's matrix units."""


class Whole(nn.Module):
    """A layer that is one convolution of stride 1 with a bias, and keeps the size of its maps."""

    def whole(self) -> tuple[Tensor, Tensor]:
        """The weight and bias of that convolution."""
        raise NotImplementedError


class SameSize(nn.Conv2d, Whole):
    """A convolution of stride 1 that keeps the size of its maps."""

    def __init__(self, inputs: int, outputs: int, size: int) -> None:
        """Kernels of an odd `size`."""
        super().__init__(inputs, outputs, size, padding=size // 2)

    def forward(self, images: Tensor) -> Tensor:
        """The same maps everywhere; how they are made differs."""
        if self.training and images.is_cuda:  # in this order: a trace has no device to ask for
            return convolved(images, *self.whole())
        return super().forward(images)

    def whole(self) -> tuple[Tensor, Tensor]:
        """Its own."""
        assert self.bias is not None
        return self.weight, self.bias


def convolved(images: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """A convolution that keeps the size, by cuDNN if its numbers of maps suit the matrix units."""
    outputs, inputs, height, width = weight.shape
    if inputs % EIGHT or outputs % EIGHT:
        return as_product(images, weight, bias)
    return functional.conv2d(images, weight, bias, padding=(height // 2, width // 2))


def as_product(images: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """The same as one product of patches and weights, both filled up with zeros."""
    outputs = len(weight)
    more = -outputs % EIGHT
    flat = functional.pad(flattened(weight), (0, 0, 0, more))
    products = functional.linear(patches(images, weight), flat, functional.pad(bias, (0, more)))
    return products[..., :outputs].transpose(1, 2).view(-1, outputs, *images.shape[2:])


def patches(images: Tensor, weight: Tensor) -> Tensor:
    """What the weight's kernels see at every pixel (N, H W, C), filled up with zeros."""
    _, maps, height, width = weight.shape
    rows, columns = images.shape[2:]
    if height == width == 1:
        return functional.pad(images.flatten(2).transpose(1, 2), (0, _lacking(weight)))
    around = (width // 2, width // 2, height // 2, height // 2)
    seen = maps * height * width
    # By place, which a compiler makes one kernel of: a dozen shifted copies would be as many.
    place = torch.arange(seen + _lacking(weight), device=images.device, dtype=torch.int32)
    pixel = torch.arange(rows * columns, device=images.device, dtype=torch.int32)[:, None]
    tap = (place // maps).clamp(max=height * width - 1)
    y, x = pixel // columns + tap // width, pixel % columns + tap % width
    return torch.where(place < seen, functional.pad(images, around)[:, place % maps, y, x], 0)


def flattened(weight: Tensor) -> Tensor:
    """A weight as the matrix that patches are multiplied with."""
    return functional.pad(weight.permute(0, 2, 3, 1).flatten(1), (0, _lacking(weight)))


def _lacking(weight: Tensor) -> int:
    return -weight[0].numel() % EIGHT
