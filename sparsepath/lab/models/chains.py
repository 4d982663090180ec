"""Layers as a GPU trains them soonest: products with their ReLU, gradients with its zeros."""

from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from sparsepath.lab.models.products import EIGHT, Whole, flattened, patches
from sparsepath.lab.models.triton_kernels import (
    ROOMY,
    ROWS,
    SIDES,
    masked_product,
    product_relu,
    winners,
)

__all__ = ["ROOMY", "trained"]

Link = tuple[Tensor, Tensor]
"""The weight and bias of a convolution that is a product, with a ReLU after it."""


def trained(layers: Iterable[nn.Module], images: Tensor) -> Tensor:
    """What layers make of bfloat16 images (N, C, H, W), one after the other, in training on a GPU.

    Every value has one reader here. So a reader may already put the zeros of a ReLU's gradient into
    its own, which saves a pass over memory.
    """
    rest = list(layers)
    while rest:
        layer = rest[0]
        if not isinstance(layer, Whole) or not rest[1:] or not isinstance(rest[1], nn.ReLU):
            images = layer(images)
            rest = rest[1:]
            continue
        start, links = None, _links(rest, images)
        if not links:
            weight, start = layer.whole()
            height, width = weight.shape[2:]
            images = functional.conv2d(images, weight, padding=(height // 2, width // 2))
            rest = rest[2:]
            links = _links(rest, images, started=True)
        rest = rest[2 * len(links) :]
        pool = _halves(rest, images)
        images = chained(images, start, links, pool=pool)
        rest = rest[1:] if pool else rest
    return images


def _links(layers: Sequence[nn.Module], images: Tensor, *, started: bool = False) -> list[Link]:
    """The links that a chain from here on has; patches are cut of its first maps alone.

    Not where it is `started`: those maps then lack a bias and ReLU.
    """
    found: list[Link] = []
    if (images.numel() // images.shape[1]) % ROWS:
        return found
    for layer, after in zip(layers[::2], layers[1::2], strict=False):
        if not isinstance(layer, Whole) or not isinstance(after, nn.ReLU):
            break
        weight, bias = layer.whole()
        outputs, inputs, height, width = weight.shape
        few = inputs < EIGHT and not found and not started
        if not few and not height == width == 1:
            break
        depth = flattened(weight).shape[1] if few else inputs
        if depth not in SIDES or outputs not in SIDES:
            break
        found.append((weight, bias))
    return found


def _halves(layers: Sequence[nn.Module], images: Tensor) -> bool:
    """Whether the next layer is a max pool that halves these maps, none left over."""
    if not layers or not isinstance(layers[0], nn.MaxPool2d):
        return False
    pool = layers[0]
    usual = pool.kernel_size == pool.stride == 2 and pool.padding == 0 and pool.dilation == 1
    return usual and not (pool.return_indices or images.shape[2] % 2 or images.shape[3] % 2)


def chained(images: Tensor, start: Tensor | None, links: Sequence[Link], *, pool: bool) -> Tensor:
    """The links in turn, and a 2 x 2 max pool; before them a bias and ReLU, where one is given."""
    few = links and links[0][0].shape[1] < EIGHT
    rows = patches(images, links[0][0]).flatten(0, 1) if few else as_rows(images)
    parameters = [
        part.to(images.dtype) for weight, bias in links for part in (flattened(weight), bias)
    ]
    if start is not None:
        start = start.to(images.dtype)
    count, width = images.shape[0], images.shape[3]
    made = Chain.apply(rows, start, width if pool else None, *parameters)
    return as_maps(made, count, width // 2 if pool else width)


# A compiler that sees four axes and convolutions takes the second for the maps, and lays (N, H, W,
# C) out anew to have them innermost. So there are rows, or maps whose memory is in that order.
def as_rows(images: Tensor) -> Tensor:
    """The maps (N, C, H, W) with those of a pixel in one row, and rows in the order of memory."""
    return images.flatten(2).transpose(1, 2).flatten(0, 1).contiguous()


def as_maps(rows: Tensor, count: int, width: int) -> Tensor:
    """The same back again, of so many images of this width."""
    maps = rows.view(count, -1, rows.shape[1]).transpose(1, 2)
    return maps.view(count, maps.shape[1], -1, width)


class Chain(torch.autograd.Function):
    """Linear layers with a ReLU after each, over rows of maps, and perhaps a 2 x 2 max pool.

    The first rows may be sums that lack a bias and ReLU, `start`. `pooled` is the width of the maps
    that are to be pooled.
    """

    @staticmethod
    def forward(
        ctx: Any, rows: Tensor, start: Tensor | None, pooled: int | None, *parameters: Tensor
    ) -> Tensor:
        """The last link's rows, or the pool's."""
        weights, biases = parameters[::2], parameters[1::2]
        outputs = [rows if start is None else (rows + start).relu()]
        for weight, bias in zip(weights, biases, strict=True):
            outputs.append(product_relu(outputs[-1], weight, bias))
        ctx.started, ctx.pooled = start is not None, pooled
        ctx.save_for_backward(*weights, *outputs)
        return outputs[-1] if pooled is None else largest(outputs[-1], pooled)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Any, ...]:
        """The gradients from the last to the first, the sums of each with it."""
        links = len(ctx.saved_tensors) // 2
        weights, outputs = ctx.saved_tensors[:links], ctx.saved_tensors[links:]
        if ctx.pooled is None:
            gradient = torch.where(outputs[-1] > 0, gradient.contiguous(), 0)
            sums = gradient.sum(0, dtype=torch.float32)
        else:
            gradient, parts = winners(gradient.contiguous(), outputs[-1], ctx.pooled)
            sums = parts.sum(0)
        found: list[Tensor] = []
        for link in reversed(range(links)):
            found = [gradient.t() @ outputs[link], sums.to(gradient.dtype), *found]
            if link or ctx.started:
                gradient, parts = masked_product(gradient, weights[link], outputs[link])
                sums = parts.sum(0)
            elif ctx.needs_input_grad[0]:
                gradient = gradient @ weights[link]
        first = sums.to(gradient.dtype) if ctx.started else None
        return (gradient if ctx.needs_input_grad[0] else None, first, None, *found)


def largest(rows: Tensor, width: int) -> Tensor:
    """A 2 x 2 max pool of maps so wide, as maxima that a compiler puts into its neighbours."""
    windows = rows.view(-1, 2, width // 2, 2, rows.shape[1])
    upper, lower = (torch.maximum(w[:, :, 0], w[:, :, 1]) for w in windows.unbind(1))
    return torch.maximum(upper, lower).flatten(0, 1)
