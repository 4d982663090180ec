"""Weights that are whole numbers of -127 to 127 times a scale: finding both again, exactly.

A quantised weight is a float32 like any other. Whether it is a level times a scale is seen from the
largest weight of a slice: it is some level, so that only 127 scales, and their neighbours among the
floats, can be the one; a few weights rule out nearly all of them.
"""

from dataclasses import dataclass

import numpy
import torch
from numpy.typing import NDArray
from torch import Tensor

HIGHEST = 127
# float32 of level x scale, and of the largest / its level, are each off by half a unit at most.
NEIGHBOURS = 2
PROBES = 16
SHORTEST = 4
Floats = NDArray[numpy.float32]


@dataclass(frozen=True, eq=False)
class Levels:
    """Integers of an array's shape, and the scale of each slice of its first axis, or one."""

    levels: Tensor
    """int8"""
    scales: Tensor
    """float32, one axis, above zero"""

    @property
    def values(self) -> Tensor:
        """The weights: each level times its scale, in float32."""
        scales = self.scales
        if len(scales) > 1:
            scales = scales.reshape(-1, *[1] * (self.levels.dim() - 1))
        return self.levels.float() * scales


def levels_of(array: Tensor) -> Levels | None:
    """The levels and scales that give exactly this array, or None where there are none."""
    if array.dtype != torch.float32 or array.dim() == 0 or not bool(array.isfinite().all()):
        return None
    scales = _scales(array.reshape(1, -1).numpy())
    # Slices shorter than that are no longer than their scale's four bytes.
    if scales is None and array.numel() >= SHORTEST * len(array):
        scales = _scales(array.reshape(len(array), -1).numpy())
    if scales is None:
        return None
    rows = array.reshape(len(scales), -1).double() / torch.from_numpy(scales).double()[:, None]
    found = Levels(rows.round().to(torch.int8).reshape(array.shape), torch.from_numpy(scales))
    return found if torch.equal(found.values, array) else None


def _scales(rows: Floats) -> Floats | None:
    """A scale for each row, or None as soon as a row has none."""
    scales = numpy.ones(len(rows), numpy.float32)
    for number, row in enumerate(rows):
        weights = numpy.unique(numpy.abs(row[:4096]))
        if len(weights) > HIGHEST + 1:
            return None
        weights = numpy.unique(numpy.abs(row))
        weights = weights[weights > 0]
        if not len(weights):
            continue
        scale = _scale(weights) if len(weights) <= HIGHEST else None
        if scale is None:
            return None
        scales[number] = scale
    return scales


def _scale(weights: Floats) -> numpy.float32 | None:
    """The scale of which distinct positive weights, in rising order, are whole multiples."""
    highest = numpy.arange(HIGHEST, 0, -1)
    ratios = highest[:, None] * (weights[-PROBES:].astype(float) / float(weights[-1]))
    # Two roundings are at most 2^-23 of a ratio of at most 127.
    fits = (numpy.abs(ratios - ratios.round()) < HIGHEST * 2.0**-22).all(1)
    for level in highest[fits]:
        middle = numpy.float32(weights[-1] / numpy.float32(level))
        for scale in _around(middle):
            if not scale > 0:
                continue
            levels = (weights.astype(float) / float(scale)).round()
            if levels[-1] <= HIGHEST and numpy.array_equal(
                levels.astype(numpy.float32) * scale, weights
            ):
                return scale
    return None


def _around(number: numpy.float32) -> list[numpy.float32]:
    """A float32 and its nearest neighbours, itself first."""
    found = [number]
    for end in (numpy.float32(0), numpy.float32(numpy.inf)):
        near = number
        for _ in range(NEIGHBOURS):
            near = numpy.nextafter(near, end, dtype=numpy.float32)
            found.append(near)
    return found
