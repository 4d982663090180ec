"""What norms mean, in torch, and what has a number for each channel: scales, shifts and slopes."""

from collections.abc import Sequence
from typing import cast

import torch
from torch import Tensor
from torch.nn import functional

from sparsepath.deploy.graph.order import format_of, in_format


def batch_norm(
    x: Tensor,
    *,
    mean: Tensor,
    variance: Tensor,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float,
    momentum: float | None = 0.1,
    batches: int = 0,
    axes: int | None = None,
    learned: bool = True,
) -> Tensor:
    """Batch norm with stored statistics; all but `eps` is for whoever trains it further."""
    return functional.batch_norm(x, mean, variance, weight, bias, eps=eps)


def group_norm(
    x: Tensor,
    *,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    num_groups: int,
    eps: float,
    learned: bool = True,
) -> Tensor:
    """Each image's groups of channels, brought to mean 0 and variance 1.

    With pixels before channels torch takes the variance as a difference of two large numbers, which
    leaves nothing of that of a channel that is nearly constant.
    """
    normed = functional.group_norm(x.contiguous(), num_groups, weight, bias, eps)
    return cast(Tensor, in_format(normed, format_of(x)))


def layer_norm(
    x: Tensor,
    *,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    normalized_shape: Sequence[int],
    eps: float,
    learned: bool = True,
) -> Tensor:
    """The last axes, of this shape, brought to mean 0 and variance 1."""
    return functional.layer_norm(x, tuple(normalized_shape), weight, bias, eps)


def prelu(x: Tensor, *, weight: Tensor, learned: bool = True) -> Tensor:
    """What is negative times a slope: one, or one for each channel."""
    return functional.prelu(x, weight)


def affine(x: Tensor, *, scale: Tensor, shift: Tensor) -> Tensor:
    """A scale and a shift for each channel: what is left of a batch norm that nothing absorbs."""
    shape = [1, -1, *[1] * (x.dim() - 2)]
    return torch.addcmul(shift.view(shape), x, scale.view(shape))
