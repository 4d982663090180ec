"""A whole graph in a dense runtime, as the alternative that a plan must beat."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from sparsepath.deploy import reference
from sparsepath.deploy.graph import Graph, Node, Value, mapped
from sparsepath.deploy.onnx_file import session

Run = Callable[..., Any]


def in_torch(graph: Graph) -> Run:
    """The graph by torch's own operations, with pixels before channels, as oneDNN likes them.

    Code of which we know nothing gets its tensors as they were: what is a view there and what a
    copy may depend on the order in memory.
    """
    if any(node.op == "torch" for node in graph):
        return lambda *inputs: reference.run(graph, *inputs)

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


def in_onnxruntime(graph: Graph, example: Sequence[Tensor], threads: int) -> Run | None:
    """The graph in onnxruntime, or None where it is not installed or cannot run it all."""
    if any(x.dtype != torch.float32 for x in example):
        return None
    try:
        from sparsepath.deploy.onnx_graph import onnx_for

        opened = session(onnx_for(graph, example), threads=threads)
    except Exception:  # not installed, Inexpressible, or anything that its own checks dislike
        return None

    def run(*inputs: Tensor) -> Any:
        plain = [x.contiguous().numpy(force=True) for x in inputs]
        try:
            results = opened.run(list(graph.outputs), dict(zip(graph.inputs, plain, strict=True)))
        except Exception:  # whatever it has against the inputs: torch takes them or says it better
            with torch.no_grad():
                return reference.run(graph, *inputs)
        given = dict(zip(graph.outputs, results, strict=True))
        return mapped(
            graph.output,
            lambda leaf: torch.from_numpy(given[leaf.name]) if isinstance(leaf, Value) else leaf,
        )

    return run


def _turned(x: Tensor) -> Tensor:
    return x.contiguous(memory_format=torch.channels_last)
