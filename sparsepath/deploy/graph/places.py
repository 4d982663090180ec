"""Where a network holds the layers and arrays of a graph: as their names say, each once."""

from collections.abc import Mapping
from typing import Any

from torch import Tensor, nn

from sparsepath.deploy.graph.graph import Graph, Node
from sparsepath.deploy.graph.ordinary import NAMES, array_name, layer_of
from sparsepath.deploy.graph.steps import Path, Place

LEARNED = ("weight", "bias", "scale", "shift")


class Part(nn.Module):
    """A place for the layers and arrays whose names lie below its own."""

    def extra_repr(self) -> str:
        """The shapes of the arrays."""
        own = {**dict(self.named_parameters(recurse=False)), **dict(self.named_buffers("", False))}
        return ", ".join(f"{name}={tuple(array.shape)}" for name, array in own.items())


def placed(network: nn.Module, graph: Graph) -> Mapping[str, Place]:
    """Put everything that the graph holds into the network; where each node's is, by its name."""
    return _Builder(network, graph).places()


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
