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
    """What a chain of layers makes of bfloat16 images, in training on a GPU.

    Every value has one reader here. So a reader may already put the zeros of a ReLU's gradient into
    its own, which saves a pass over memory.
    """
    layers = list(layers)
    place = 0
    while place < len(layers):
        layer, rest = layers[place], layers[place + 1 :]
        place += 1
        if isinstance(layer, nn.Dropout) and images.dim() == 4:
            # In the order of memory, or a compiler lays the maps out anew for their random numbers.
            images = layer(images.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)
            continue
        if not isinstance(layer, Whole) or not rest or not isinstance(rest[0], nn.ReLU):
            images = layer(images)
            continue
        links = _links([layer, *rest], images)
        start = None
        if not links:
            weight, start = layer.whole()
            sides = weight.shape[2:]
            images = functional.conv2d(images, weight, padding=(sides[0] // 2, sides[1] // 2))
            place += 1
            links = _links(layers[place:], images, started=True)
        else:
            place -= 1
        place += 2 * len(links)
        pool = _halves(layers[place:], images)
        place += int(pool)
        images = chained(images, start, links, pool=pool)
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
    odd = images.shape[2] % 2 or images.shape[3] % 2
    return usual and not odd and not pool.return_indices


def chained(images: Tensor, start: Tensor | None, links: Sequence[Link], *, pool: bool) -> Tensor:
    """The links in turn, and a 2 x 2 max pool; before them a bias and ReLU, where one is given."""
    seen = images.permute(0, 2, 3, 1)
    if links and links[0][0].shape[1] < EIGHT:
        seen = patches(images, links[0][0])
    count, height, width, depth = seen.shape
    # Of one image in another order of memory a view would do, which the kernels cannot read.
    rows = seen.reshape(-1, depth).contiguous()
    parameters = [
        part.to(images.dtype) for weight, bias in links for part in (flattened(weight), bias)
    ]
    if start is not None:
        start = start.to(images.dtype)
    if not links and not pool and start is not None:
        made = (rows + start).relu()
    else:
        made = Chain.apply(rows, start, (height, width) if pool else None, *parameters)
    if pool:
        height, width = height // 2, width // 2
    return made.view(count, height, width, -1).permute(0, 3, 1, 2)


class Chain(torch.autograd.Function):
    """Linear layers with a ReLU after each, over rows of maps, and perhaps a 2 x 2 max pool.

    The first rows may be sums that lack a bias and ReLU, `start`. `square` is the size of the maps
    that are pooled.
    """

    @staticmethod
    def forward(
        ctx: Any,
        rows: Tensor,
        start: Tensor | None,
        square: tuple[int, int] | None,
        *parameters: Tensor,
    ) -> Tensor:
        """The last link's maps, pooled."""
        weights, biases = parameters[::2], parameters[1::2]
        outputs = [rows if start is None else (rows + start).relu()]
        for weight, bias in zip(weights, biases, strict=True):
            outputs.append(product_relu(outputs[-1], weight, bias))
        ctx.started, ctx.square = start is not None, square
        ctx.save_for_backward(*weights, *outputs)
        return outputs[-1] if square is None else largest(squared(outputs[-1], square))

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Any, ...]:
        """The gradients from the last to the first, the sums of each with it."""
        links = len(ctx.saved_tensors) // 2
        weights, outputs = ctx.saved_tensors[:links], ctx.saved_tensors[links:]
        last = outputs[-1]
        if ctx.square is None:
            gradient = torch.where(last > 0, gradient, 0)
            sums = gradient.sum(0, dtype=torch.float32)
        else:
            whole, parts = winners(gradient.contiguous(), squared(last, ctx.square))
            gradient, sums = whole.view(last.shape), parts.sum(0)
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


def squared(rows: Tensor, square: tuple[int, int]) -> Tensor:
    """Rows of maps as images (N, H, W, C)."""
    return rows.view(-1, *square, rows.shape[1])


def largest(images: Tensor) -> Tensor:
    """A 2 x 2 max pool of (N, H, W, C), as maxima that a compiler puts into its neighbours."""
    rows = torch.maximum(images[:, ::2], images[:, 1::2])
    return torch.maximum(rows[:, :, ::2], rows[:, :, 1::2])
