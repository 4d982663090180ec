"""Which channels of its inputs each channel of a node's result comes from.

A channel is an index of axis 1: a map of an image, a unit of a row. Operations that mix channels
by weights (LAYERS) are not described here, but in `layers`.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from sparsepath.deploy.graph.graph import Node
from sparsepath.deploy.graph.operations import DROPOUTS, ELEMENTWISE, FUSED, REDUCTIONS

Shape = tuple[int, ...]
Shapes = Mapping[str, Shape]
Links = Sequence["Link"]


@dataclass(frozen=True, eq=False)
class Link:
    """Pairs of channels, one of an input and one of the result, that stay or go together."""

    inputs: Tensor
    outputs: Tensor
    tied: bool = True
    """False where one channel of the input is spread over all of the result"""


def width(shape: Shape) -> int:
    """How many channels a value of that shape has; none where it is no batch at all."""
    return shape[1] if len(shape) > 1 else 0


def links(node: Node, shapes: Shapes) -> Links | None:
    """The links of each input to the result, or None where all channels must stay as they are."""
    known = all(len(shapes.get(name, ())) > 1 for name in (node.name, *node.inputs))
    if node.op not in LINKS or not known or any(key in node.attributes for key in FUSED):
        return None
    return LINKS[node.op](node, [shapes[name] for name in node.inputs], shapes[node.name])


def range_of(axes: Any, rank: int) -> list[int]:
    """Axes counted from the front."""
    return [axis % rank for axis in axes]


def _shifted(count: int, *, inputs: int = 0, outputs: int = 0) -> Link:
    return Link(torch.arange(count) + inputs, torch.arange(count) + outputs)


def _same(node: Node, given: Sequence[Shape], result: Shape) -> Links | None:
    return [_shifted(width(result)) for _ in given]


def _resized(node: Node, given: Sequence[Shape], result: Shape) -> Links | None:
    """The second input tells nothing but its size, whatever becomes of its channels."""
    nothing = torch.arange(0)
    return [_shifted(width(result)), Link(nothing, nothing)]


def _broadcast(node: Node, given: Sequence[Shape], result: Shape) -> Links | None:
    if any(len(shape) != len(result) for shape in given):
        return None  # axis 1 of the one is another axis of the other
    count, all_of_them = width(result), torch.arange(width(result))
    return [
        _shifted(count)
        if width(shape) == count
        else Link(torch.zeros_like(all_of_them), all_of_them, tied=False)
        for shape in given
    ]


def _cat(node: Node, given: Sequence[Shape], result: Shape) -> Links | None:
    if range_of([node.attributes["dim"]], len(result)) != [1]:
        return None
    starts = [sum(map(width, given[:place])) for place in range(len(given))]
    return [
        _shifted(width(shape), outputs=start) for shape, start in zip(given, starts, strict=True)
    ]


def _reduced(node: Node, given: Sequence[Shape], result: Shape) -> Links | None:
    axes = range_of(node.attributes["dim"], len(given[0]))
    return None if {0, 1} & set(axes) else _same(node, given, result)


def _permute(node: Node, given: Sequence[Shape], result: Shape) -> Links | None:
    axes = range_of(node.attributes["dims"], len(result))
    return _same(node, given, result) if axes[:2] == [0, 1] else None


def _transpose(node: Node, given: Sequence[Shape], result: Shape) -> Links | None:
    axes = range_of([node.attributes["dim0"], node.attributes["dim1"]], len(result))
    return None if {0, 1} & set(axes) else _same(node, given, result)


def channel_room(node: Node, rank: int) -> tuple[int, int] | None:
    """How many channels a pad adds before and behind; None where it pads or cuts the batch."""
    room: Any = (*node.attributes["pad"], *[0] * (2 * rank))  # type: ignore[misc]
    before, behind = room[2 * (rank - 2) : 2 * (rank - 1)]
    sane = min(before, behind) >= 0 and not any(room[2 * (rank - 1) :])
    if (before or behind) and node.attributes["mode"] != "constant":
        return None
    return (before, behind) if sane else None


def _pad(node: Node, given: Sequence[Shape], result: Shape) -> Links | None:
    room = channel_room(node, len(result))
    return None if room is None else [_shifted(width(given[0]), outputs=room[0])]


def channel_slice(node: Node, count: int) -> range:
    """The channels that an index takes."""
    slices: Any = node.attributes["slices"]
    return range(count)[slice(*slices[1])] if len(slices) > 1 else range(count)


def _index(node: Node, given: Sequence[Shape], result: Shape) -> Links | None:
    taken = channel_slice(node, width(given[0]))
    if taken.step != 1 or not taken:
        return None
    return [_shifted(len(taken), inputs=taken.start)]


def _reshape(node: Node, given: Sequence[Shape], result: Shape) -> Links | None:
    """Channels that stay, that are cut (flatten), or that are put together (unflatten).

    A channel of one image is a run of its numbers, and a reshape leaves numbers in their order.
    """
    (shape,) = given
    if shape[0] != result[0] or 0 in shape:
        return None
    before, behind = width(shape), width(result)
    every = torch.arange(max(before, behind))
    if behind % before == 0:
        return [Link(every // (behind // before), every)]
    if before % behind == 0:
        return [Link(every, every // (before // behind))]
    return None


def _pixel_shuffle(node: Node, given: Sequence[Shape], result: Shape) -> Links | None:
    every = torch.arange(width(given[0]))
    return [Link(every, every // (width(given[0]) // width(result)))] if len(result) == 4 else None


Describe = Callable[[Node, Sequence[Shape], Shape], Links | None]
LINKS: Mapping[str, Describe] = {
    **dict.fromkeys(ELEMENTWISE, _same),
    **dict.fromkeys(("add", "sub", "mul", "div"), _broadcast),
    **dict.fromkeys(REDUCTIONS, _reduced),
    **dict.fromkeys(("max_pool", "avg_pool", "adaptive_avg_pool", "adaptive_max_pool"), _same),
    **dict.fromkeys(("affine", "batch_norm", "interpolate", *DROPOUTS), _same),
    "interpolate_like": _resized,
    "cat": _cat,
    "constant": lambda node, given, result: [],
    "flatten": _reshape,
    "index": _index,
    "pad": _pad,
    "permute": _permute,
    "pixel_shuffle": _pixel_shuffle,
    "reshape": _reshape,
    "transpose": _transpose,
    "unflatten": _reshape,
}
"""The operations that know which channel comes from which."""
