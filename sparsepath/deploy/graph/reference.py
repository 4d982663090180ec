"""Runs a graph with plain torch operations: the definition of what the graph computes."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from sparsepath.deploy.graph.graph import Graph, Node, Value, mapped
from sparsepath.deploy.graph.operations import run_node
from sparsepath.deploy.graph.order import format_of
from sparsepath.errors import BadInput

Run = Callable[..., Any]
Watch = Callable[[Node, Any], None]


@dataclass(frozen=True)
class Kind:
    """What a value is: its shape, () for what is no tensor, its type and its order in memory."""

    shape: tuple[int, ...] = ()
    dtype: torch.dtype | None = None
    format: torch.memory_format | None = None

    @classmethod
    def of(cls, x: Any) -> "Kind":
        """That of a value."""
        if not isinstance(x, torch.Tensor):
            return cls()
        return cls(tuple(x.shape), x.dtype, format_of(x))


@torch.no_grad()
def run(graph: Graph, *inputs: Any, watch: Watch | None = None) -> Any:
    """What the graph gives for these inputs; `watch` sees every node's result on the way."""

    def step(node: Node, *given: Any) -> Any:
        result = run_node(node, *given)
        if watch is not None:
            watch(node, result)
        return result

    return walk(graph, inputs, step)


def shapes(graph: Graph, inputs: Sequence[torch.Tensor]) -> dict[str, tuple[int, ...]]:
    """The shape of every tensor of the graph for these inputs, () for what is none."""
    return {name: kind.shape for name, kind in kinds(graph, inputs).items()}


def kinds(graph: Graph, inputs: Sequence[torch.Tensor]) -> dict[str, Kind]:
    """What every value of the graph is for these inputs."""
    found = {name: Kind.of(x) for name, x in zip(graph.inputs, inputs, strict=True)}

    def watch(node: Node, result: Any) -> None:
        found[node.name] = Kind.of(result)

    run(graph, *(x.clone() for x in inputs), watch=watch)  # it may change them
    return found


def walk(graph: Graph, inputs: Sequence[Any], step: Run) -> Any:
    """What the graph gives where `step` runs each node, from it and its inputs to its result."""
    if len(inputs) != len(graph.inputs):
        raise BadInput(f"The graph takes {len(graph.inputs)} inputs, not {len(inputs)}.")
    graph.check(inputs)
    values: dict[str, Any] = dict(zip(graph.inputs, inputs, strict=True))
    last = last_readers(graph)
    for node in graph:
        values[node.name] = step(node, *(values[name] for name in node.inputs))
        for name in last.get(node.name, ()):
            del values[name]
    return mapped(graph.output, lambda leaf: values[leaf.name] if isinstance(leaf, Value) else leaf)


def last_readers(graph: Graph) -> Mapping[str, Sequence[str]]:
    """By node, the values that nobody needs once it has run."""
    last: dict[str, str] = {}
    for node in graph:
        last.update(dict.fromkeys((*node.inputs, node.name), node.name))
    done: dict[str, list[str]] = {}
    for value, reader in last.items():
        if value not in graph.outputs:
            done.setdefault(reader, []).append(value)
    return done
