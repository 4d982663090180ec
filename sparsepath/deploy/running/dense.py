"""A whole graph in a dense runtime, as the alternative that a plan must beat."""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from sparsepath.deploy.files.onnx_file import session
from sparsepath.deploy.graph import reference
from sparsepath.deploy.graph.apart import difference
from sparsepath.deploy.graph.graph import Graph, Node, Value, mapped
from sparsepath.deploy.graph.operations import run_node
from sparsepath.deploy.graph.order import AS_THEY_COME, Formats, in_format

Run = Callable[..., Any]
MAXIMA = ("max_pool", "adaptive_max_pool", "amax", "amin")
# How far a rival may be from torch, of the largest output.
TOLERANCE = 1e-4
# What may give NaN for finite numbers, or makes infinity of usual ones, of which others make NaN.
UNSURE = ("pow", "sqrt", "div", "exp")


def in_torch(graph: Graph, formats: Formats = AS_THEY_COME) -> Run:
    """The graph by torch's own operations, with pixels before channels, as oneDNN likes them.

    Its outputs have the orders in memory that `formats` names.

    Code of which we know nothing gets its tensors as they were: what is a view there and what a
    copy may depend on the order in memory.
    """
    if any(node.op == "torch" for node in graph):
        return lambda *inputs: reference.run(graph, *inputs)

    own = turned(graph)

    def step(node: Node, *given: Any) -> Any:
        return in_format(run_node(node, *given), formats.get(node.name))

    @torch.no_grad()
    def run(*inputs: Any) -> Any:
        pairs = zip(own.inputs, inputs, strict=True)
        given = [_turned(x) if x.dim() == 4 and name not in own.outputs else x for name, x in pairs]
        return reference.walk(own, given, step)

    return run


def turned(graph: Graph) -> Graph:
    """The graph with the weights of its convolutions in the order of channels_last."""

    def own(node: Node) -> Node:
        weight = node.arrays.get("weight")
        if node.op != "conv" or weight is None or weight.dim() != 4:
            return node
        return replace(node, arrays={**node.arrays, "weight": _turned(weight)})

    return replace(graph, nodes=tuple(own(node) for node in graph))


def in_onnxruntime(
    graph: Graph, example: Sequence[Tensor], threads: int, *, formats: Formats = AS_THEY_COME
) -> Run | None:
    """The graph in onnxruntime, or None where it is not installed, or cannot run it all or as well.

    Its outputs have the orders in memory that `formats` names. Its maxima drop NaN: if there are
    any, torch takes inputs that are not finite, and all where NaN may come from others but such as
    overflow float32 in sums and products.
    """
    if any(x.dtype != torch.float32 for x in example):
        return None
    maxima = any(node.op in MAXIMA or "pool" in node.attributes for node in graph)
    if maxima and any(node.op in UNSURE for node in graph):
        return None
    try:
        from sparsepath.deploy.files.onnx_graph import onnx_for

        opened = session(onnx_for(graph, example), threads=threads)
    except Exception:  # not installed, Inexpressible, or anything that its own checks dislike
        return None

    @torch.no_grad()
    def instead(*inputs: Tensor) -> Any:
        return reference.run(graph, *inputs)

    def run(*inputs: Tensor) -> Any:
        if maxima and not all(math.isfinite(x.sum()) for x in inputs):  # a sum is soon made
            return instead(*inputs)
        plain = [x.contiguous().numpy(force=True) for x in inputs]
        try:
            results = opened.run(list(graph.outputs), dict(zip(graph.inputs, plain, strict=True)))
        except Exception:  # whatever it has against the inputs: torch takes them or says it better
            return instead(*inputs)
        given = {
            name: in_format(torch.from_numpy(result), formats.get(name))
            for name, result in zip(graph.outputs, results, strict=True)
        }
        return mapped(
            graph.output, lambda leaf: given[leaf.name] if isinstance(leaf, Value) else leaf
        )

    return run if _as_well(run, instead, example) else None


def _as_well(run: Run, reference: Run, example: Sequence[Tensor]) -> bool:
    """Whether a rival's results are those of torch, but for rounding: then it may be faster."""
    try:
        apart, largest = difference(reference(*example), run(*example))
    except Exception:  # whoever runs it next says what there is against the example
        return True
    return apart <= TOLERANCE * largest


def _turned(x: Tensor) -> Tensor:
    return x.contiguous(memory_format=torch.channels_last)
