"""Weights that are whole numbers of -127 to 127 times a scale: finding both again, exactly.

A quantised weight is a float32 like any other. Whether it is a level times a scale is seen from the
largest weight of a slice: it is some level, so that only 127 scales, and their neighbours among the
floats, can be the one; a few weights rule out nearly all of them.
"""

from collections.abc import Iterable, Iterator, Sequence
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
    """Integers of an array's shape, and a scale for each slice of it, or one for all."""

    levels: Tensor
    """int8"""
    scales: Tensor
    """float32, one axis, above zero"""
    axis: int = 0
    """of the output channels: 1 in a transposed convolution, whose groups share the first axis"""

    @property
    def values(self) -> Tensor:
        """The weights: each level times its scale, in float32."""
        return self.levels.float() * spread(self.scales, self.levels.shape, axis=self.axis)


def spread(scales: Tensor, shape: Sequence[int], *, axis: int) -> Tensor:
    """The scales beside the weights that they belong to."""
    ones = [1] * (len(shape) - axis - 1)
    if axis == 0:
        return scales.reshape(-1, *ones)
    groups = len(scales) // shape[1]
    each = scales.reshape(groups, 1, shape[1]).expand(groups, shape[0] // groups, shape[1])
    return each.reshape(shape[0], shape[1], *ones)


def by_output(weight: Tensor, *, axis: int, groups: int) -> Tensor:
    """The weight with a row for each output channel, in the order of their scales."""
    if axis == 0:
        return weight.reshape(len(weight), -1)
    parts = weight.reshape(groups, len(weight) // groups, weight.shape[1], -1)
    return parts.transpose(1, 2).reshape(groups * weight.shape[1], -1)


def levels_of(array: Tensor) -> Levels | None:
    """The levels and scales that give exactly this array, or None where there are none."""
    if array.dtype != torch.float32 or array.dim() == 0 or not bool(array.isfinite().all()):
        return None
    for axis, rows in _slicings(array.numpy()):
        scales = _scales(rows)
        if scales is None:
            continue
        each = spread(scales, array.shape, axis=axis).double()
        found = Levels((array.double() / each).round().to(torch.int8), scales, axis)
        if torch.equal(found.values, array):
            return found
    return None


def _slicings(array: Floats) -> Iterator[tuple[int, Iterable[Floats]]]:
    """The slices that may have a scale each, by the axis of the output channels, few first."""
    yield 0, [array]
    # Slices shorter than that are no longer than their scale's four bytes.
    if array.size >= SHORTEST * len(array):
        yield 0, array
    for groups in range(1, len(array) + 1) if array.ndim > 1 and array.size else ():
        number = groups * array.shape[1]
        if len(array) % groups == 0 and array.size >= SHORTEST * number:
            parts = array.reshape(groups, -1, *array.shape[1:])
            yield 1, (part[:, channel] for part in parts for channel in range(array.shape[1]))


def _scales(rows: Iterable[Floats]) -> Tensor | None:
    """A scale for each slice, or None as soon as one has none."""
    scales: list[numpy.float32] = []
    for row in map(numpy.ravel, rows):
        weights = numpy.unique(numpy.abs(row[:4096]))
        if len(weights) > HIGHEST + 1:
            return None
        weights = numpy.unique(numpy.abs(row))
        weights = weights[weights > 0]
        scale = numpy.float32(1)
        if len(weights):
            found = _scale(weights) if len(weights) <= HIGHEST else None
            if found is None:
                return None
            scale = found
        scales.append(scale)
    return torch.from_numpy(numpy.array(scales, numpy.float32))


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
