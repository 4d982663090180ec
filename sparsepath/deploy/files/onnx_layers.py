"""Layers, norms, pools and means in ONNX."""

from typing import Any

import numpy

from sparsepath.deploy.files.onnx_model import Inexpressible, Model, arrays, writes
from sparsepath.deploy.graph.graph import Node


def _refuse_unbatched(model: Model, node: Node, axes: int) -> None:
    if len(model.shapes[node.inputs[0]]) != axes + 2:
        raise Inexpressible(f"{node.name!r} takes a single image, without a batch")


@writes("conv", "conv_transpose")
def _conv(model: Model, node: Node, name: str) -> str:
    _refuse_unbatched(model, node, node.arrays["weight"].dim() - 2)
    attributes: dict[str, Any] = dict(node.attributes)
    more = (
        {"output_padding": attributes["output_padding"]} if "output_padding" in attributes else {}
    )
    return model.node(
        "ConvTranspose" if more else "Conv",
        [*node.inputs, *arrays(model, node, "weight", "bias")],
        name,
        strides=attributes["stride"],
        pads=[*attributes["padding"], *attributes["padding"]],
        dilations=attributes["dilation"],
        group=attributes["groups"],
        kernel_shape=list(node.arrays["weight"].shape[2:]),
        **more,
    )


@writes("linear")
def _linear(model: Model, node: Node, name: str) -> str:
    turned = model.array(f"{node.name}:weight", node.arrays["weight"].t())
    if "bias" not in node.arrays:
        return model.node("MatMul", [*node.inputs, turned], name)
    product = model.node("MatMul", [*node.inputs, turned], f"{node.name}:product")
    return model.node("Add", [product, *arrays(model, node, "bias")], name)


@writes("affine")
def _affine(model: Model, node: Node, name: str) -> str:
    ones = [1] * (len(model.shapes[node.inputs[0]]) - 2)
    scale, shift = (
        model.array(f"{node.name}:{key}", node.arrays[key].view(-1, *ones))
        for key in ("scale", "shift")
    )
    product = model.node("Mul", [*node.inputs, scale], f"{node.name}:product")
    return model.node("Add", [product, shift], name)


@writes("max_pool", "avg_pool")
def _pool(model: Model, node: Node, name: str) -> str:
    a: dict[str, Any] = dict(node.attributes)
    _refuse_unbatched(model, node, len(a["kernel_size"]))
    shape = {"kernel_shape": a["kernel_size"], "strides": a["stride"]}
    shape |= {"pads": [*a["padding"], *a["padding"]], "ceil_mode": int(a["ceil_mode"])}
    if node.op == "max_pool":
        return model.node("MaxPool", node.inputs, name, dilations=a["dilation"], **shape)
    if a["divisor_override"] is not None or a["ceil_mode"]:
        raise Inexpressible(f"{node.name!r} averages in an unusual way")
    count = int(a["count_include_pad"])
    return model.node("AveragePool", node.inputs, name, count_include_pad=count, **shape)


@writes("adaptive_avg_pool", "adaptive_max_pool")
def _global_pool(model: Model, node: Node, name: str) -> str:
    sizes: Any = node.attributes["output_size"]
    _refuse_unbatched(model, node, len(sizes))
    if set(sizes) != {1}:
        raise Inexpressible(f"{node.name!r} pools to another size than 1")
    kind = "GlobalAveragePool" if node.op == "adaptive_avg_pool" else "GlobalMaxPool"
    return model.node(kind, node.inputs, name)


@writes("batch_norm")
def _batch_norm(model: Model, node: Node, name: str) -> str:
    count = len(node.arrays["mean"])
    weight = _array_or(model, node, "weight", numpy.ones(count))
    bias = _array_or(model, node, "bias", numpy.zeros(count))
    inputs = [*node.inputs, weight, bias, *arrays(model, node, "mean", "variance")]
    return model.node("BatchNormalization", inputs, name, epsilon=node.attributes["eps"])


