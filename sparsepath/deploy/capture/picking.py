"""Calls that add, drop or pick axes, as operations that leave all lengths open."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import torch

from sparsepath.deploy.capture.lengths import FULL, Lengths
from sparsepath.deploy.capture.translate import (
    COMPUTED_SHAPE,
    Draft,
    Length,
    Same,
    Unknown,
    as_plain,
    as_value,
)
from sparsepath.deploy.graph.graph import Value

ODD = "it picks by something else than slices and numbers"


def picked(lengths: Lengths, input: Value, index: Any) -> Draft | Same:
    """What `x[:, 0, ..., None]` takes: slices, then axes of one number dropped, then new ones."""
    parts = list(index) if isinstance(index, tuple) else [index]
    if any(not _plain(part) for part in parts):
        raise Unknown(ODD)
    parts, behind = _spelled_out(lengths, input, parts)
    own = [part for part in parts if part is not None]
    lengths.given(input, len(own))
    dropped = [axis for axis, part in enumerate(own) if isinstance(part, int)]
    if not all(_reaches(lengths, input, axis, own[axis]) for axis in dropped):
        raise Unknown(COMPUTED_SHAPE)
    slices = tuple(_slice(part) for part in own)
    least = lengths.least(input) - len(dropped)
    if 0 in dropped and least < 1:
        raise Unknown(COMPUTED_SHAPE)
    steps = [Draft("index", (), {"slices": slices})] if any(x != FULL for x in slices) else []
    steps += [_dropped(axis) for axis in reversed(dropped)]
    kept = [part for part in parts if not isinstance(part, int)]
    for axis in (place for place, part in enumerate(kept) if part is None):
        steps.append(_added(axis, least, lengths.axes_of(input) is not None))
        least += 1
    steps += [Draft("unflatten", (), {"dim": -1, "sizes": (-1, 1)})] * behind
    return _chain(input, steps)


def unsqueezed(lengths: Lengths, input: Any, dim: int) -> Draft:
    """One more axis, of length one."""
    value = as_value(input)
    axes, least = lengths.axes_of(value), lengths.least(value)
    if dim < 0 and axes is None:  # counted from behind it is known all the same
        parted = (-1, 1) if dim == -1 else (1, -1)
        return Draft("unflatten", (value,), {"dim": min(-1, dim + 1), "sizes": parted})
    place = dim if axes is None or dim >= 0 else dim + axes + 1
    return replace(_added(place, least, axes is not None), inputs=(value,))


def squeezed(lengths: Lengths, input: Any, dim: Any = None) -> Draft | Same:
    """Without an axis, if its length is known to be one."""
    value = as_value(input)
    axes = lengths.axes_of(value)
    axis = dim + axes if isinstance(dim, int) and dim < 0 and axes is not None else dim
    if not isinstance(axis, int) or axis < 0:
        raise Unknown(COMPUTED_SHAPE)
    length = lengths.settled(Length(value, axis))
    if not isinstance(length, int) or (axis == 0 and lengths.least(value) < 2):
        raise Unknown(COMPUTED_SHAPE)
    return replace(_dropped(axis), inputs=(value,)) if length == 1 else Same(value)


def narrowed(lengths: Lengths, input: Any, dim: int, start: int, length: int) -> Draft:
    """A part of one axis."""
    as_plain((dim, start, length))
    if not all(isinstance(x, int) for x in (dim, start, length)) or min(dim, start) < 0:
        raise Unknown(COMPUTED_SHAPE)
    if length < 1 or not _reaches(lengths, as_value(input), dim, start + length - 1):
        raise Unknown(COMPUTED_SHAPE)
    part = (start, start + length, None)
    return Draft("index", (as_value(input),), {"slices": (*(FULL,) * dim, part)})


def selected(lengths: Lengths, input: Any, dim: int, index: int) -> Draft | Same:
    """One place of an axis, which is dropped."""
    axes = lengths.axes_of(as_value(input))
    axis = dim + axes if dim < 0 and axes is not None else dim
    if axis < 0:
        raise Unknown(COMPUTED_SHAPE)
    return picked(lengths, as_value(input), (*(slice(None),) * axis, index))


PICKS: Mapping[Any, Callable[..., Draft | Same]] = {
    **dict.fromkeys(("unsqueeze", torch.unsqueeze), unsqueezed),
    **dict.fromkeys(("squeeze", torch.squeeze), squeezed),
    **dict.fromkeys(("narrow", torch.narrow), narrowed),
    **dict.fromkeys(("select", torch.select), selected),
}


def _reaches(lengths: Lengths, input: Value, axis: int, place: int) -> bool:
    """Whether an axis is known to have a place: where it has none the model itself says so."""
    length = lengths.settled(Length(input, axis))
    return place in (0, -1) or (isinstance(length, int) and -length <= place < length)


def _plain(part: Any) -> bool:
    number = isinstance(part, int) and not isinstance(part, bool)
    return number or part is None or part is Ellipsis or isinstance(part, slice)


def _spelled_out(lengths: Lengths, input: Value, parts: list[Any]) -> tuple[list[Any], int]:
    """With whole slices for the three dots; and the new axes that can only be counted from behind.

    How many slices that would be is not known of a value whose number of axes is not.
    """
    if Ellipsis not in parts:
        return parts, 0
    place, axes = parts.index(Ellipsis), lengths.axes_of(input)
    behind = [part for part in parts[place + 1 :] if part is not None]
    before = [part for part in parts[:place] if part is not None]
    if axes is None:
        if behind:
            raise Unknown(COMPUTED_SHAPE)
        return parts[:place], len(parts) - place - 1
    whole = [slice(None)] * (axes - len(before) - len(behind))
    return [*parts[:place], *whole, *parts[place + 1 :]], 0


def _slice(part: Any) -> tuple[Any, ...]:
    if isinstance(part, int):
        return (part, None if part == -1 else part + 1, None)
    return tuple(as_plain(x) for x in (part.start, part.stop, part.step))


def _dropped(axis: int) -> Draft:
    """An axis of one number joined with its neighbour."""
    start = max(0, axis - 1)
    return Draft("flatten", (), {"start_dim": start, "end_dim": start + 1})


def _added(axis: int, least: int, exact: bool) -> Draft:
    """An axis of one number parted from its neighbour, of a value of at least so many axes."""
    if 0 <= axis < least:
        return Draft("unflatten", (), {"dim": axis, "sizes": (1, -1)})
    if exact and 0 < axis == least:
        return Draft("unflatten", (), {"dim": axis - 1, "sizes": (-1, 1)})
    raise Unknown(COMPUTED_SHAPE)


def _chain(input: Value, steps: list[Draft]) -> Draft | Same:
    if not steps:
        return Same(input)
    last: Draft | None = None
    for step in reversed(steps):
        last = replace(step, then=last)
    assert last is not None
    return replace(last, inputs=(input,))
