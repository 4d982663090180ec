"""Reshapes, resizes and pools whose lengths are computed, as operations that leave them open."""

import inspect
import math
from collections.abc import Callable, Mapping
from typing import Any

from torch import nn

from sparsepath.deploy.capture.lengths import RESHAPES, Lengths, Size
from sparsepath.deploy.capture.picking import PICKS
from sparsepath.deploy.capture.recorded import Part, Shape
from sparsepath.deploy.capture.translate import (
    COMPUTED_SHAPE,
    UNUSUAL,
    Draft,
    Length,
    Same,
    Unknown,
    as_plain,
    as_value,
    repeated,
    translated,
)
from sparsepath.deploy.capture.translate_layers import dimensions
from sparsepath.deploy.graph.graph import Value

RESIZE = nn.functional.interpolate
Translation = Callable[[Lengths, tuple[Any, ...], dict[str, Any]], Draft | Same]


def reshaped(lengths: Lengths, spelling: object, arguments: tuple[Any, ...]) -> Draft | Same:
    """A reshape as it is written, else as a change of one axis."""
    try:
        return translated(spelling, lengths.reshaped(arguments), {})
    except Unknown:
        draft = parted(lengths, arguments)
        if draft is None:
            raise
        return draft


def parted(lengths: Lengths, arguments: tuple[Any, ...]) -> Draft | None:
    """A reshape that parts one axis or joins neighbours, and leaves the others as they are."""
    input, *shape = arguments
    axes = lengths.axes_of(input) if isinstance(input, Value) else None
    if axes is None:
        return None
    asked = list(shape[0] if len(shape) == 1 and isinstance(shape[0], tuple | list) else shape)
    own = [lengths.settled(Length(input, axis)) for axis in range(axes)]
    sizes = [lengths.settled(n) for n in asked]
    more = len(sizes) - len(own)
    many, few = (sizes, own) if more > 0 else (own, sizes)
    # The last place where it fits: the first axis is the batch, which nobody means to part.
    for place in reversed(range(len(few))) if more else ():
        behind = place + abs(more) + 1
        if many[:place] != few[:place] or many[behind:] != few[place + 1 :]:
            continue
        if more < 0 and _joins(own[place:behind], sizes[place]):
            return Draft("flatten", (input,), {"start_dim": place, "end_dim": behind - 1})
        parts = _open_once(asked[place:behind], sizes[place:behind]) if more > 0 else None
        if parts is not None:
            return Draft("unflatten", (input,), {"dim": place, "sizes": parts})
    return None


def _joins(joined: list[Any], size: Any) -> bool:
    """Whether so many may be all of these together; what nobody knows may be anything."""
    known = all(isinstance(n, int) for n in (*joined, size))
    return not known or size in (-1, math.prod(joined))


def _open_once(asked: list[Any], sizes: list[Any]) -> tuple[int, ...] | None:
    """Sizes, one of which may be whatever is left: rather one that the code computes."""
    computed = [k for k, n in enumerate(asked) if not isinstance(n, int)]
    unknown = [k for k in computed if not isinstance(sizes[k], int)]
    for each in (computed, unknown):
        if len(each) == 1 and -1 not in sizes:
            sizes = [-1 if k == each[0] else n for k, n in enumerate(sizes)]
    return tuple(sizes) if all(isinstance(n, int) and n for n in sizes) else None


