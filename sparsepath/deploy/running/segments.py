"""Cuts a graph into runs of nodes that go to the native kernels, and the rest, which torch runs."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sparsepath.deploy.graph.graph import Graph, Node
from sparsepath.deploy.graph.operations import run_node
from sparsepath.deploy.running.choices import Choice


@dataclass(frozen=True, eq=False)
class Segment:
    """Nodes that run one after the other, all native or all in torch."""

    native: bool
    nodes: tuple[Node, ...]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]


def cut(
    graph: Graph, choices: Mapping[str, Choice], images: Mapping[str, int]
) -> tuple[Segment, ...]:
    """Segments as long as can be, in an order that respects who reads what.

    A native one goes through its images together, so all its values have as many of them.
    """
    readers = graph.readers()
    made = set(graph.inputs)
    waiting = list(graph.nodes)
    runs: list[tuple[bool, list[Node]]] = []
    while waiting:
        native = not runs or not runs[-1][0]
        run: list[Node] = []
        rest: list[Node] = []
        count: int | None = None
        for node in waiting:  # in order, so that one pass takes all that can follow
            ready = made.issuperset(node.inputs)
            fits = not native or count in (None, images[node.name])
            if ready and fits and (choices[node.name].method != "torch") == native:
                count = images[node.name]
                run.append(node)
                made.add(node.name)
            else:
                rest.append(node)
        waiting = rest
        runs.append((native, run))
    return tuple(Segment(native, tuple(run), *_ends(run, readers)) for native, run in runs if run)


def _ends(
    run: Sequence[Node], readers: Mapping[str, tuple[str, ...]]
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    inside = {node.name for node in run}
    read = dict.fromkeys(name for node in run for name in node.inputs)
    given = (node.name for node in run if not inside.issuperset(readers[node.name]))
    return tuple(name for name in read if name not in inside), tuple(given)


def run_in_torch(segment: Segment, *inputs: Any) -> tuple[Any, ...]:
    """A segment's outputs by torch's own operations."""
    values = dict(zip(segment.inputs, inputs, strict=True))
    for node in segment.nodes:
        values[node.name] = run_node(node, *(values[name] for name in node.inputs))
    return tuple(values[name] for name in segment.outputs)
