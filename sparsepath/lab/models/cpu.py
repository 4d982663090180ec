"""Layers as a CPU trains them soonest: ReLU and the pooling after it in one pass over the maps."""

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules import module as hooks

from sparsepath import native


class ReluPool(torch.autograd.Function):
    """The largest of each 2 x 2 pixels, or zero: the values of ReLU and then pooling."""

    @staticmethod
    def forward(ctx: Any, images: Tensor) -> Tensor:
        """Keep where each value came from, a byte each: ReLU and pooling would keep all maps."""
        count, maps, height, width = images.shape
        half = (count, maps, height // 2, width // 2)
        pooled, places = _maps(half, like=images), _maps(half, like=images, dtype=torch.uint8)
        native.relu_pool(images, pooled, places)
        ctx.places = places
        return pooled

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        """Each gradient goes where its value came from."""
        # It will be differentiated again, or stands for those of several results.
        if torch.is_grad_enabled() or not native.by_address(gradients[0]):
            count, maps, height, width = gradients[0].shape
            each = [torch.where(ctx.places == place, gradients[0], 0) for place in range(4)]
            rows = [
                torch.stack(pair, -1).reshape(count, maps, height, 2 * width)
                for pair in (each[:2], each[2:])
            ]
            return torch.stack(rows, 3).reshape(count, maps, 2 * height, 2 * width)
        gradient = gradients[0].contiguous(memory_format=torch.channels_last)
        count, maps, height, width = gradient.shape
        back = _maps((count, maps, 2 * height, 2 * width), like=gradient)
        native.relu_pool(back, gradient, ctx.places, back=True)
        return back


def _maps(shape: tuple[int, ...], *, like: Tensor, dtype: torch.dtype | None = None) -> Tensor:
    """Room for maps, pixel after pixel, beside others."""
    order = torch.channels_last
    return torch.empty(shape, dtype=dtype or like.dtype, device=like.device, memory_format=order)


def trained(layers: Iterable[nn.Module], images: Tensor) -> Tensor:
    """What a chain of layers makes of images, a ReLU and the pooling after it as one."""
    waiting = list(layers)
    while waiting:
        layer = waiting.pop(0)
        if _bare(layer, nn.ReLU) and waiting and _pools(waiting[0], images):
            waiting.pop(0)
            images = ReluPool.apply(images)
        else:
            images = layer(images)
    return images


def _pools(layer: nn.Module, images: Tensor) -> bool:
    """Whether this pools such maps by the kernel's own rule."""
    if not isinstance(layer, nn.MaxPool2d) or not _bare(layer, nn.MaxPool2d):
        return False
    if images.dim() != 4 or not images.numel() or not native.takes(images):
        return False
    halves = (layer.kernel_size, layer.stride, layer.padding, layer.dilation) == (2, 2, 0, 1)
    even = images.shape[2] % 2 == images.shape[3] % 2 == 0
    return halves and even and not layer.return_indices


def _bare(layer: nn.Module, kind: type[nn.Module]) -> bool:
    """Whether this is such a layer and nothing else, upon whose work nobody waits."""
    names = ("forward_hooks", "forward_pre_hooks", "backward_hooks", "backward_pre_hooks")
    own = (getattr(layer, f"_{name}") for name in names)
    everywhere = (getattr(hooks, f"_global_{name}") for name in names)
    watched = any(own) or any(everywhere) or "forward" in vars(layer)
    return type(layer) is kind and not watched
