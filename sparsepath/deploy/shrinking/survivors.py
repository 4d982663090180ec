"""Which channels a graph needs, and which must stay so that what is needed fits together."""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from sparsepath.deploy.graph.fold import scale_and_shift
from sparsepath.deploy.graph.graph import Graph, Node
from sparsepath.deploy.shrinking.channels import Shapes, links, width
from sparsepath.deploy.shrinking.constants import NAN, constants
from sparsepath.deploy.shrinking.layers import Layer, layers, shared

Masks = dict[str, Tensor]


@dataclass(frozen=True, eq=False)
class Survivors:
    """By value, the channels that some output depends on, and the channels that stay."""

    layers: Mapping[str, Layer]
    folded: Masks
    """by layer, the constants that it puts into its bias; NaN for inputs that it still reads"""
    needed: Masks
    kept: Masks


def survivors(graph: Graph, shapes: Shapes, *, approximate: bool, multiple: int) -> Survivors:
    """Every channel's fate, to a fixed point."""
    found = layers(graph, shapes, approximate=approximate)
    folded = _folded(graph, shapes, found)
    solver = _Solver(graph, shapes, found, folded)
    needed = solver.needed()
    return Survivors(found, folded, needed, solver.kept(needed, multiple))


def _folded(graph: Graph, shapes: Shapes, found: Mapping[str, Layer]) -> Masks:
    known = constants(graph, shapes, found)
    own = {name: layer.foldable(known[layer.node.inputs[0]]) for name, layer in found.items()}
    # A weight that several layers share takes in only what all of them would take in.
    agreed: Masks = {}
    for name in found:
        first, *rest = (own[layer.node.name] for layer in shared(found, name))
        for other in rest:
            first = torch.where(first == other, first, NAN)
        agreed[name] = first
    return agreed


class _Solver:
    """Goes over the graph until nothing changes; masks only ever grow, so that comes to an end."""

    def __init__(
        self, graph: Graph, shapes: Shapes, found: Mapping[str, Layer], folded: Masks
    ) -> None:
        self.graph, self.layers, self.folded = graph, found, folded
        names = (*graph.inputs, *(node.name for node in graph))
        self.widths = {name: width(shapes.get(name, ())) for name in names}
        self.links = {node.name: links(node, shapes) for node in graph}
        self.together = {name: [layer.node for layer in shared(found, name)] for name in found}

    def _none(self) -> Masks:
        masks = {name: torch.zeros(n, dtype=torch.bool) for name, n in self.widths.items()}
        for name in self.graph.outputs:
            masks[name].fill_(True)
        return masks

    def needed(self) -> Masks:
        """The channels that some output depends on."""
        need = self._none()
        before = -1
        while before != (before := _count(need)):
            for node in reversed(self.graph.nodes):
                if node.name in self.layers:
                    for other in self.together[node.name]:
                        need[node.name] |= need[other.name]
                    read = self.layers[node.name].needs(need[node.name], self.folded[node.name])
                    need[node.inputs[0]] |= read
                else:
                    self._need(node, need)
        return need

    def _need(self, node: Node, need: Masks) -> None:
        pairs = self.links[node.name]
        if pairs is None:
            for name in node.inputs:
                need[name].fill_(True)
            return
        wanted = need[node.name] & _read(node, need[node.name])
        for name, link in zip(node.inputs, pairs, strict=True):
            need[name][link.inputs[wanted[link.outputs]]] = True

    def kept(self, needed: Masks, multiple: int) -> Masks:
        """The channels that stay: those needed, those tied to them, one at least of each value."""
        keep = {name: mask.clone() for name, mask in needed.items()}
        for name in self.graph.inputs:
            keep[name].fill_(True)
        before = -1
        while before != (before := _count(keep)):
            self._settle(keep)
            for name in self.layers:
                missing = -int(keep[name].sum()) % multiple
                keep[name][(~keep[name]).nonzero().flatten()[:missing]] = True
            # One at a time: what is tied to it is then no longer empty.
            empty = next((mask for mask in keep.values() if len(mask) and not mask.any()), None)
            if empty is not None:
                empty[0] = True
        return keep

    def _settle(self, keep: Masks) -> None:
        before = -1
        while before != (before := _count(keep)):
            for node in self.graph:
                if node.name in self.layers:
                    self._level(node, keep)
                else:
                    self._tie(node, keep)

    def _level(self, node: Node, keep: Masks) -> None:
        for other in self.together[node.name]:
            keep[node.name] |= keep[other.name]
            keep[node.inputs[0]] |= keep[other.inputs[0]]
        sides = self.layers[node.name].tied(keep[node.inputs[0]], keep[node.name])
        keep[node.inputs[0]], keep[node.name] = sides

    def _tie(self, node: Node, keep: Masks) -> None:
        pairs = self.links[node.name]
        if pairs is None:
            for name in (node.name, *node.inputs):
                keep[name].fill_(True)
            return
        for name, link in zip(node.inputs, pairs, strict=True):
            if link.tied:
                either = keep[name][link.inputs] | keep[node.name][link.outputs]
                keep[name][link.inputs[either]] = True
                keep[node.name][link.outputs[either]] = True


def _read(node: Node, need: Tensor) -> Tensor:
    """The channels whose input matters: not those that a batch norm multiplies by zero."""
    if node.op != "batch_norm":
        return torch.ones_like(need)
    return scale_and_shift(node)[0] != 0


def _count(masks: Masks) -> int:
    return sum(int(mask.sum()) for mask in masks.values())
