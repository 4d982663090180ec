"""Layers as a CPU trains them soonest: ReLU and the pooling after it in one pass over the maps."""

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn

from sparsepath import native


class ReluPool(torch.autograd.Function):
    """The largest of each 2 x 2 pixels, or zero: the values of ReLU and then pooling."""

    @staticmethod
    def forward(ctx: Any, images: Tensor) -> Tensor:
        """Keep where each value came from, a byte each: ReLU and pooling would keep all maps."""
        count, maps, height, width = images.shape
        half = (count, maps, height // 2, width // 2)
        pooled = torch.empty(half, dtype=images.dtype, memory_format=torch.channels_last)
        places = torch.empty(half, dtype=torch.uint8, memory_format=torch.channels_last)
        native.relu_pool(images, pooled, places)
        ctx.places = places
        return pooled

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        """Each gradient goes where its value came from."""
        gradient = gradients[0].contiguous(memory_format=torch.channels_last)
        count, maps, height, width = gradient.shape
        whole = (count, maps, 2 * height, 2 * width)
        back = torch.empty(whole, dtype=gradient.dtype, memory_format=torch.channels_last)
        native.relu_pool(back, gradient, ctx.places, back=True)
        return back


def trained(layers: Iterable[nn.Module], images: Tensor) -> Tensor:
    """What a chain of layers makes of images, a ReLU and the pooling after it as one."""
    waiting = list(layers)
    while waiting:
        layer = waiting.pop(0)
        if isinstance(layer, nn.ReLU) and waiting and _pools(waiting[0], images):
            waiting.pop(0)
            images = ReluPool.apply(images)
        else:
            images = layer(images)
    return images


def _pools(layer: nn.Module, images: Tensor) -> bool:
    """Whether this pools such maps by the kernel's own rule."""
    if not isinstance(layer, nn.MaxPool2d) or images.dim() != 4 or not native.takes(images):
        return False
    halves = (layer.kernel_size, layer.stride, layer.padding, layer.dilation) == (2, 2, 0, 1)
    return halves and images.shape[2] % 2 == images.shape[3] % 2 == 0 and images.numel() > 0
