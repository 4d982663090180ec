"""A network as a small graph of named operations, in the order in which they run."""

from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from sparsepath.errors import BadInput

Attribute = None | bool | int | float | str | tuple["Attribute", ...]
Arrays = Mapping[str, Tensor]


@dataclass(frozen=True)
class Value:
    """What a node gave, or an input of the graph, by name."""

    name: str


@dataclass(frozen=True)
class Array:
    """An array of a node's own, by name, where a call takes it."""

    name: str
    learned: bool
    path: str = ""
    """its name in the whole network, where it has one"""


def mapped(structure: Any, function: Callable[[Any], Any]) -> Any:
    """The same tuples, lists, dicts and slices with every leaf replaced.

    A trace records kinds of its own, which become plain ones.
    """
    if isinstance(structure, tuple) and hasattr(structure, "_fields"):
        return type(structure)(*(mapped(part, function) for part in structure))
    if isinstance(structure, tuple):
        return tuple(mapped(part, function) for part in structure)
    if isinstance(structure, list):
        return [mapped(part, function) for part in structure]
    if isinstance(structure, dict):
        parts = ((key, mapped(part, function)) for key, part in structure.items())
        return OrderedDict(parts) if isinstance(structure, OrderedDict) else dict(parts)
    if isinstance(structure, slice):
        return slice(
            *(mapped(x, function) for x in (structure.start, structure.stop, structure.step))
        )
    return function(structure)


def values_in(structure: Any) -> tuple[Value, ...]:
    """Every value that a structure names, once, in order."""
    return tuple(dict.fromkeys(leaves_of(structure)))


def leaves_of(structure: Any) -> list[Value]:
    """Every value in a structure, as often as it is named, in order."""
    found: list[Value] = []
    mapped(structure, lambda leaf: found.append(leaf) if isinstance(leaf, Value) else None)
    return found


@dataclass(frozen=True)
class Call:
    """A piece that only torch can run: a function and its arguments.

    Values among them are still to come, and arrays are the node's, which may train and move.
    """

    function: Callable[..., Any]
    arguments: tuple[Any, ...]
    keywords: Mapping[str, Any]
    why: str

    def __call__(self, *inputs: Any, arrays: Arrays) -> Any:
        """The function's result, its values replaced by `inputs` in the order of `values_in`."""
        arguments, keywords = self.filled(inputs, arrays)
        return self.function(*arguments, **keywords)

    def filled(self, inputs: tuple[Any, ...], arrays: Arrays) -> tuple[Any, Any]:
        """The arguments and keywords with everything in its place."""
        given = dict(zip(self.values, inputs, strict=True))

        def fill(leaf: Any) -> Any:
            if isinstance(leaf, Array):
                return arrays[leaf.name]
            return given[leaf] if isinstance(leaf, Value) else leaf

        arguments, keywords = mapped((self.arguments, dict(self.keywords)), fill)
        return arguments, keywords

    @property
    def values(self) -> tuple[Value, ...]:
        """The values it reads."""
        return values_in((self.arguments, dict(self.keywords)))

    @property
    def arrays(self) -> Mapping[str, Array]:
        """Its arrays by name."""
        found: dict[str, Array] = {}
        mapped(
            (self.arguments, dict(self.keywords)),
            lambda x: found.setdefault(x.name, x) if isinstance(x, Array) else None,
        )
        return found


@dataclass(frozen=True, eq=False)
class Node:
    """One operation: its inputs by name, its JSON-like attributes and its parameter arrays.

    Any node may carry two more attributes that fusing sets: `activation`, the name of an
    elementwise operation, and `pool`, the side of a max pool; they follow the operation, in turn.
    """

    name: str
    op: str
    inputs: tuple[str, ...] = ()
    attributes: Mapping[str, Attribute] = field(default_factory=dict)
    arrays: Arrays = field(default_factory=dict)
    call: Call | None = None
    took: tuple[str, ...] = ()
    """the nodes that it stands for besides its own: folded into it, or without any effect"""
    before: tuple[float, float] = (0.0, 0.0)
    """how large sums were that it no longer makes, as a batch norm was folded in: at most so many
    times its inputs, and so much more"""

    def __repr__(self) -> str:
        shapes = {name: tuple(array.shape) for name, array in self.arrays.items()}
        return f"{self.name} = {self.op}({', '.join(self.inputs)}) {dict(self.attributes)} {shapes}"


@dataclass(frozen=True, eq=False)
class Graph:
    """Nodes in the order in which they run, and the structure of values that they give."""

    inputs: tuple[str, ...]
    nodes: tuple[Node, ...]
    output: Any
    axes: tuple[int, ...] = ()
    """how many each input has, where it depends on that what the nodes do"""

    def __post_init__(self) -> None:
        """Refuse a graph that could not run."""
        known = set(self.inputs)
        for node in self.nodes:
            missing = [name for name in node.inputs if name not in known]
            if missing:
                raise BadInput(
                    f"The node {node.name!r} reads {missing}, which nothing before gives."
                )
            if node.name in known:
                raise BadInput(f"The graph names {node.name!r} twice.")
            known.add(node.name)
        missing = [name for name in self.outputs if name not in known]
        if missing:
            raise BadInput(f"The graph gives {missing}, which none of its nodes makes.")

    def check(self, inputs: Sequence[Any]) -> None:
        """Refuse inputs of other axes than those for which the graph is right."""
        for name, axes, x in zip(self.inputs, self.axes, inputs, strict=False):
            if isinstance(x, Tensor) and x.dim() != axes:
                raise BadInput(
                    f"This network was made for {name!r} of {axes} axes, as its example had them, "
                    f"not for the shape {tuple(x.shape)}."
                )

    @property
    def outputs(self) -> tuple[str, ...]:
        """The values that the graph gives."""
        return tuple(value.name for value in values_in(self.output))

    def __iter__(self) -> Iterator[Node]:
        """The nodes, first to last."""
        return iter(self.nodes)

    def __getitem__(self, name: str) -> Node:
        """The node of that name."""
        return next(node for node in self.nodes if node.name == name)

    def readers(self) -> Mapping[str, tuple[str, ...]]:
        """Who reads each value, node by node; the graph's own output is called ''."""
        found: dict[str, list[str]] = {name: [] for name in self.inputs}
        for node in self.nodes:
            found[node.name] = []
            for name in node.inputs:
                found[name].append(node.name)
        for name in self.outputs:
            found[name].append("")
        return {name: tuple(readers) for name, readers in found.items()}

    def to(self, dtype: torch.dtype) -> "Graph":
        """The same graph with every floating-point array in another type."""
        return replace(
            self,
            nodes=tuple(
                replace(
                    node,
                    arrays={
                        name: array.to(dtype) if array.is_floating_point() else array
                        for name, array in node.arrays.items()
                    },
                )
                for node in self.nodes
            ),
        )


def with_idle(nodes: list[Node], idle: list[tuple[str, str]]) -> tuple[Node, ...]:
    """The nodes, each with what does nothing to the value it gives, or else to one it reads."""
    took: dict[str, tuple[str, ...]] = {}
    for name, value in idle:
        near = [node.name for node in nodes if node.name == value or value in node.inputs]
        if near:
            took[near[0]] = (*took.get(near[0], ()), name)
    return tuple(replace(node, took=(*node.took, *took.get(node.name, ()))) for node in nodes)
