"""Nodes as torch's own layers, and such layers as nodes again."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from sparsepath.deploy.graph.copies import why_opaque, why_replaced
from sparsepath.deploy.graph.graph import Attribute, Node
from sparsepath.deploy.graph.operations import DROPOUTS, FUSED

# Torch's own names, so that the keys of a state_dict are those of the network it came from.
NAMES = {"mean": "running_mean", "variance": "running_var"}
KEYS = ("mean", "variance", "weight", "bias")  # as a trace lists them
Kind = type[nn.Module]


class BatchNorm(_BatchNorm):
    """Batch norm over any axes: a graph does not always say how many its input has."""

    def _check_input_dim(self, input: Tensor) -> None:
        pass


class InstanceNorm(nn.GroupNorm):
    """A group for each channel, as exact in every order in memory: torch's group norm is not."""

    def forward(self, input: Tensor) -> Tensor:
        """Of rows of pixels."""
        return super().forward(input.contiguous())


CONVOLUTIONS: Mapping[str, tuple[Kind, ...]] = {
    "conv": (nn.Conv1d, nn.Conv2d, nn.Conv3d),
    "conv_transpose": (nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d),
}
NORMS: Mapping[Attribute, Kind] = {1: nn.BatchNorm1d, 2: nn.BatchNorm2d, 3: nn.BatchNorm3d}
POOLS: Mapping[str, tuple[Kind, ...]] = {
    "max_pool": (nn.MaxPool1d, nn.MaxPool2d, nn.MaxPool3d),
    "avg_pool": (nn.AvgPool1d, nn.AvgPool2d, nn.AvgPool3d),
    "adaptive_avg_pool": (nn.AdaptiveAvgPool1d, nn.AdaptiveAvgPool2d, nn.AdaptiveAvgPool3d),
    "adaptive_max_pool": (nn.AdaptiveMaxPool1d, nn.AdaptiveMaxPool2d, nn.AdaptiveMaxPool3d),
}
WEIGHTED: Mapping[str, Kind] = {
    "group_norm": nn.GroupNorm,
    "layer_norm": nn.LayerNorm,
    "linear": nn.Linear,
    "prelu": nn.PReLU,
}
"""Other layers with weights."""
PLAIN: Mapping[str, Kind] = {
    **dict(
        zip(
            DROPOUTS,
            (
                *(nn.Dropout, nn.Dropout1d, nn.Dropout2d, nn.Dropout3d),
                *(nn.AlphaDropout, nn.FeatureAlphaDropout),
            ),
            strict=True,
        )
    ),
    "elu": nn.ELU,
    "flatten": nn.Flatten,
    "gelu": nn.GELU,
    "hardsigmoid": nn.Hardsigmoid,
    "hardswish": nn.Hardswish,
    "hardtanh": nn.Hardtanh,
    "leaky_relu": nn.LeakyReLU,
    "log_softmax": nn.LogSoftmax,
    "mish": nn.Mish,
    "pixel_shuffle": nn.PixelShuffle,
    "relu": nn.ReLU,
    "relu6": nn.ReLU6,
    "selu": nn.SELU,
    "sigmoid": nn.Sigmoid,
    "silu": nn.SiLU,
    "softmax": nn.Softmax,
    "softplus": nn.Softplus,
    "tanh": nn.Tanh,
}
"""Layers without weights whose arguments are the operation's own."""


def array_name(node: Node, key: str) -> str:
    """What a state_dict calls an array of a node; one that a network holds bare is the node."""
    return node.name if node.op == "constant" else f"{node.name}.{NAMES.get(key, key)}"


def layer_of(node: Node) -> nn.Module | None:
    """The layer that a node is, its weights still to be set; None where torch has none."""
    if any(array.numel() == 0 for array in node.arrays.values()):
        return None
    own = {key: x for key, x in node.attributes.items() if key not in (*FUSED, "learned")}
    try:
        layer = _made(node, own)
    except (TypeError, ValueError, LookupError, AssertionError):  # a layer is pickier than a call
        return None
    if layer is None:
        return None
    fits = all(_like(layer, NAMES.get(key, key), array) for key, array in node.arrays.items())
    return layer if fits else None


def _like(layer: nn.Module, name: str, array: Tensor) -> bool:
    known = getattr(layer, name, None)
    return isinstance(known, Tensor) and known.shape == array.shape


