"""Held arrays with as many axes as what they meet, so that their channels are those of the rest.

A model scales maps by an array of shape (channels, 1, 1) or by a single number: torch lines up the
last axes, while all else here counts channels from the front.
"""

from collections.abc import Callable
from dataclasses import replace

from torch import Tensor

from sparsepath.deploy.graph.graph import Graph, Node
from sparsepath.deploy.graph.operations import ARITHMETIC
from sparsepath.deploy.shrinking.channels import Shapes


def lengthened(graph: Graph, shapes: Shapes) -> tuple[Graph, Shapes]:
    """The graph whose held arrays begin with axes of length 1 where arithmetic adds them anyway."""
    readers = graph.readers()
    ranks: dict[str, int] = {}
    for node in graph:
        met = {len(shapes[name]) for name in readers[node.name] if name}
        plain = all(name and graph[name].op in ARITHMETIC for name in readers[node.name])
        if node.op == "constant" and plain and len(met) == 1:
            ranks[node.name] = max(len(shapes[node.name]), *met)

    def longer(node: Node, value: Tensor) -> Tensor:
        missing = ranks.get(node.name, value.dim()) - value.dim()
        return value.reshape(*[1] * missing, *value.shape) if missing else value

    made = _with_values(graph, longer)
    return made, {**shapes, **{name: tuple(made[name].arrays["value"].shape) for name in ranks}}


def shortened(graph: Graph, like: Graph) -> Graph:
    """The graph whose held arrays have the axes that they had in another."""
    before = {node.name: node.arrays["value"] for node in like if node.op == "constant"}

    def shorter(node: Node, value: Tensor) -> Tensor:
        own = before[node.name]
        short = value.reshape(value.shape[value.dim() - own.dim() :])
        # What was not cut is what it was: what torch runs may hold it, too.
        whole = short.shape == own.shape and short.data_ptr() == own.data_ptr()
        return own if whole else short

    return _with_values(graph, shorter)


def _with_values(graph: Graph, made: Callable[[Node, Tensor], Tensor]) -> Graph:
    """The graph with other held arrays; what nodes share stays shared where it is made alike."""
    known: dict[tuple[int, int], Tensor] = {}

    def other(node: Node) -> Node:
        if node.op != "constant":
            return node
        old = node.arrays["value"]
        value = made(node, old)
        return replace(node, arrays={"value": known.setdefault((id(old), value.dim()), value)})

    return replace(graph, nodes=tuple(map(other, graph)))
