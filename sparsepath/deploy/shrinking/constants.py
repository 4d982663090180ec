"""Channels that are the same number everywhere, whatever the input: each by its value, else NaN."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from sparsepath.deploy.graph.fold import scale_and_shift
from sparsepath.deploy.graph.graph import Graph, Node
from sparsepath.deploy.graph.operations import ARITHMETIC, ELEMENTWISE, OPERATIONS
from sparsepath.deploy.shrinking.channels import Shapes, links, width
from sparsepath.deploy.shrinking.layers import Layer

Constants = dict[str, Tensor]
NAN = float("nan")


def constants(graph: Graph, shapes: Shapes, layers: Mapping[str, Layer]) -> Constants:
    """For every value of the graph, the number that each of its channels is, or NaN."""
    found: Constants = {name: _unknown(width(shapes[name])) for name in graph.inputs}
    for node in graph:
        given = [found[name] for name in node.inputs]
        count = width(shapes.get(node.name, ()))
        if node.name in layers:
            value = layers[node.name].constants(given[0])
        elif links(node, shapes) is None:
            value = _unknown(count)
        else:
            value = _constant(node, given, shapes)
        found[node.name] = torch.where(value.isfinite(), value, NAN)
    return found


def _unknown(count: int) -> Tensor:
    return torch.full((count,), NAN, dtype=torch.float64)


def _constant(node: Node, given: Sequence[Tensor], shapes: Shapes) -> Tensor:
    count = width(shapes[node.name])
    if node.op in ELEMENTWISE:
        return torch.as_tensor(OPERATIONS[node.op](*given, **node.attributes))
    if node.op in ARITHMETIC:
        return _arithmetic(node, given).expand(count)
    if node.op in ("batch_norm", "affine"):
        return _scaled(node, given[0])
    if node.op == "constant":
        return _held(node.arrays["value"])
    pairs = links(node, shapes)
    assert pairs is not None
    start = 0.0
    if node.op == "pad":
        start = float(node.attributes["value"] or 0)  # type: ignore[arg-type]
    value = torch.full((count,), start, dtype=torch.float64)
    for link, own in zip(pairs, given, strict=True):
        value[link.outputs] = own[link.inputs]
        # Where a channel of the result comes from several, all of them must agree.
        differs = value[link.outputs] != own[link.inputs]
        value[link.outputs[differs]] = NAN
    return KEEPS.get(node.op, _kept)(node, value, len(shapes[node.name]))


def _arithmetic(node: Node, given: Sequence[Tensor]) -> Tensor:
    value: Tensor = OPERATIONS[node.op](*given, **node.attributes)
    if node.op == "mul":
        for factor in given:
            value = torch.where(factor.expand_as(value) == 0, 0.0, value)
    return value


def _scaled(node: Node, given: Tensor) -> Tensor:
    if node.op == "batch_norm":
        scale, shift = scale_and_shift(node)
    else:
        scale, shift = node.arrays["scale"].double(), node.arrays["shift"].double()
    return torch.where(scale == 0, shift, given * scale + shift)


def _held(array: Tensor) -> Tensor:
    rows = array.double().transpose(0, 1).flatten(1)
    return torch.where((rows == rows[:, :1]).all(1), rows[:, 0], NAN)


def _kept(node: Node, value: Tensor, rank: int) -> Tensor:
    return value


def _padded(node: Node, value: Tensor, rank: int) -> Tensor:
    """A constant is one no more where another number is put around it."""
    room: Any = node.attributes["pad"]
    number = float(node.attributes["value"] or 0)  # type: ignore[arg-type]
    around = any(room[: 2 * (rank - 2)]) and node.attributes["mode"] == "constant"
    return torch.where(value == number, value, NAN) if around else value


def _averaged(node: Node, value: Tensor, rank: int) -> Tensor:
    padding: Any = node.attributes["padding"]
    counted = any(padding) and node.attributes["count_include_pad"]
    if counted or node.attributes["divisor_override"] is not None:
        return torch.where(value == 0, value, NAN)
    return value


def _summed(node: Node, value: Tensor, rank: int) -> Tensor:
    """It hangs on how many numbers there are, and no image is of one size for ever."""
    return torch.where(value == 0, value, NAN)


KEEPS: Mapping[str, Callable[[Node, Tensor, int], Tensor]] = {
    "pad": _padded,
    "avg_pool": _averaged,
    "sum": _summed,
    "norm": _summed,
}
"""The operations that may make something else of a constant than itself."""
