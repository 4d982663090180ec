"""What `chunk` and `split` cut a value into: slices of an axis whose length is known."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch

from sparsepath.deploy.capture.lengths import FULL, Lengths
from sparsepath.deploy.capture.translate import (
    COMPUTED_SHAPE,
    Draft,
    Length,
    Unknown,
    as_value,
    translates,
)
from sparsepath.deploy.graph.graph import Value

Cut = tuple[Value, int, list[int] | int | None]
CHUNKS, SPLITS = ("chunk", torch.chunk), ("split", torch.split)


def _chunks(input: Any, chunks: int, dim: int = 0) -> tuple[Any, Any, int]:
    return input, lambda n: [-(-n // chunks)] * chunks, dim


def _splits(tensor: Any, split_size_or_sections: Any, dim: int = 0) -> tuple[Any, Any, int]:
    size = split_size_or_sections
    if isinstance(size, int):
        return tensor, lambda n: [size] * -(-n // size), dim
    return tensor, lambda n: list(size), dim


CUTS: Mapping[Any, Callable[..., tuple[Any, Any, int]]] = {
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
    try:
        value, counts, dim = CUTS[target](*arguments, **renamed)
    except TypeError:
        return None
    axes = lengths.axes_of(value) if isinstance(value, Value) else None
    axis = dim if dim >= 0 or axes is None else dim + axes
    known = lengths.settled(Length(as_value(value), axis)) if axis >= 0 else None
    if not isinstance(known, int):
        return None
    before = (FULL,) * axis
    return [
        Draft("index", (value,), {"slices": (*before, (start, stop, None))})
        for start, stop in _places(counts(known), known)
    ]


def how_many(target: Any, arguments: tuple[Any, ...]) -> int | None:
    """How many pieces a call gives, so far as that hangs on no length."""
    wanted = arguments[1] if target in CUTS and len(arguments) > 1 else None
    if target in CHUNKS and isinstance(wanted, int):
        return wanted
    return len(wanted) if isinstance(wanted, list | tuple) else None


def _places(counts: list[int], length: int) -> Iterator[tuple[int, int]]:
    start = 0
    for count in counts:
        stop = min(start + count, length)
        if start < stop or count == 0:
            yield start, stop
        start = stop
