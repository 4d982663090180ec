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
        pooled, places = _maps(half, like=images), _maps(half, like=images, dtype=torch.uint8)
        native.relu_pool(images, pooled, places)
        ctx.places = places
        return pooled

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        """Each gradient goes where its value came from."""
        if torch.is_grad_enabled():  # and will be differentiated again
            each = [torch.where(ctx.places == place, gradients[0], 0) for place in range(4)]
            pixels: Tensor = torch.stack(each).unflatten(0, (2, 2)).permute(2, 3, 4, 0, 5, 1)
            return pixels.flatten(4).flatten(2, 3)
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
    hooks = (
        layer._forward_hooks,
        layer._forward_pre_hooks,
        layer._backward_hooks,
        layer._backward_pre_hooks,
    )
    return type(layer) is kind and not any(hooks)
