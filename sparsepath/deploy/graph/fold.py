"""Passes that keep a graph's function and make it shorter: each takes a graph and gives a graph."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, cast

import torch
from torch import Tensor

from sparsepath.deploy.graph.graph import Graph, Node, Value, mapped, with_idle
from sparsepath.deploy.graph.operations import DROPOUTS, FUSED

Absorb = Callable[[Node, Node], Node | None]
LAYERS = ("conv", "conv_transpose", "linear")
ACTIVATED = (*LAYERS, "affine", "add")
CLAMPS = ("relu", "relu6")
HALVING = {
    "kernel_size": (2, 2),
    "stride": (2, 2),
    "padding": (0, 0),
    "dilation": (1, 1),
    "ceil_mode": False,
}


def folded(graph: Graph) -> Graph:
    """All passes, in the order in which each helps the next."""
    steps = (
        without_dead_code,
        without_dropout,
        lift_over_concatenations,
        fold_batch_norm,
        name_affine,
        fuse_activations,
        fuse_pools,
    )
    for step in steps:
        graph = step(graph)
    return graph


def without_dead_code(graph: Graph) -> Graph:
    """Only the nodes that some output depends on."""
    needed = set(graph.outputs)
    for node in reversed(graph.nodes):
        if node.name in needed:
            needed.update(node.inputs)
    return replace(graph, nodes=tuple(node for node in graph if node.name in needed))


def without_dropout(graph: Graph) -> Graph:
    """Without what is nothing at all when a network is used."""
    kept: list[Node] = []
    became: dict[str, str] = {}
    for node in graph:
        node = replace(node, inputs=tuple(became.get(name, name) for name in node.inputs))
        if node.op in DROPOUTS and not any(key in node.attributes for key in FUSED):
            became[node.name] = node.inputs[0]
        else:
            kept.append(node)
    nodes = with_idle(kept, list(became.items()))
    return replace(graph, nodes=nodes, output=_renamed(graph.output, became))


def lift_over_concatenations(graph: Graph) -> Graph:
    """A batch norm or ReLU that alone reads a concatenation of layers moves to the layers."""
    readers = dict(graph.readers())
    kept: dict[str, Node] = {}
    became: dict[str, str] = {}
    for node in graph:
        node = replace(node, inputs=tuple(became.get(name, name) for name in node.inputs))
        cat = kept.get(node.inputs[0]) if len(node.inputs) == 1 else None
        parts: list[Node] = []
        if cat is not None and cat.op == "cat" and readers[cat.name] == (node.name,):
            layers = [kept.get(name) for name in cat.inputs]
            parts = _parts(node, [x for x in layers if x and readers[x.name] == (cat.name,)])
        if cat is None or not parts or len(parts) != len(cat.inputs) or cat.attributes["dim"] != 1:
            kept[node.name] = node
            continue
        kept.update({part.name: part for part in parts})
        readers.update({part.name: (cat.name,) for part in parts})
        del kept[cat.name]
        kept[cat.name] = replace(cat, inputs=tuple(part.name for part in parts))
        became[node.name] = cat.name
        readers[cat.name] = readers[node.name]
    return replace(graph, nodes=tuple(kept.values()), output=_renamed(graph.output, became))


def _parts(node: Node, layers: list[Node]) -> list[Node]:
    """A batch norm or ReLU for each of the layers whose maps it would get in one piece."""
    names = [f"{node.name}.{layer.name}" for layer in layers]
    if node.op in CLAMPS and all(x.op in (*ACTIVATED, "batch_norm") for x in layers):
        return [
            replace(node, name=name, inputs=(layer.name,))
            for name, layer in zip(names, layers, strict=True)
        ]
    if node.op != "batch_norm" or any(layer.op != "conv" for layer in layers):
        return []
    widths = [len(layer.arrays["weight"]) for layer in layers]
    if sum(widths) != len(node.arrays["mean"]):
        return []
    split = {key: array.split(widths) for key, array in node.arrays.items()}
    return [
        replace(
            node,
            name=name,
            inputs=(layer.name,),
            arrays={key: pieces[place] for key, pieces in split.items()},
        )
        for place, (name, layer) in enumerate(zip(names, layers, strict=True))
    ]


def fold_batch_norm(graph: Graph) -> Graph:
    """Every batch norm that alone reads a layer becomes part of the layer's weights."""
    rows = _rows(graph)

    def absorb(layer: Node, norm: Node) -> Node | None:
        if norm.op != "batch_norm" or layer.op not in LAYERS or "activation" in layer.attributes:
            return None
        # Batch norm acts along axis 1, a linear layer along the last: in rows that is the same.
        if layer.op == "linear" and layer.name not in rows:
            return None
        scale, shift = scale_and_shift(norm)
        if not bool(scale.isfinite().all() and shift.isfinite().all()):
            return None
        weight = layer.arrays["weight"]
        wide = weight.double() * _along_outputs(layer, scale)
        bias = layer.arrays.get("bias")
        start = shift if bias is None else shift + scale * bias.double()
        arrays = {"weight": wide.to(weight.dtype), "bias": start.to(weight.dtype)}
        # Products may be too large where none of the model's own sums is.
        if bool(wide.isfinite().all() & start.isfinite().all()) and not all(
            bool(array.isfinite().all()) for array in arrays.values()
        ):
            return None
        return replace(layer, arrays=arrays, before=_sums(layer, norm))

    return _absorbed(graph, absorb)


