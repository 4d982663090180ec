"""A program under construction: where the values of a graph lie, and the table of what lowers."""

from collections.abc import Callable, Iterator, Mapping, Sequence

import torch
from torch import Tensor

from sparsepath.deploy.graph.graph import Attribute, Node
from sparsepath.deploy.running.kernels import Conv, Linear
from sparsepath.deploy.running.maps import Map, Plain
from sparsepath.deploy.running.program import Program

Place = Map | Plain
# Two such numbers have a product that the kernels' 32 bits hold.
LARGEST = 2**15


class Unfit(Exception):
    """Why the native kernels cannot run a node on such maps."""


class Builder:
    """A program under construction, and where each value of the graph lies in it."""

    def __init__(
        self,
        program: Program,
        weights: Callable[[Node, int], Conv | Linear],
        *,
        grid: int,
    ) -> None:
        """`weights` gives a layer's packed weights for maps of so many vectors a channel."""
        self.program = program
        self.weights = weights
        self.grid = grid
        self.places: dict[str, Place] = {}
        self.targets: dict[str, Map] = {}
        self._left: dict[str, Plain] = {}
        self._entered: dict[str, Map] = {}

    def input(self, name: str, shape: tuple[int, ...]) -> None:
        """A value that comes from outside."""
        self.places[name] = self.program.input(shape)

    def add(self, node: Node) -> None:
        """Append the calls that compute a node."""
        self.program.label = node.name
        self.places[node.name] = LOWERINGS[node.op](self, node)

    def into(self, node: Node) -> Map | None:
        """Where a node should write: its part of a concatenation that then copies nothing."""
        return self.targets.get(node.name)

    def map(self, name: str) -> Map:
        """A value in the lane layout."""
        place = self.places[name]
        if isinstance(place, Map):
            return place
        if name not in self._entered:
            if len(place.shape) != 3:
                raise Unfit("its input is no map")
            target = self.targets.get(name)
            self._entered[name] = self.program.enter(place, grid=self.grid, into=target)
        return self._entered[name]

    def plain(self, name: str) -> Plain:
        """A value as an ordinary tensor."""
        place = self.places[name]
        if isinstance(place, Plain):
            return place
        if name not in self._left:
            self._left[name] = self.program.leave(place)
        return self._left[name]

    def join(self, nodes: Sequence[Node], layouts: Mapping[str, Map]) -> None:
        """Let concatenations be written part by part, given where all lay in an earlier program.

        The last comes first: one that is itself a part of a later one gets its place in there.
        """
        for node in reversed(nodes):
            maps = [layouts.get(name) for name in node.inputs]
            own = layouts.get(node.name)
            if node.op != "cat" or own is None or any(m is None for m in maps):
                continue
            if node.name not in self.targets:
                self.targets[node.name] = self.program.buffer(own.channels, own.layout)
            target, first = self.targets[node.name], 0
            for name, part in zip(node.inputs, maps, strict=True):
                assert part is not None
                if part.layout == own.layout:
                    self.targets.setdefault(name, target.part(first, part.channels))
                first += part.channels

    @property
    def maps(self) -> Mapping[str, Map]:
        """Every value that lies in the lanes."""
        inside = {name: x for name, x in self.places.items() if isinstance(x, Map)}
        return {**inside, **self._entered}


Lowering = Callable[[Builder, Node], Place]
LOWERINGS: dict[str, Lowering] = {}


def lowers(*ops: str) -> Callable[[Lowering], Lowering]:
    """Make a function the lowering of these operations."""

    def register(lowering: Lowering) -> Lowering:
        LOWERINGS.update(dict.fromkeys(ops, lowering))
        return lowering

    return register


def _numbers(attribute: Attribute) -> Iterator[int]:
    """All whole numbers of an attribute."""
    if isinstance(attribute, tuple):
        for part in attribute:
            yield from _numbers(part)
    elif isinstance(attribute, int):
        yield attribute


def fits(
    node: Node, shapes: Mapping[str, tuple[int, ...]], foreign: Mapping[str, torch.dtype]
) -> str | None:
    """Why a node cannot be native whatever the size, or None; `shapes` are an example's.

    `foreign` are the types of the values that are not float32.
    """
    if node.op not in LOWERINGS:
        return "sparsepath has no kernel for it" if node.call is None else node.call.why
    if any(
        not isinstance(array, Tensor) or array.dtype != torch.float32
        for array in node.arrays.values()
    ):
        return "its weights are not float32"
    if any(abs(number) > LARGEST for number in _numbers(tuple(node.attributes.values()))):
        return f"it strides, pads or looks further than {LARGEST} pixels"
    for name in (*node.inputs, node.name):
        if name in foreign:
            return f"{name!r} is {foreign[name]}, not float32"
    rank = len(shapes[node.inputs[0]])
    if rank != (2 if node.op == "linear" else 4):
        return f"its input has {rank} axes"
    weight = node.arrays.get("weight")
    if weight is not None and 0 in weight.shape:
        return "its weight is empty"
    return None