def resized(lengths: Lengths, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> Draft | Same:
    """A resize, perhaps to the size of another image, whose height and width the code asks for."""
    bound = inspect.signature(RESIZE).bind(*arguments, **keywords)
    bound.apply_defaults()
    given = bound.arguments
    size, input = given["size"], as_value(given["input"])
    listed = isinstance(size, tuple | list)
    if not _open(size) and not (listed and any(map(_open, size))):
        return translated(RESIZE, arguments, keywords)
    count = len(size) if listed else -size.start if isinstance(size, Part) else 0
    if count > 0:  # the image has as many sides, a batch and channels
        lengths.given(input, count + 2, count + 2)
    like = _image(lengths, size)
    if like is None or given["scale_factor"] is not None:
        raise Unknown(COMPUTED_SHAPE)
    attributes = {key: as_plain(given[key]) for key in ("mode", "align_corners", "antialias")}
    return Draft("interpolate_like", (input, like), attributes)


def pooled(name: str, sides: int, spelling: object) -> Translation:
    """A pool, perhaps over windows as large as its image, whose lengths the code asks for."""
    names = ("input", "kernel_size", "stride", *POOL_ARGUMENTS[name])

    def translate(
        lengths: Lengths, arguments: tuple[Any, ...], keywords: dict[str, Any]
    ) -> Draft | Same:
        given = {**dict(zip(names, arguments, strict=False)), **keywords}
        size = given.get("kernel_size")
        if not _open(size) and not (isinstance(size, tuple | list) and any(map(_open, size))):
            return translated(spelling, arguments, keywords)
        plain = all({*repeated(given.get(k, usual), 1)} == {usual} for k, usual in PLAIN.items())
        # The stride has nowhere to go.
        if not plain or not _covers(lengths, size, as_value(given["input"]), sides):
            raise Unknown(COMPUTED_SHAPE)
        return Draft(f"adaptive_{name}_pool", (given["input"],), {"output_size": (1,) * sides})

    return translate


def _covers(lengths: Lengths, size: Any, input: Value, sides: int) -> bool:
    """Whether these are the lengths of all sides of an image, which may come without a batch."""
    if isinstance(size, Part) and size.start == -sides:
        return size.value == input
    return lengths.axes_of(input) == sides + 2 and _image(lengths, size) == input


POOL_ARGUMENTS: Mapping[str, tuple[str, ...]] = {
    "avg": ("padding", "ceil_mode", "count_include_pad", "divisor_override"),
    "max": ("padding", "dilation", "ceil_mode", "return_indices"),
}
"""What a pool takes behind its stride."""
PLAIN = {"padding": 0, "dilation": 1, "divisor_override": None, "return_indices": False}
"""Where a window as large as its image is that image."""


def _open(x: Any) -> bool:
    return isinstance(x, Value | Length | Size | Shape | Part)


def _image(lengths: Lengths, size: Any) -> Value | None:
    """The image whose height and width, or as many sides as there are, these are."""
    if isinstance(size, Part) and size.start == 2:
        return size.value
    if isinstance(size, Part) and size.start < 0:
        size = [Length(size.value, axis) for axis in range(size.start, 0)]
    first = size[0] if isinstance(size, tuple | list) else None
    if not isinstance(first, Length) or lengths.axes_of(first.value) != len(size) + 2:
        return None
    own = [lengths.settled(Length(first.value, axis + 2)) for axis in range(len(size))]
    return first.value if own == [lengths.settled(n) for n in size] else None


def _called(translation: Callable[..., Draft | Same]) -> Translation:
    return lambda lengths, arguments, keywords: translation(lengths, *arguments, **keywords)


def _written(spelling: object) -> Translation:
    def translate(lengths: Lengths, arguments: Any, keywords: Any) -> Draft | Same:
        if keywords:
            return translated(spelling, arguments, keywords)
        return reshaped(lengths, spelling, arguments)

    return translate


def _refusing(translation: Translation) -> Translation:
    def translate(lengths: Lengths, arguments: Any, keywords: Any) -> Draft | Same:
        try:
            return translation(lengths, arguments, keywords)
        except TypeError as error:
            raise Unknown(f"{UNUSUAL} ({error})") from error

    return translate


BY_LENGTHS: Mapping[object, Translation] = {
    spelling: _refusing(translation)
    for spelling, translation in {
        **{spelling: _called(translation) for spelling, translation in PICKS.items()},
        **{spelling: _written(spelling) for spelling in RESHAPES},
        RESIZE: resized,
        **{
            spelling: pooled(name, sides, spelling)
            for name in POOL_ARGUMENTS
            for spelling, sides in dimensions(f"{name}_pool").items()
        },
    }.items()
}
"""What calls mean that hang on lengths, from these, the arguments and keywords."""