def scale_and_shift(norm: Node) -> tuple[Tensor, Tensor]:
    """A batch norm as y = scale * x + shift, in float64."""
    arrays = {name: array.double() for name, array in norm.arrays.items()}
    scale = torch.rsqrt(arrays["variance"] + cast(float, norm.attributes["eps"]))
    scale = scale * arrays.get("weight", 1.0)
    return scale, arrays.get("bias", 0.0) - arrays["mean"] * scale


def _sums(layer: Node, norm: Node) -> tuple[float, float]:
    """What a layer and its batch norm, one after the other, sum up: see `Node.before`."""
    weight, (scale, _) = layer.arrays["weight"].double(), scale_and_shift(norm)
    if not weight.numel():
        return 0.0, 0.0
    gain = torch.linalg.vector_norm(weight.flatten(1), 1, dim=1).amax()
    own = layer.arrays.get("bias", torch.zeros_like(scale)).double().abs()
    mean, bias = norm.arrays["mean"].double(), norm.arrays.get("bias", torch.zeros_like(scale))
    normed = (own + mean.abs()) * scale.abs() + bias.double().abs()
    return gain.item(), torch.maximum(own, normed).amax().item()


def _along_outputs(layer: Node, scale: Tensor) -> Tensor:
    """One number per output channel, shaped to broadcast against the layer's weight."""
    weight = layer.arrays["weight"]
    if layer.op != "conv_transpose":
        return scale.reshape(-1, *[1] * (weight.dim() - 1))
    # A transposed convolution's weight is (inputs, outputs of a group, ...), group after group.
    groups = cast(int, layer.attributes["groups"])
    by_group = scale.reshape(groups, -1).repeat_interleave(len(weight) // groups, 0)
    return by_group.reshape(*weight.shape[:2], *[1] * (weight.dim() - 2))


def _rows(graph: Graph) -> set[str]:
    """The values that are known to be a matrix, one row per image."""
    found: set[str] = set()
    for node in graph:
        flat = node.op == "flatten" and node.attributes == {"start_dim": 1, "end_dim": -1}
        shape = node.attributes.get("shape")
        shaped = node.op == "reshape" and isinstance(shape, tuple) and len(shape) == 2
        same = node.op in ("linear", "batch_norm", *CLAMPS) and node.inputs[0] in found
        if flat or shaped or same:
            found.add(node.name)
    return found


def name_affine(graph: Graph) -> Graph:
    """Every batch norm that is left becomes a scale and a shift for each channel."""

    def named(node: Node) -> Node:
        if node.op != "batch_norm":
            return node
        scale, shift = (x.to(node.arrays["mean"].dtype) for x in scale_and_shift(node))
        return replace(node, op="affine", attributes={}, arrays={"scale": scale, "shift": shift})

    return replace(graph, nodes=tuple(named(node) for node in graph))


def fuse_activations(graph: Graph) -> Graph:
    """A ReLU that alone reads a layer, an affine map or a sum becomes its activation."""

    def absorb(node: Node, activation: Node) -> Node | None:
        if node.op not in ACTIVATED or activation.op not in CLAMPS:
            return None
        if "activation" in node.attributes or "pool" in node.attributes:
            return None
        return replace(node, attributes={**node.attributes, "activation": activation.op})

    return _absorbed(graph, absorb)


def fuse_pools(graph: Graph) -> Graph:
    """A 2 x 2 max pool that alone reads a convolution becomes part of it.

    A ReLU behind such a pool moves before it: the largest of clamped values is the clamped largest.
    """

    def absorb(conv: Node, after: Node) -> Node | None:
        if conv.op != "conv" or conv.arrays["weight"].dim() != 4:
            return None
        halves = after.op == "max_pool" and {**after.attributes, "ceil_mode": False} == HALVING
        if halves and "pool" not in conv.attributes:
            pool = (2, after.attributes["ceil_mode"])
            return replace(conv, attributes={**conv.attributes, "pool": pool})
        if after.op in CLAMPS and "pool" in conv.attributes and "activation" not in conv.attributes:
            return replace(conv, attributes={**conv.attributes, "activation": after.op})
        return None

    return _absorbed(graph, absorb)


def _absorbed(graph: Graph, absorb: Absorb) -> Graph:
    """Let nodes take in the one node that reads them, where `absorb` gives what they become."""
    readers = dict(graph.readers())
    kept: dict[str, Node] = {}
    became: dict[str, str] = {}
    for node in graph:
        node = replace(node, inputs=tuple(became.get(name, name) for name in node.inputs))
        first = kept.get(node.inputs[0]) if len(node.inputs) == 1 else None
        alone = first is not None and readers[first.name] == (node.name,)
        new = absorb(first, node) if first is not None and alone else None
        if new is None:
            kept[node.name] = node
        else:
            kept[new.name] = replace(new, took=(*new.took, node.name, *node.took))
            became[node.name] = new.name
            readers[new.name] = readers[node.name]
    return replace(graph, nodes=tuple(kept.values()), output=_renamed(graph.output, became))


def _renamed(output: Any, became: dict[str, str]) -> Any:
    return mapped(
        output,
        lambda leaf: Value(became.get(leaf.name, leaf.name)) if isinstance(leaf, Value) else leaf,
    )
