"""A graph as an ordinary torch module: what compacting gives and what a file holds."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from sparsepath.deploy.graph.copies import copied
from sparsepath.deploy.graph.graph import Graph, Node, mapped
from sparsepath.deploy.graph.ordinary import node_of
from sparsepath.deploy.graph.places import Part, placed
from sparsepath.deploy.graph.steps import (
    Number,
    Place,
    Step,
    below,
    held,
    missing,
    numbered_output,
    steps,
)
from sparsepath.errors import BadInput


class GraphNetwork(Part):
    """Runs a graph by torch's own layers, which train, move, are replaced and saved as any others.

    Each lies where the network that the graph came from had it. It starts in eval mode.
    """

    _graph: Graph
    _places: Mapping[str, Place]
    _steps: tuple[Step, ...]
    _output: Any

    def __init__(self, graph: Graph) -> None:
        """Take over the graph's arrays; those that several nodes share stay shared."""
        super().__init__()
        # Named before any layer is: one of the same name must not hide them.
        self._graph, self._places, self._steps, self._output = graph, {}, (), None
        self._places = placed(self, graph)
        self._graph = replace(
            graph, nodes=tuple(_emptied(node, self._places[node.name]) for node in graph)
        )
        self._prepare()
        self.eval()

    def _prepare(self) -> None:
        self._steps = steps(self._graph, self._places)
        self._output = numbered_output(self._graph)

    def __getstate__(self) -> dict[str, Any]:
        """Without the steps, which are made of functions: copies make their own."""
        return {key: x for key, x in self.__dict__.items() if key not in ("_steps", "_output")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self._prepare()

    def forward(self, *inputs: Any, **named: Any) -> Any:
        """What the graph gives for these inputs, which may also be named as it names them."""
        names = self._graph.inputs
        given = [*inputs, *(named.pop(name) for name in names[len(inputs) :] if name in named)]
        if named or len(given) != len(names):
            raise BadInput(
                f"The network takes {len(names)} inputs ({', '.join(names)}), "
                f"not {len(given)}{' and ' + ', '.join(named) if named else ''}."
            )
        return self._run(given)

    def _run(self, given: list[Any]) -> Any:
        if self._graph.axes:
            self._graph.check(given)
        values = [*given, *[None] * len(self._steps)]
        for layer, run, reads, gives, done in self._steps:
            if layer is None:
                values[gives] = run(self, *[values[number] for number in reads])
            else:
                found: Any = self  # written out: in a small network calls cost as much as layers
                for piece in layer:
                    found = found._modules.get(piece)
                    if found is None:
                        missing(layer)
                values[gives] = found(values[reads[0]])
            for number in done:
                values[number] = None
        if isinstance(self._output, Number):
            return values[self._output]
        return mapped(self._output, lambda leaf: values[leaf] if isinstance(leaf, Number) else leaf)

    def input_names(self) -> tuple[str, ...]:
        """What its inputs are called."""
        return self._graph.inputs

    def graph(self) -> Graph | None:
        """The graph with copies of the present weights, shared as they are.

        None where a layer is no longer of the kind that it was, or trains.
        """
        if any(module.training for module in self.modules()):
            return None
        copies: dict[int, Tensor] = {}
        modules: dict[nn.Module, nn.Module] = {}
        nodes = []
        for node in self._graph:
            place = self._places[node.name]
            now = replace(node, arrays=held(self, place.arrays))
            if place.layer is not None:
                layer = below(self, place.layer)
                if node.call is not None:
                    modules.setdefault(layer, copied(layer))
                    now = replace(now, call=replace(node.call, function=modules[layer]))
                elif (known := node_of(layer, node)) is None:
                    return None
                else:
                    now = known
            nodes.append(_copied(now, copies))
        return replace(self._graph, nodes=tuple(nodes))


class SingleInput(GraphNetwork):
    """One of a single input, which tools that read a signature or trace a call want to see."""

    def forward(self, x: Any) -> Any:
        """What the graph gives for this input."""
        return self._run([x])


def as_module(graph: Graph) -> GraphNetwork:
    """The graph as a module."""
    return SingleInput(graph) if len(graph.inputs) == 1 else GraphNetwork(graph)


def _emptied(node: Node, place: Place) -> Node:
    """A node without what the network holds for it."""
    call = node.call
    if call is not None and place.layer is not None:
        call = replace(call, function=_in_its_place)
    return replace(node, arrays={}, call=call)


def _in_its_place(*arguments: Any, **keywords: Any) -> None:
    raise AssertionError("the module that runs is the network's own")


def _copied(node: Node, copies: dict[int, Tensor]) -> Node:
    for array in node.arrays.values():
        if id(array) not in copies:
            copies[id(array)] = array.detach().clone(memory_format=torch.contiguous_format)
    return replace(node, arrays={key: copies[id(array)] for key, array in node.arrays.items()})
