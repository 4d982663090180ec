"""Lengths that a model asks for and computes with: which are numbers, or those of an axis."""

import math
import operator
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch

from sparsepath.deploy.capture.axes import POOLS, Axes
from sparsepath.deploy.capture.translate import Length
from sparsepath.deploy.files.arguments import CONVOLUTIONS, NORMS
from sparsepath.deploy.graph.graph import Node, Value
from sparsepath.deploy.graph.operations import DROPOUTS, ELEMENTWISE, REDUCTIONS

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
ALL = {*ELEMENTWISE, *DROPOUTS, *NORMS, "prelu", "softmax", "log_softmax"}
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
        self._known: dict[Length, list[_Fact]] = {}
        self._axes = Axes()

    def heard(self, answer: Any) -> None:
        """That an axis was asked for shows that there is one."""
        if isinstance(answer, Length):
            axis = answer.axis
            self.given(answer.value, axis + 1 if axis >= 0 else -axis)

    def given(self, value: Value, axes: int, most: float = math.inf) -> None:
        """A value has at least so many axes, and at most so many."""
        self._axes.tell(value.name, axes, most)

    def counted(self, value: Value, axis: int, length: int) -> None:
        """An axis of a value, from the front, is so long."""
        self.given(value, axis + 1)
        self._tell(Length(value, axis), length, 0)

    def learn(self, node: Node) -> None:
        """What a node says about its result's lengths, and about its input's."""
        self._axes.learn(node)
        if node.op in CONVOLUTIONS:
            weight = node.arrays["weight"]
            first, second = weight.shape[:2]
            many = int(str(node.attributes["groups"]))
            taken, given = (second * many, first) if node.op == "conv" else (first, second * many)
            self._tell(Length(Value(node.inputs[0]), 1), taken, weight.dim())
            self._tell(Length(Value(node.name), 1), given, weight.dim())
        for axis, same, axes in _kept(node):
            lengths: set[int | Length] = (
                {same}
                if isinstance(same, int)
                else {
                    self._length(name, same.axis)
                    for number, name in enumerate(node.inputs)
                    if same.of in (None, number)
                }
            )
            if len(lengths) == 1 and (lengths != {1} or self._as_many_axes(node)):
                self._tell(Length(Value(node.name), axis), lengths.pop(), axes)
        for axis, count in _counted(node, self._length):
            self._tell(Length(Value(node.name), axis), count, 0)

    def _as_many_axes(self, node: Node) -> bool:
        """Whether all inputs have equally many: else an axis of one may be that of another."""
        found = {self.axes_of(Value(name)) for name in node.inputs}
        return len(node.inputs) < 2 or (len(found) == 1 and None not in found)

    def _length(self, name: str, axis: int) -> Any:
        return self.settled(Length(Value(name), axis))

    def _tell(self, length: Length, known: int | Length, axes: int) -> None:
        """A length is known if its value turns out to have so many axes."""
        settled = self.settled(length)
        if isinstance(settled, Length) and settled != known:
            self._known.setdefault(settled, []).append(_Fact(known, length.value.name, axes))

    def settled(self, x: Any) -> Any:
        """A length as a number if it is known, else as that of the first value that has it."""
        if isinstance(x, Size):
            parts = tuple(map(self.settled, x.arguments))
            whole = all(isinstance(part, int) for part in parts)
            return x.function(*parts) if whole else Size(x.function, parts)
        while isinstance(x, Length):
            axes = self.axes_of(x.value)
            if x.axis < 0 and axes is not None:
                x = Length(x.value, x.axis + axes)
            facts = self._known.get(x, ())
            known = [fact.length for fact in facts if self._axes.least(fact.of) >= fact.axes]
            if not known:
                break
            x = known[0]
        return x

    def least(self, value: Value) -> int:
        """How many axes a value has at least."""
        return self._axes.least(value.name)

    def axes_of(self, value: Value) -> int | None:
        """How many axes a value has, if that is known for sure."""
        least, most = self._axes.least(value.name), self._axes.most(value.name)
        return least if least == most else None

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