def _made(node: Node, own: dict[str, Any]) -> nn.Module | None:
    if node.op in CONVOLUTIONS:
        return _convolution(node, own)
    if node.op in WEIGHTED:
        return _weighted(node, own)
    if node.op == "batch_norm":
        return _batch_norm(node, own)
    if node.op in POOLS:
        sides = own["output_size" if "adaptive" in node.op else "kernel_size"]
        if node.op == "avg_pool" and len(sides) == 1:
            del own["divisor_override"]
        return POOLS[node.op][len(sides) - 1](**own)
    if node.op == "flatten" and len(own) != 2:  # the layer has other defaults than the function
        return None
    return PLAIN[node.op](**own) if node.op in PLAIN else None


def _convolution(node: Node, own: dict[str, Any]) -> nn.Module:
    first, second, *kernel = node.arrays["weight"].shape
    ends = (second * own["groups"], first)
    if node.op == "conv_transpose":
        ends = (first, second * own["groups"])
    kind: Any = CONVOLUTIONS[node.op][len(kernel) - 1]
    made: nn.Module = kind(*ends, tuple(kernel), bias="bias" in node.arrays, device="meta", **own)
    return made


def _weighted(node: Node, own: dict[str, Any]) -> nn.Module | None:
    weight, bias = node.arrays.get("weight"), "bias" in node.arrays
    if node.op == "layer_norm":
        shape, eps, plain = own["normalized_shape"], own["eps"], weight is None
        return nn.LayerNorm(shape, eps, not plain, bias=bias or plain, device="meta")
    if weight is None:  # a group norm without weights does not say how many channels it takes
        return None
    if node.op == "linear":
        outputs, inputs = weight.shape
        return nn.Linear(inputs, outputs, bias=bias, device="meta")
    if node.op == "prelu":
        return nn.PReLU(weight.numel(), device="meta")
    kind = InstanceNorm if own["num_groups"] == len(weight) else nn.GroupNorm
    norm = kind(own["num_groups"], len(weight), own["eps"], device="meta")
    if not bias:
        norm.register_parameter("bias", None)
    return norm


def _batch_norm(node: Node, own: dict[str, Any]) -> nn.Module:
    mean = node.arrays["mean"]
    affine = "weight" in node.arrays or "bias" in node.arrays
    kind: Any = NORMS.get(own.get("axes"), BatchNorm)
    norm: nn.Module = kind(
        len(mean), own["eps"], own.get("momentum", 0.1), affine=affine, device="meta"
    )
    for key in ("weight", "bias"):
        if key not in node.arrays:
            setattr(norm, key, None)
    norm.num_batches_tracked = torch.tensor(own.get("batches", 0), device=mean.device)
    return norm


def node_of(layer: nn.Module, node: Node) -> Node | None:
    """The node that a layer in its place now is; None where it is no such layer any more.

    Its arrays are the layer's own, not copies.
    """
    arrays = {
        key: array
        for key in KEYS
        if (array := getattr(layer, NAMES.get(key, key), None)) is not None
    }
    now = replace(node, arrays=arrays)
    if why_opaque(layer) or why_replaced(layer) or not _unchanged(layer, node):
        return None
    attributes = {
        key: x if key in FUSED or not hasattr(layer, key) else getattr(layer, key)
        for key, x in node.attributes.items()
    }
    if isinstance(layer, _BatchNorm):
        batches = layer.num_batches_tracked
        attributes |= {
            "momentum": layer.momentum,
            "batches": 0 if batches is None else int(batches),
        }
        if layer.running_mean is None or layer.running_var is None:
            return None
    return replace(now, attributes=attributes)


def _unchanged(layer: nn.Module, node: Node) -> bool:
    """Whether it is the kind of layer that the node was, with arguments of the same kind."""
    kinds = (*CONVOLUTIONS.get(node.op, ()), *POOLS.get(node.op, ()))
    if node.op == "batch_norm":
        kinds = (*NORMS.values(), BatchNorm)
    elif node.op == "group_norm":
        kinds = (nn.GroupNorm, InstanceNorm)
    elif not kinds:
        kinds = (({**WEIGHTED, **PLAIN})[node.op],)
    ways = (getattr(layer, key, None) for key in ("inplace", "return_indices"))
    return (
        type(layer) in kinds
        and not any(ways)
        and getattr(layer, "padding_mode", "zeros") == "zeros"
        and all(
            isinstance(getattr(layer, key, x), tuple)
            for key, x in node.attributes.items()
            if isinstance(x, tuple) and key not in FUSED
        )
    )
