"""How far the tensors of two results are apart; those of other shapes are infinitely so."""

import math
from typing import Any

import torch
from torch import Tensor

from sparsepath.deploy.graph.graph import mapped


def tensors_in(structure: Any) -> list[Tensor]:
    """Every tensor of a result, in order."""
    found: list[Tensor] = []
    mapped(structure, lambda leaf: found.append(leaf) if isinstance(leaf, Tensor) else None)
    return found


def difference(wanted: Any, given: Any) -> tuple[float, float]:
    """max |difference| and max |wanted| over all tensors of two results."""
    ours, theirs = ([_numbers(x) for x in tensors_in(each)] for each in (wanted, given))
    largest = max((float(x.abs().max()) for x in ours if x.numel()), default=0.0)
    if [x.shape for x in ours] != [x.shape for x in theirs]:
        return math.inf, largest
    pairs = ((a, b) for a, b in zip(ours, theirs, strict=True) if a.numel())
    apart = [float((a - b).abs().max()) for a, b in pairs]
    # A comparison with NaN is never true: max() alone would leave it out.
    return math.nan if any(map(math.isnan, apart)) else max(apart, default=0.0), largest


def _numbers(values: Tensor) -> Tensor:
    """What can be subtracted: True and False as 1 and 0."""
    return values.long() if values.dtype == torch.bool else values
