"""Lengths that a model asks for and computes with: which are numbers, or those of an axis."""

import math
import operator
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch

from sparsepath.deploy.graph import Node, Value
from sparsepath.deploy.operations import DROPOUTS, ELEMENTWISE
from sparsepath.deploy.translate import Length

ARITHMETIC = {
    operator.add,
    operator.sub,
    operator.mul,
    operator.floordiv,
    operator.mod,
    operator.neg,
    math.prod,
}
RESHAPES = ("view", "reshape", torch.reshape)
# Axes that an operation leaves as they are; images have no more than these.
AXES = 5
ALL = {*ELEMENTWISE, *DROPOUTS, "batch_norm", "affine", "softmax", "log_softmax"}
CHANNELS = {"max_pool", "avg_pool", "adaptive_avg_pool", "adaptive_max_pool", "interpolate"}
IMAGES = {"conv", "conv_transpose", "linear"}
FULL = (None, None, None)


@dataclass(frozen=True)
class Size:
    """A whole number that is computed from lengths."""

    function: Callable[..., Any]
    arguments: tuple[Any, ...]


def computed(target: Any, arguments: tuple[Any, ...]) -> Size | None:
    """Arithmetic on lengths: only computed where it is needed."""
    if target not in ARITHMETIC or not all(isinstance(x, int | Length | Size) for x in arguments):
        return None
    return Size(target, arguments) if any(not isinstance(x, int) for x in arguments) else None


class Lengths:
    """What is known of each value's lengths: a number, or that it is another value's."""

    def __init__(self) -> None:
        """Nothing is known yet."""
        self._known: dict[Length, int | Length] = {}

    def learn(self, node: Node) -> None:
        """What a node says about its result's lengths, and about its input's."""
        if node.op in ("conv", "conv_transpose") and "weight" in node.arrays:
            first, second = node.arrays["weight"].shape[:2]
            many = int(str(node.attributes["groups"]))
            taken, given = (second * many, first) if node.op == "conv" else (first, second * many)
            self._tell(Length(Value(node.inputs[0]), 1), taken)
            self._tell(Length(Value(node.name), 1), given)
        for axis, same in _kept(node):
            lengths: set[int | Length] = (
                {same}
                if isinstance(same, int)
                else {self.settled(Length(Value(name), same.axis)) for name in node.inputs}
            )
            if len(lengths) == 1:
                self._tell(Length(Value(node.name), axis), *lengths)

    def _tell(self, length: Length, known: int | Length) -> None:
        settled = self.settled(length)
        if isinstance(settled, Length) and settled != known:
            self._known[settled] = known

    def settled(self, x: Any) -> Any:
        """A length as a number if it is known, else as that of the first value that has it."""
        if isinstance(x, Size):
            parts = tuple(map(self.settled, x.arguments))
            whole = all(isinstance(part, int) for part in parts)
            return x.function(*parts) if whole else Size(x.function, parts)
        while isinstance(x, Length) and x in self._known:
            x = self._known[x]
        return x

    def reshaped(self, arguments: tuple[Any, ...]) -> tuple[Any, ...]:
        """A reshape's arguments, in which one length that is computed is whatever is left."""
        input, *shape = arguments
        listed = len(shape) == 1 and isinstance(shape[0], tuple | list)
        wanted = list(shape[0] if listed else shape)
        lengths = [self._at(Length(input, axis), n) for axis, n in enumerate(wanted)]
        moved = [
            k
            for k, n in enumerate(wanted)
            if isinstance(n, Length | Size) and lengths[k] != Length(input, k)
        ]
        left = [k for k in moved if not isinstance(lengths[k], int)]
        # Even a known number is better left open: there may be fewer channels later.
        for each in (moved, left):
            if len(each) == 1 and -1 not in lengths:
                lengths[each[0]] = -1
        return (input, tuple(lengths)) if listed else (input, *lengths)

    def _at(self, place: Length, wanted: Any) -> Any:
        """What is wanted of an axis: the length it has already, a number, or something else."""
        if not isinstance(wanted, Length | Size):
            return wanted
        found = self.settled(wanted)
        return place if found == self.settled(place) else found


@dataclass(frozen=True)
class _Axis:
    """An axis of a node's input."""

    axis: int


def _kept(node: Node) -> Iterator[tuple[int, "int | _Axis"]]:
    """The axes of a node's result whose lengths are numbers or those of an axis of its inputs."""
    attributes: Any = node.attributes
    same = [(axis, _Axis(axis)) for axis in range(AXES)]
    if node.op in ALL or node.op in ("add", "sub", "mul", "div"):
        yield from same
    elif node.op in CHANNELS:
        yield from same[:2]
    elif node.op in IMAGES:
        yield from same[:1]
    elif node.op == "cat":
        yield from same[: max(0, attributes["dim"])]
    elif node.op == "flatten":
        yield from same[: max(0, attributes["start_dim"])]
    elif node.op == "index":
        yield from (pair for pair in same if attributes["slices"][pair[0] :][:1] in ((), (FULL,)))
    elif node.op == "permute" and min(attributes["dims"]) >= 0:
        yield from ((axis, _Axis(of)) for axis, of in enumerate(attributes["dims"]))
    elif node.op == "transpose" and min(attributes["dim0"], attributes["dim1"]) >= 0:
        swapped = {attributes["dim0"]: attributes["dim1"], attributes["dim1"]: attributes["dim0"]}
        yield from ((axis, _Axis(swapped.get(axis, axis))) for axis in range(AXES))
    elif node.op == "reshape":
        lengths = enumerate(attributes["shape"])
        yield from ((axis, n or _Axis(axis)) for axis, n in lengths if n >= 0)
