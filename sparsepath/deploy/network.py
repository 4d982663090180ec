"""A graph as an ordinary torch module: what compacting gives and what a file holds."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from torch import Tensor, nn

from sparsepath.deploy.graph import Graph, Node, mapped
from sparsepath.deploy.ordinary import NAMES, array_name, layer_of, node_of
from sparsepath.deploy.steps import Number, Path, Place, Step, below, held, numbered_output, steps
from sparsepath.deploy.trace import copied
from sparsepath.errors import BadInput

LEARNED = ("weight", "bias", "scale", "shift")


class Part(nn.Module):
    """A place for the layers and arrays whose names lie below its own."""

    def extra_repr(self) -> str:
        """The shapes of the arrays."""
        own = {**dict(self.named_parameters(recurse=False)), **dict(self.named_buffers("", False))}
        return ", ".join(f"{name}={tuple(array.shape)}" for name, array in own.items())


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
        self._places = _Builder(self, graph).places()
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
        values = [*given, *[None] * len(self._steps)]
        for run, reads, gives, done in self._steps:
            values[gives] = run(self, *[values[number] for number in reads])
            for number in done:
                values[number] = None
        if isinstance(self._output, Number):
            return values[self._output]
        return mapped(self._output, lambda leaf: values[leaf] if isinstance(leaf, Number) else leaf)

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
            copies[id(array)] = array.detach().clone()
    return replace(node, arrays={key: copies[id(array)] for key, array in node.arrays.items()})


class _Builder:
    """Puts the layers and arrays of a graph where their names say, each once."""

    def __init__(self, network: nn.Module, graph: Graph) -> None:
        self.graph = graph
        self.layers: dict[str, nn.Module] = {}
        self.homes: dict[str, str] = {}
        """by node, the node that its layer is named after"""
        self.known: dict[object, str] = {}
        self.made: dict[str, tuple[nn.Module, Path]] = {"": (network, ())}
        self.arrays: dict[int, Tensor] = {}
        self.bare: dict[int, tuple[Path, str]] = {}
        for node in graph:
            self._add_layer(node)

    def places(self) -> Mapping[str, Place]:
        """Where everything is, by node."""
        return {node.name: self._placed(node) for node in self.graph}

    def _add_layer(self, node: Node) -> None:
        """A layer for the node, unless one of the same arrays and attributes is there already."""
        layer: Any = None
        if node.call is None:
            # Without arrays it is the same layer only where a trace met it by the same name.
            arrays = {(key, id(array)) for key, array in node.arrays.items()}
            told = frozenset(arrays) or node.name.partition("#")[0]
            key: object = (node.op, told, repr(sorted(node.attributes.items())))
            layer = None if key in self.known else layer_of(node)
        else:
            key, layer = id(node.call.function), node.call.function
        home = self.known.get(key, node.name or "_")
        if key in self.known or isinstance(layer, nn.Module):
            self.homes[node.name] = home
        if key not in self.known and isinstance(layer, nn.Module):
            self.known[key] = home
            self.layers[home] = layer

    def _placed(self, node: Node) -> Place:
        home = self.homes.get(node.name)
        layer, path = (None, None) if home is None else self._at(home)
        if layer is None or node.call is not None:
            return Place(path, {key: self._bare(node, key) for key in node.arrays})
        for key, array in node.arrays.items():
            self._hold(layer, NAMES.get(key, key), array, learned=key in LEARNED)
        if node.attributes.get("learned") is False:
            layer.requires_grad_(False)
        return Place(path, {})

    def _bare(self, node: Node, key: str) -> tuple[Path, str]:
        """An array of an operation that has no layer."""
        name, learned = (
            array_name(node, key),
            node.attributes.get("learned", key in LEARNED) is True,
        )
        if node.call is not None:
            title = node.call.arrays[key]
            name, learned = title.path or name, title.learned
        array = node.arrays[key]
        if id(array) not in self.bare:
            above, _, last = name.rpartition(".")
            part, path = self._at(above)
            last = _free(part, last)
            self._hold(part, last, array, learned=learned)
            self.bare[id(array)] = path, last
        return self.bare[id(array)]

    def _at(self, name: str) -> tuple[nn.Module, Path]:
        """The module of that name and its path, made with all above it where it is missing."""
        if name not in self.made:
            above, _, last = name.rpartition(".")
            parent, path = self._at(above)
            module = self.layers[name] if name in self.layers else Part()
            last = _free(parent, last)
            parent.add_module(last, module)
            self.made[name] = module, (*path, last)
        return self.made[name]

    def _hold(self, part: nn.Module, name: str, array: Tensor, *, learned: bool) -> None:
        """Set an array of a part, the one that others hold already where they share it."""
        if id(array) not in self.arrays:
            numbers = array.detach()
            grows = array.is_floating_point() or array.is_complex()
            self.arrays[id(array)] = (
                nn.Parameter(numbers, requires_grad=grows) if learned else numbers
            )
        own = self.arrays[id(array)]
        if isinstance(own, nn.Parameter):
            part._buffers.pop(name, None)
            part.register_parameter(name, own)
        else:
            part._parameters.pop(name, None)
            part.register_buffer(name, own)


def _free(part: nn.Module, name: str) -> str:
    """A name like this one that hides nothing of a module's own."""
    while not name or hasattr(part, name):
        name += "_"
    return name
