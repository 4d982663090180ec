"""A graph as an ordinary torch module: what compacting gives and what a file holds."""

from dataclasses import replace
from typing import Any

from torch import Tensor, nn

from sparsepath.deploy.graph import Graph, Node
from sparsepath.deploy.operations import run_node
from sparsepath.deploy.reference import walk

# Torch's own names, so that the keys of a state_dict are those of the network it came from.
NAMES = {"mean": "running_mean", "variance": "running_var"}
LEARNED = ("weight", "bias", "scale", "shift")
MOMENTUM = 0.1


class Part(nn.Module):
    """The arrays of one node of a graph, and the parts whose names lie below its own."""

    def extra_repr(self) -> str:
        """The shapes of the arrays."""
        own = {**dict(self.named_parameters(recurse=False)), **dict(self.named_buffers("", False))}
        return ", ".join(f"{name}={tuple(array.shape)}" for name, array in own.items())

    def below(self, name: str) -> "Part":
        """The part of that name below this one, made where it is missing."""
        known = self._modules.get(name)
        if isinstance(known, Part):
            return known
        part = Part()
        self.add_module(self.free(name), part)
        return part

    def free(self, name: str) -> str:
        """A name like this one that hides nothing of a module's own."""
        while not name or hasattr(self, name):
            name += "_"
        return name

    def hold(self, name: str, array: Tensor, *, learned: bool) -> str:
        """Register an array as a parameter, or as a buffer if it is not learned."""
        place = self.free(NAMES.get(name, name))
        if learned and array.is_floating_point():
            self.register_parameter(place, nn.Parameter(array.detach()))
        else:
            self.register_buffer(place, array.detach())
        return place


class GraphNetwork(Part):
    """Runs a graph; its weights train, move and are saved like those of any other module.

    It starts in eval mode, like the graph. In training mode batch norm takes the statistics of the
    batch; dropout is not part of a graph.
    """

    def __init__(self, graph: Graph) -> None:
        """Take over the graph's arrays; those that several nodes share stay shared."""
        super().__init__()
        self._graph = replace(graph, nodes=tuple(replace(node, arrays={}) for node in graph))
        self._homes: dict[str, dict[str, tuple[Part, str]]] = {}
        known: dict[int, tuple[Part, str]] = {}
        for node in graph:
            part: Part = self
            function = None if node.call is None else node.call.function
            foreign = isinstance(function, nn.Module) and function not in self.modules()
            if node.arrays or foreign:
                for piece in node.name.split("."):
                    part = part.below(piece)
            for name, array in node.arrays.items():
                if id(array) not in known:
                    learned = name in (LEARNED if node.call is None else node.call.learned)
                    known[id(array)] = part, part.hold(name, array, learned=learned)
                self._homes.setdefault(node.name, {})[name] = known[id(array)]
            if isinstance(function, nn.Module) and foreign:
                part.add_module(part.free("module"), function)
        self.eval()

    def forward(self, *inputs: Tensor) -> Any:
        """What the graph gives for these inputs."""
        return walk(self._graph, inputs, self._step)

    def graph(self) -> Graph:
        """The graph with copies of the present weights, one for all nodes that share it."""
        copies: dict[tuple[Part, str], Tensor] = {}

        def filled(node: Node) -> Node:
            homes = self._homes.get(node.name, {})
            for home in homes.values():
                if home not in copies:
                    copies[home] = getattr(*home).detach().clone()
            return replace(node, arrays={name: copies[home] for name, home in homes.items()})

        return replace(self._graph, nodes=tuple(map(filled, self._graph)))

    def _step(self, node: Node, *inputs: Any) -> Any:
        homes = self._homes.get(node.name, {})
        arrays = {name: getattr(*home) for name, home in homes.items()}
        if self.training and node.op == "batch_norm":
            return nn.functional.batch_norm(
                inputs[0],
                arrays["mean"],
                arrays["variance"],
                arrays.get("weight"),
                arrays.get("bias"),
                training=True,
                momentum=MOMENTUM,
                eps=float(node.attributes["eps"]),  # type: ignore[arg-type]
            )
        return run_node(replace(node, arrays=arrays), *inputs)
