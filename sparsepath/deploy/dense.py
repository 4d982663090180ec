"""A whole graph in a dense runtime, as the alternative that a plan must beat."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from sparsepath.deploy import reference
from sparsepath.deploy.graph import Graph, Node

Run = Callable[..., Any]


def in_torch(graph: Graph) -> Run:
    """The graph by torch's own operations, with pixels before channels, as oneDNN likes them."""

    def turned(node: Node) -> Node:
        weight = node.arrays.get("weight")
        if node.op != "conv" or weight is None or weight.dim() != 4:
            return node
        return replace(node, arrays={**node.arrays, "weight": _turned(weight)})

    own = replace(graph, nodes=tuple(turned(node) for node in graph))

    def run(*inputs: Any) -> Any:
        given = (_turned(x) if isinstance(x, Tensor) and x.dim() == 4 else x for x in inputs)
        return reference.run(own, *given)

    return run


def _turned(x: Tensor) -> Tensor:
    return x.contiguous(memory_format=torch.channels_last)
