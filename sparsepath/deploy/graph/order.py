"""The order of values in memory: outputs come as the model gives them, whoever computes them."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

Formats = Mapping[str, torch.memory_format | None]
"""by value, the order in memory that the model gives it, if it has one"""
AS_THEY_COME: Formats = {}
# What else has the order is decided by the number of axes; a plain order comes first.
FORMATS = {
    4: (torch.contiguous_format, torch.channels_last),
    5: (torch.contiguous_format, torch.channels_last_3d),
}


def formats_of(x: Tensor) -> tuple[torch.memory_format, ...]:
    """The orders that a tensor of so many axes may have."""
    return FORMATS.get(x.dim(), (torch.contiguous_format,))


def format_of(x: Tensor) -> torch.memory_format | None:
    """The order of a tensor in memory; None for a view that has none of its own."""
    if x.layout != torch.strided or x.is_nested:
        return None
    return next((f for f in formats_of(x) if x.is_contiguous(memory_format=f)), None)


def in_format(x: Any, wanted: torch.memory_format | None) -> Any:
    """The same value in the order that is wanted, itself if it has it already."""
    if not isinstance(x, Tensor) or x.layout != torch.strided or wanted not in formats_of(x):
        return x
    return x.contiguous(memory_format=wanted)