def _counted(node: Node, length: Callable[[str, int], Any]) -> Iterator[tuple[int, int]]:
    """Axes of a node's result whose lengths follow from those of its inputs, as far as known."""
    attributes: Any = node.attributes
    if node.op == "cat" and attributes["dim"] >= 0:
        parts = [length(name, attributes["dim"]) for name in node.inputs]
        if all(isinstance(n, int) for n in parts):
            yield attributes["dim"], sum(parts)
    elif node.op == "index":
        for axis, part in enumerate(attributes["slices"]):
            if part != FULL and isinstance(n := length(node.inputs[0], axis), int):
                yield axis, len(range(n)[slice(*part)])
    elif node.op in REDUCTIONS and attributes.get("keepdim"):
        yield from ((axis, 1) for axis in attributes["dim"] if axis >= 0)
    elif node.op == "unflatten" and attributes["dim"] >= 0 and -1 in attributes["sizes"]:
        sizes = attributes["sizes"]
        if isinstance(n := length(node.inputs[0], attributes["dim"]), int):
            yield attributes["dim"] + sizes.index(-1), n // -math.prod(sizes)
    elif node.op == "flatten" and 0 <= (start := attributes["start_dim"]) <= attributes["end_dim"]:
        joined = [length(node.inputs[0], k) for k in range(start, attributes["end_dim"] + 1)]
        if all(isinstance(n, int) for n in joined):
            yield start, math.prod(joined)


@dataclass(frozen=True)
class _Axis:
    """An axis of a node's inputs, or of that one of them."""

    axis: int
    of: int | None = None


@dataclass(frozen=True)
class _Fact:
    """What a length is if a value has so many axes."""

    length: "int | Length"
    of: str
    axes: int


def _kept(node: Node) -> Iterator[tuple[int, "int | _Axis", int]]:
    """Axes of a node's result whose lengths are numbers or those of an axis of its inputs.

    The third number is how many axes there must be for that.
    """
    if node.op in CONVOLUTIONS:
        yield 0, _Axis(0), node.arrays["weight"].dim()
    elif node.op == "linear":
        yield from ((axis, _Axis(axis), axis + 2) for axis in range(AXES))
    elif node.op in POOLS:
        sides: Any = node.attributes.get("kernel_size") or node.attributes["output_size"]
        yield from ((0, _Axis(0), 0), (1, _Axis(1), len(sides) + 2))
        if "output_size" in node.attributes:
            told = [(k, n) for k, n in enumerate(sides, 2) if n is not None]
            yield from ((axis, n, len(sides) + 2) for axis, n in told)
    else:
        yield from ((*pair, 0) for pair in _always_kept(node))


def _always_kept(node: Node) -> Iterator[tuple[int, "int | _Axis"]]:
    attributes: Any = node.attributes
    same = [(axis, _Axis(axis)) for axis in range(AXES)]
    if node.op in ALL or node.op in ("add", "sub", "mul", "div"):
        yield from same
    elif node.op == "interpolate":
        yield from same[:2]
    elif node.op == "cat":
        yield from same[: max(0, attributes["dim"])]
    elif node.op in REDUCTIONS and min(attributes["dim"]) >= 0:
        kept = [pair for pair in same if pair[0] not in attributes["dim"]]
        yield from kept if attributes.get("keepdim") else ((k, x) for k, (_, x) in enumerate(kept))
    elif node.op == "interpolate_like":
        yield from ((k, _Axis(k, 0 if k < 2 else 1)) for k, _ in same)
    elif node.op == "flatten":
        start, end = attributes["start_dim"], attributes["end_dim"]
        yield from same[: max(0, start)]
        if 0 <= start <= end:
            yield from ((k, _Axis(k + end - start)) for k in range(start + 1, AXES))
    elif node.op == "unflatten" and attributes["dim"] >= 0:
        dim, sizes = attributes["dim"], attributes["sizes"]
        yield from same[:dim]
        yield from ((dim + k, n) for k, n in enumerate(sizes) if n > 0)
        yield from ((k + len(sizes) - 1, _Axis(k)) for k in range(dim + 1, AXES))
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
