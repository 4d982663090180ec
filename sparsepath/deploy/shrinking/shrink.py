"""A graph between the channels that stay: every node's arrays and attributes cut to fit."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from torch import Tensor

from sparsepath.deploy.graph.graph import Graph, Node
from sparsepath.deploy.shrinking.channels import (
    Shapes,
    channel_room,
    channel_slice,
    links,
    range_of,
)
from sparsepath.deploy.shrinking.survivors import Survivors


def shrunk(graph: Graph, shapes: Shapes, fate: Survivors) -> Graph:
    """The same function with the channels that stay."""
    cutter = _Cutter(shapes, fate)
    return replace(graph, nodes=tuple(cutter.cut(node) for node in graph))


class _Cutter:
    """Cuts nodes; arrays that several nodes share are cut once and stay shared."""

    def __init__(self, shapes: Shapes, fate: Survivors) -> None:
        self.shapes, self.fate = shapes, fate
        self.done: dict[tuple[object, ...], Tensor] = {}

    def cut(self, node: Node) -> Node:
        kept = self.fate.kept
        result = kept[node.name]
        if node.name in self.fate.layers:
            given = kept[node.inputs[0]]
            need, folded = self.fate.needed[node.name], self.fate.folded[node.name]
            layer = self.fate.layers[node.name]
            if bool(given.all() and result.all() and need.all() and folded.isnan().all()):
                return node
            small = layer.rewritten(given, result, need, folded)
            return replace(small, arrays=self._shared(node, small.arrays))
        if links(node, self.shapes) is None:
            return node
        if node.op in ("batch_norm", "affine"):
            return replace(node, arrays=self._each(node, 0, result))
        if node.op == "constant":
            return replace(node, arrays=self._each(node, 1, result))
        if node.op in CUTS:
            attributes = CUTS[node.op](node, kept[node.inputs[0]], result, self.shapes)
            return replace(node, attributes={**node.attributes, **attributes})
        return node

    def _each(self, node: Node, axis: int, kept: Tensor) -> Mapping[str, Tensor]:
        if bool(kept.all()):
            return node.arrays
        where = kept.nonzero().flatten()
        small = {name: array.index_select(axis, where) for name, array in node.arrays.items()}
        return self._shared(node, small, *where.tolist())

    def _shared(self, node: Node, small: Mapping[str, Tensor], *key: int) -> Mapping[str, Tensor]:
        """The arrays cut before, where they come from the same ones and were cut alike."""
        found = {}
        for name, array in small.items():
            whole = (id(node.arrays.get("weight")), id(node.arrays.get(name)))
            found[name] = self.done.setdefault((name, *whole, *key), array)
        return found


def _pad(node: Node, given: Tensor, kept: Tensor, shapes: Shapes) -> Mapping[str, Any]:
    rank = len(shapes[node.name])
    room = channel_room(node, rank)
    assert room is not None
    pads: Any = node.attributes["pad"]
    if not any(room):
        return {}
    place = 2 * (rank - 2)
    before, behind = kept[: room[0]], kept[len(kept) - room[1] :]
    counts = (int(before.sum()), int(behind.sum()))
    return {"pad": (*pads[:place], *counts, *pads[place + 2 :])}


def _index(node: Node, given: Tensor, kept: Tensor, shapes: Shapes) -> Mapping[str, Any]:
    slices: Any = node.attributes["slices"]
    taken = channel_slice(node, len(given))
    if len(slices) < 2 or len(taken) == len(given) or bool(given.all() and kept.all()):
        return {}  # where none go the axis may be of another length next time
    start = int(given[: taken.start].sum())
    part = (start, start + int(kept.sum()), None)
    return {"slices": (slices[0], part, *slices[2:])}


def _reshape(node: Node, given: Tensor, kept: Tensor, shapes: Shapes) -> Mapping[str, Any]:
    shape: Any = node.attributes["shape"]
    if shape[1] in (0, -1) or bool(kept.all()):
        return {}
    return {"shape": (shape[0], int(kept.sum()), *shape[2:])}


def _unflatten(node: Node, given: Tensor, kept: Tensor, shapes: Shapes) -> Mapping[str, Any]:
    sizes: Any = node.attributes["sizes"]
    second = range_of([node.attributes["dim"]], len(shapes[node.inputs[0]])) == [1]
    if not second or sizes[0] == -1 or bool(kept.all()):
        return {}
    return {"sizes": (int(kept.sum()), *sizes[1:])}


CUTS = {"pad": _pad, "index": _index, "reshape": _reshape, "unflatten": _unflatten}
"""The operations whose attributes count channels."""
