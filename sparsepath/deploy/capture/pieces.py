"""Calls that give several values: the slices that `chunk` and `split` cut, extremes and places."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx

from sparsepath.deploy.capture.lengths import FULL, Lengths
from sparsepath.deploy.capture.translate import (
    COMPUTED_SHAPE,
    Draft,
    Length,
    Unknown,
    as_value,
    translates,
)
from sparsepath.deploy.graph.graph import Attribute, Value

CHUNKS, SPLITS = ("chunk", torch.chunk), ("split", torch.split)


@dataclass(frozen=True)
class _Cut:
    """What is cut and along which axis: how long the pieces are of so many, and of how many."""

    value: Any
    axis: int
    counts: Callable[[int], list[int]]
    whole: int | None = None


def _chunks(input: Any, chunks: Any, dim: int = 0) -> _Cut:
    if not isinstance(chunks, int):
        raise TypeError("it hangs on a length that is not known")
    return _Cut(input, dim, lambda n: [-(-n // chunks)] * chunks)


def _splits(tensor: Any, split_size_or_sections: Any, dim: int = 0) -> _Cut:
    size = split_size_or_sections
    if isinstance(size, int):
        return _Cut(tensor, dim, lambda n: [size] * -(-n // size))
    listed = list(size)
    return _Cut(tensor, dim, lambda n: listed, sum(listed))


CUTS: Mapping[Any, Callable[..., _Cut]] = {
    **dict.fromkeys(CHUNKS, _chunks),
    **dict.fromkeys(SPLITS, _splits),
}


@translates(*CUTS)
def _unknown(*arguments: Any, **keywords: Any) -> Draft:
    raise Unknown(COMPUTED_SHAPE)


def pieces(
    lengths: Lengths, target: Any, arguments: tuple[Any, ...], keywords: Mapping[str, Any]
) -> list[Draft] | None:
    """The pieces of the value that a call cuts, or None if it is another call or hangs on more."""
    if target not in CUTS:
        return None
    renamed = {"split_size_or_sections" if k == "split_size" else k: x for k, x in keywords.items()}

    def settled(x: Any) -> Any:
        return [*map(settled, x)] if isinstance(x, list | tuple) else lengths.settled(x)

    try:
        cut = CUTS[target](*map(settled, arguments), **{k: settled(x) for k, x in renamed.items()})
    except TypeError:
        return None
    axes = lengths.axes_of(cut.value) if isinstance(cut.value, Value) else None
    axis = cut.axis if cut.axis >= 0 or axes is None else cut.axis + axes
    if axis < 0:
        return None
    value = as_value(cut.value)
    if cut.whole is not None:
        lengths.counted(value, axis, cut.whole)
    known = lengths.settled(Length(value, axis))
    if not isinstance(known, int):
        return None
    before = (FULL,) * axis
    return [
        Draft("index", (value,), {"slices": (*before, (start, stop, None))})
        for start, stop in _places(cut.counts(known), known)
    ]


EXTREMES = {"max": "amax", torch.max: "amax", "min": "amin", torch.min: "amin"}


@dataclass(frozen=True)
class Places:
    """Where the extremes are that a call gives: hardly anybody asks, and torch alone tells."""

    target: Any
    arguments: tuple[Any, ...]
    keywords: Mapping[str, Any]


def extreme(target: Any, arguments: tuple[Any, ...], keywords: Mapping[str, Any]) -> Draft | None:
    """The largest or least along one axis, where a call gives these and their places."""
    names = ("input", "dim", "keepdim")
    if target not in EXTREMES or not set(keywords) <= set(names) or len(arguments) > len(names):
        return None
    given = dict(zip(names, arguments, strict=False)) | dict(keywords)
    axis = given.get("dim")
    if not isinstance(axis, int) or not isinstance(given.get("input"), Value):
        return None
    attributes: dict[str, Attribute] = {"dim": (axis,), "keepdim": bool(given.get("keepdim"))}
    return Draft(EXTREMES[target], (given["input"],), attributes)


def one_of(several: tuple[Any, ...], which: Any) -> Any:
    """One of several values, or some of them; of extremes and their places by name, too."""
    named = {"values": 0, "indices": 1}
    try:
        return several[named[which] if isinstance(which, str) else which]
    except (TypeError, LookupError) as error:
        raise Unknown(f"it picks {which!r} of {len(several)} pieces") from error


ASSUMED = "sparsepath: pieces that a trace counts on"


def how_many(node: fx.Node) -> int | None:
    """How many pieces a recorded call gives; of chunks it may turn out that they are fewer."""
    wanted = node.args[1] if node.target in CUTS and len(node.args) > 1 else None
    if node.target in CHUNKS and isinstance(wanted, int):
        node.meta[ASSUMED] = wanted
        return wanted
    return len(wanted) if isinstance(wanted, list | tuple) else None


def check_counted(node: fx.Node, found: list[Draft] | None) -> None:
    """Refuse a trace that counted on other pieces than a call is known to give."""
    counted = node.meta.get(ASSUMED)
    if counted is not None and (found is None or len(found) != counted):
        raise Unknown(COMPUTED_SHAPE)


def _places(counts: list[int], length: int) -> Iterator[tuple[int, int]]:
    start = 0
    for count in counts:
        stop = min(start + count, length)
        if start < stop or count == 0:
            yield start, stop
        start = stop