@writes("layer_norm")
def _layer_norm(model: Model, node: Node, name: str) -> str:
    shape: Any = node.attributes["normalized_shape"]
    weight = _array_or(model, node, "weight", numpy.ones(shape))
    inputs = [*node.inputs, weight, *arrays(model, node, "bias")]
    given = {"axis": -len(shape), "epsilon": node.attributes["eps"]}
    return model.node("LayerNormalization", inputs, name, **given)


@writes("group_norm")
def _group_norm(model: Model, node: Node, name: str) -> str:
    """Each group is normed as one row, then channels are scaled.

    By the distances from the mean: InstanceNormalization takes the variance as a difference of two
    large numbers, which leaves nothing of that of a channel that is nearly constant.
    """
    groups: Any = node.attributes["num_groups"]
    (source,) = node.inputs
    parted = model.array(f"{node.name}:parted", numpy.array([0, groups, -1], numpy.int64))
    apart = model.node("Reshape", [source, parted], f"{node.name}:groups")
    for time in ("first", "then"):  # a mean is rounded; that of what it left hardly is
        mean = model.node("ReduceMean", [apart], f"{node.name}:{time}:mean", axes=[2])
        apart = model.node("Sub", [apart, mean], f"{node.name}:{time}:apart")
    square = model.node("Mul", [apart, apart], f"{node.name}:square")
    variance = model.node("ReduceMean", [square], f"{node.name}:variance", axes=[2])
    eps = model.number(f"{node.name}:eps", float(str(node.attributes["eps"])))
    above = model.node("Add", [variance, eps], f"{node.name}:above")
    deviation = model.node("Sqrt", [above], f"{node.name}:deviation")
    value = model.node("Div", [apart, deviation], f"{node.name}:normed")
    whole = model.shape(f"{node.name}:whole", (source, 0, None))
    value = model.node("Reshape", [value, whole], f"{node.name}:images")
    for key, kind in (("weight", "Mul"), ("bias", "Add")):
        if key in node.arrays:
            beside = node.arrays[key].view(-1, *[1] * (model.rank(source) - 2))
            array = model.array(f"{node.name}:{key}", beside)
            value = model.node(kind, [value, array], f"{node.name}:{kind}")
    return model.node("Identity", [value], name)


@writes("prelu")
def _prelu(model: Model, node: Node, name: str) -> str:
    slopes = node.arrays["weight"]
    beside = slopes.view(-1, *[1] * max(0, model.rank(node.inputs[0]) - 2))
    slope = model.array(f"{node.name}:weight", slopes if len(slopes) == 1 else beside)
    return model.node("PRelu", [*node.inputs, slope], name)


def _array_or(model: Model, node: Node, key: str, otherwise: Any) -> str:
    """An array of the node, or others in its place where it has none."""
    own = arrays(model, node, key)
    plain = otherwise.astype(numpy.float32)
    return own[0] if own else model.array(f"{node.name}:{key}", plain)


REDUCED = {"mean": "ReduceMean", "norm": "ReduceL2", "amax": "ReduceMax", "amin": "ReduceMin"}


@writes(*REDUCED, "sum")
def _reduced(model: Model, node: Node, name: str) -> str:
    dims: Any = node.attributes["dim"]
    axes, keep = list(dims), int(bool(node.attributes.get("keepdim", False)))
    if node.op != "sum":
        return model.node(REDUCED[node.op], node.inputs, name, axes=axes, keepdims=keep)
    places = model.array(f"{node.name}:axes", numpy.array(axes, numpy.int64))
    return model.node("ReduceSum", [*node.inputs, places], name, keepdims=keep)


@writes("softmax", "log_softmax")
def _along(model: Model, node: Node, name: str) -> str:
    kind = "Softmax" if node.op == "softmax" else "LogSoftmax"
    return model.node(kind, node.inputs, name, axis=node.attributes["dim"])
