"""Trial runs of a graph, for shapes and times: its modules may change as they run."""

from dataclasses import dataclass, replace

from torch import nn

from sparsepath.deploy.graph.copies import copied
from sparsepath.deploy.graph.graph import Graph, Node
from sparsepath.deploy.graph.state import State


@dataclass(frozen=True, eq=False)
class Rehearsal:
    """A graph with copies of its modules in place of those that a runtime starts with."""

    graph: Graph
    before: State

    @classmethod
    def of(cls, graph: Graph) -> "Rehearsal":
        """The same graph where torch runs no module in it."""
        modules = nn.ModuleList({id(x): x for x in map(_module, graph) if x is not None}.values())
        own = copied(modules)
        assert isinstance(own, nn.ModuleList)  # together, so that they share what they shared
        twins = {id(x): twin for x, twin in zip(modules, own, strict=True)}

        def rehearsed(node: Node) -> Node:
            if node.call is None or id(node.call.function) not in twins:
                return node
            return replace(node, call=replace(node.call, function=twins[id(node.call.function)]))

        if twins:
            graph = replace(graph, nodes=tuple(map(rehearsed, graph)))
        return cls(graph, State.of(own))

    @property
    def changed(self) -> bool:
        """Whether the runs up to now have changed a module."""
        return self.before.change() is not None


def _module(node: Node) -> nn.Module | None:
    function = None if node.call is None else node.call.function
    return function if isinstance(function, nn.Module) else None
