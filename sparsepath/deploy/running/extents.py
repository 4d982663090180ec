"""The shape of every value for inputs of another size, by rule: nothing is computed."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from math import prod
from typing import Any

import torch

from sparsepath.deploy.graph.graph import Graph, Node
from sparsepath.deploy.graph.operations import ARITHMETIC, DROPOUTS, ELEMENTWISE, run_node

Shape = tuple[int, ...]
Rule = Callable[[Node, Sequence[Shape]], Shape]


class Unruled(Exception):
    """No rule covers a node, or torch might refuse it: only a run can tell."""


def extents(
    graph: Graph, inputs: Sequence[Shape], types: Mapping[str, torch.dtype | None]
) -> dict[str, Shape]:
    """What a run would show; `types` are those of an example.

    Where no rule is known torch itself is asked, which takes it far longer than a rule.
    """
    found = dict(zip(graph.inputs, inputs, strict=True))
    for node in graph:
        given = [found[name] for name in node.inputs]
        if node.call is not None:
            raise Unruled(f"{node.name!r} is code of which nothing is known")
        rule = RULES.get(node.op)
        if rule is None:
            found[node.name] = _by_torch(node, given, types)
            continue
        shape = rule(node, given)
        pool = node.attributes.get("pool")
        if isinstance(pool, tuple):
            side: Any = pool[0]
            sides = (side, side) if isinstance(side, int) else side
            shape = _windows(shape, sides, sides, (0, 0), ceil_mode=bool(pool[1]))
        found[node.name] = shape
    return found


def _by_torch(node: Node, given: Sequence[Shape], types: Mapping[str, torch.dtype | None]) -> Shape:
    """By a run on tensors without memory, in which torch does not look at weights closely."""
    _insist(not node.arrays or node.op == "constant")
    arrays = {name: array.to("meta") for name, array in node.arrays.items()}
    values = [
        torch.empty(shape, dtype=types[name], device="meta")
        for name, shape in zip(node.inputs, given, strict=True)
    ]
    return tuple(run_node(replace(node, arrays=arrays), *values).shape)


def _insist(holds: bool) -> None:
    if not holds:
        raise Unruled("torch would refuse this, and knows best why")


def _windows(
    shape: Shape, window: Any, stride: Any, padding: Any, *, ceil_mode: bool = False
) -> Shape:
    """Where windows slide over the last axes of a batch of maps."""
    _insist(len(shape) == 2 + len(window) and 0 not in shape)
    sides = []
    for length, size, step, room in zip(shape[2:], window, stride, padding, strict=True):
        left = length + 2 * room - size
        count = (-(-left // step) if ceil_mode else left // step) + 1
        # No window may begin beyond the image: torch's rule.
        count -= ceil_mode and (count - 1) * step >= length + room
        _insist(count > 0 and room >= 0)
        sides.append(count)
    return (*shape[:2], *sides)


def _same(node: Node, given: Sequence[Shape]) -> Shape:
    return given[0]


def _per_channel(node: Node, given: Sequence[Shape]) -> Shape:
    (shape,) = given
    _insist(len(shape) > 1 and all(len(array) == shape[1] for array in node.arrays.values()))
    return shape


def _group_norm(node: Node, given: Sequence[Shape]) -> Shape:
    (shape,), groups = given, node.attributes["num_groups"]
    assert isinstance(groups, int)
    _insist(len(shape) > 1 and shape[1] % groups == 0)
    _insist(prod(shape) > groups)  # torch refuses to take the variance of a single number
    return _per_channel(node, given)


def _layer_norm(node: Node, given: Sequence[Shape]) -> Shape:
    (shape,) = given
    wanted: Any = node.attributes["normalized_shape"]
    _insist(shape[-len(wanted) :] == tuple(wanted))
    return shape


def _prelu(node: Node, given: Sequence[Shape]) -> Shape:
    return given[0] if node.arrays["weight"].numel() == 1 else _per_channel(node, given)


def _conv(node: Node, given: Sequence[Shape]) -> Shape:
    (shape,), attributes, weight = given, node.attributes, node.arrays["weight"]
    dilation: Any = attributes["dilation"]
    window = [1 + d * (n - 1) for d, n in zip(dilation, weight.shape[2:], strict=True)]
    after = _windows(shape, window, attributes["stride"], attributes["padding"])
    groups: Any = attributes["groups"]
    _insist(shape[1] == weight.shape[1] * groups)
    return (after[0], len(weight), *after[2:])


def _conv_transpose(node: Node, given: Sequence[Shape]) -> Shape:
    (shape,), attributes, weight = given, node.attributes, node.arrays["weight"]
    _insist(len(shape) == weight.dim() and shape[1] == len(weight) and 0 not in shape)
    names = ("stride", "padding", "dilation", "output_padding")
    numbers: list[Any] = [attributes[name] for name in names]
    lengths = zip(shape[2:], weight.shape[2:], *numbers, strict=True)
    sides = []
    for length, size, step, room, apart, more in lengths:
        _insist(more < max(step, apart))
        sides.append((length - 1) * step - 2 * room + apart * (size - 1) + more + 1)
        _insist(sides[-1] > 0)
    groups: Any = attributes["groups"]
    return (shape[0], weight.shape[1] * groups, *sides)


def _linear(node: Node, given: Sequence[Shape]) -> Shape:
    (shape,), weight = given, node.arrays["weight"]
    _insist(weight.dim() == 2 and shape[-1:] == weight.shape[1:])
    return (*shape[:-1], len(weight))


def _pool(node: Node, given: Sequence[Shape]) -> Shape:
    (shape,), attributes = given, node.attributes
    window: Any = attributes["kernel_size"]
    padding: Any = attributes["padding"]
    dilation: Any = attributes.get("dilation", (1,) * len(window))
    wide = [1 + d * (n - 1) for d, n in zip(dilation, window, strict=True)]
    _insist(all(2 * p <= n for p, n in zip(padding, window, strict=True)))
    ceil_mode = bool(attributes["ceil_mode"])
    return _windows(shape, wide, attributes["stride"], padding, ceil_mode=ceil_mode)


def _adaptive(node: Node, given: Sequence[Shape]) -> Shape:
    (shape,) = given
    wanted: Any = node.attributes["output_size"]
    _insist(len(shape) == 2 + len(wanted) and 0 not in shape)
    sides = zip(wanted, shape[2:], strict=True)
    return (*shape[:2], *(now if n is None else n for n, now in sides))


def _arithmetic(node: Node, given: Sequence[Shape]) -> Shape:
    return tuple(torch.broadcast_shapes(*given))


def _cat(node: Node, given: Sequence[Shape]) -> Shape:
    dim: Any = node.attributes["dim"]
    first = given[0]
    _insist(-len(first) <= dim < len(first))
    axis = dim % len(first)
    rest = {(len(x), x[:axis], x[axis + 1 :]) for x in given}
    _insist(len(rest) == 1)
    return (*first[:axis], sum(x[axis] for x in given), *first[axis + 1 :])


def _flatten(node: Node, given: Sequence[Shape]) -> Shape:
    (shape,) = given
    start, end = (node.attributes.get(k, n) for k, n in (("start_dim", 0), ("end_dim", -1)))
    _insist((start, end) == (1, -1) and len(shape) > 1)
    return (shape[0], prod(shape[1:]))


RULES: Mapping[str, Rule] = {
    **dict.fromkeys((*ELEMENTWISE, *DROPOUTS), _same),
    **dict.fromkeys(ARITHMETIC, _arithmetic),
    **dict.fromkeys(("affine", "batch_norm"), _per_channel),
    **dict.fromkeys(("max_pool", "avg_pool"), _pool),
    **dict.fromkeys(("adaptive_max_pool", "adaptive_avg_pool"), _adaptive),
    "cat": _cat,
    "conv": _conv,
    "conv_transpose": _conv_transpose,
    "flatten": _flatten,
    "group_norm": _group_norm,
    "layer_norm": _layer_norm,
    "linear": _linear,
    "prelu": _prelu,
}
