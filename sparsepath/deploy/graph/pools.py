"""Adaptive pools as plain ones, where the size of the maps is known and all windows are alike."""

from collections.abc import Mapping
from dataclasses import replace
from itertools import pairwise
from typing import Any

from sparsepath.deploy.graph.graph import Graph, Node

Shapes = Mapping[str, tuple[int, ...]]


def alike(length: int, wanted: int) -> tuple[int, int] | None:
    """Window and stride of an adaptive pool along one axis; None where windows differ or repeat."""
    if wanted == 0:
        return None
    starts = [place * length // wanted for place in range(wanted)]
    ends = [-(-(place + 1) * length // wanted) for place in range(wanted)]
    windows = {end - start for start, end in zip(starts, ends, strict=True)}
    strides = {later - sooner for sooner, later in pairwise(starts)} or set(windows)
    if len(windows) > 1 or len(strides) > 1 or 0 in strides:
        return None
    return windows.pop(), strides.pop()


def with_plain_pools(graph: Graph, shapes: Shapes) -> Graph:
    """The graph for inputs of one size; adaptive pools whose windows differ stay as they are."""
    return replace(graph, nodes=tuple(_plain(node, shapes) for node in graph))


def _plain(node: Node, shapes: Shapes) -> Node:
    if node.op not in ("adaptive_max_pool", "adaptive_avg_pool"):
        return node
    wanted: Any = node.attributes["output_size"]
    lengths = shapes[node.inputs[0]][-len(wanted) :]
    found = [
        alike(length, length if n is None else int(n))
        for length, n in zip(lengths, wanted, strict=True)
    ]
    known = [pair for pair in found if pair is not None]
    if len(known) < len(found):
        return node
    attributes: dict[str, Any] = {
        "kernel_size": tuple(window for window, _ in known),
        "stride": tuple(stride for _, stride in known),
        "padding": (0,) * len(known),
        "ceil_mode": False,
    }
    if node.op == "adaptive_max_pool":
        return replace(
            node, op="max_pool", attributes={**attributes, "dilation": (1,) * len(known)}
        )
    attributes |= {"count_include_pad": True, "divisor_override": None}
    return replace(node, op="avg_pool", attributes=attributes)
