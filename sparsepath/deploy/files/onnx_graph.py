"""A graph as an ONNX model, for onnxruntime to run the whole of it where that is the fastest."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy
import onnx
from onnx import TensorProto, helper, numpy_helper
from torch import Tensor

from sparsepath.deploy.graph import reference
from sparsepath.deploy.graph.graph import Graph, Node
from sparsepath.deploy.graph.pools import Shapes, with_plain_pools

OPSET = 17
NEARLY_ZERO = numpy.float32(1e-45)
"""onnxruntime takes a pad by zero into the pool behind it, which pads otherwise, or not at all."""


class Inexpressible(Exception):
    """A node that has no place here; it says which."""


class _Model:
    """ONNX nodes and arrays under construction."""

    def __init__(self, shapes: Shapes, pooled: set[str]) -> None:
        self.shapes = shapes
        self.pooled = pooled
        """the values that a pool reads"""
        self.nodes: list[onnx.NodeProto] = []
        self.arrays: list[onnx.TensorProto] = []

    def array(self, name: str, values: Any) -> str:
        """An array under that name."""
        plain = values.detach().numpy() if isinstance(values, Tensor) else numpy.asarray(values)
        self.arrays.append(numpy_helper.from_array(numpy.ascontiguousarray(plain), name))
        return name

    def node(self, op: str, inputs: Sequence[str], output: str, **attributes: Any) -> str:
        """A node that gives `output`."""
        self.nodes.append(helper.make_node(op, list(inputs), [output], **attributes))
        return output


def onnx_for(graph: Graph, inputs: Sequence[Tensor]) -> bytes:
    """The graph as an ONNX model that leaves lengths open: all, or if it must be the batch alone.

    Adaptive pools have no counterpart at every size, but most have one at the size of the inputs.
    """
    shapes = reference.shapes(graph, inputs)
    try:
        return onnx_model(graph, shapes)
    except Inexpressible:
        return onnx_model(with_plain_pools(graph, shapes), shapes, only_batch=True)


def onnx_model(graph: Graph, shapes: Shapes, *, only_batch: bool = False) -> bytes:
    """The graph as a serialised ONNX model, or Inexpressible; `shapes` are an example's.

    They tell how many axes a value has; every length is left open, or the batch's alone.
    """
    pools = (node.inputs for node in graph if node.op in ("avg_pool", "max_pool"))
    model = _Model(shapes, {name for inputs in pools for name in inputs})
    for node in graph:
        if node.op not in WRITERS:
            why = f" ({node.op})" if node.call is None else f", since {node.call.why},"
            raise Inexpressible(f"{node.name!r}{why} has no translation to ONNX")
        name = WRITERS[node.op](model, node, node.name if not _fused(node) else f"{node.name}:own")
        if _fused(node):
            _write_fused(model, node, name)
    names = [f"axis{place}" for place in range(8)]
    inputs = [
        helper.make_tensor_value_info(
            name,
            TensorProto.FLOAT,
            [
                length if only_batch and axis else f"{name}:{names[axis]}"
                for axis, length in enumerate(shapes[name])
            ],
        )
        for name in graph.inputs
    ]
    outputs = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in graph.outputs
    ]
    made = helper.make_graph(model.nodes, "sparsepath", inputs, outputs, model.arrays)
    whole = helper.make_model(made, opset_imports=[helper.make_opsetid("", OPSET)])
    whole.ir_version = 8
    return bytes(whole.SerializeToString())


def _fused(node: Node) -> bool:
    return "activation" in node.attributes or "pool" in node.attributes


def _write_fused(model: _Model, node: Node, own: str) -> None:
    pool, activation = node.attributes.get("pool"), node.attributes.get("activation")
    if activation is not None:
        clamped = f"{node.name}:clamped" if pool else node.name
        own = _clamp(model, str(activation), own, clamped)
    if isinstance(pool, tuple):
        shape = {"kernel_shape": (2, 2), "strides": (2, 2), "ceil_mode": int(bool(pool[1]))}
        model.node("MaxPool", [own], node.name, **shape)


def _clamp(model: _Model, op: str, source: str, name: str) -> str:
    if op == "relu":
        return model.node("Relu", [source], name)
    ends = [model.array(f"{name}:{end}", numpy.float32(end)) for end in (0, 6)]
    return model.node("Clip", [source, *ends], name)


def _arrays(model: _Model, node: Node, *keys: str) -> list[str]:
    return [
        model.array(f"{node.name}:{key}", node.arrays[key]) for key in keys if key in node.arrays
    ]


def _refuse_unbatched(model: _Model, node: Node, axes: int) -> None:
    if len(model.shapes[node.inputs[0]]) != axes + 2:
        raise Inexpressible(f"{node.name!r} takes a single image, without a batch")


def _conv(model: _Model, node: Node, name: str) -> str:
    _refuse_unbatched(model, node, node.arrays["weight"].dim() - 2)
    attributes: dict[str, Any] = dict(node.attributes)
    more = (
        {"output_padding": attributes["output_padding"]} if "output_padding" in attributes else {}
    )
    return model.node(
        "ConvTranspose" if more else "Conv",
        [*node.inputs, *_arrays(model, node, "weight", "bias")],
        name,
        strides=attributes["stride"],
        pads=[*attributes["padding"], *attributes["padding"]],
        dilations=attributes["dilation"],
        group=attributes["groups"],
        kernel_shape=list(node.arrays["weight"].shape[2:]),
        **more,
    )


def _linear(model: _Model, node: Node, name: str) -> str:
    turned = model.array(f"{node.name}:weight", node.arrays["weight"].t())
    if "bias" not in node.arrays:
        return model.node("MatMul", [*node.inputs, turned], name)
    product = model.node("MatMul", [*node.inputs, turned], f"{node.name}:product")
    return model.node("Add", [product, *_arrays(model, node, "bias")], name)


def _affine(model: _Model, node: Node, name: str) -> str:
    ones = [1] * (len(model.shapes[node.inputs[0]]) - 2)
    scale, shift = (
        model.array(f"{node.name}:{key}", node.arrays[key].view(-1, *ones))
        for key in ("scale", "shift")
    )
    product = model.node("Mul", [*node.inputs, scale], f"{node.name}:product")
    return model.node("Add", [product, shift], name)


def _pool(model: _Model, node: Node, name: str) -> str:
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


def _global_pool(model: _Model, node: Node, name: str) -> str:
    sizes: Any = node.attributes["output_size"]
    _refuse_unbatched(model, node, len(sizes))
    if set(sizes) != {1}:
        raise Inexpressible(f"{node.name!r} pools to another size than 1")
    kind = "GlobalAveragePool" if node.op == "adaptive_avg_pool" else "GlobalMaxPool"
    return model.node(kind, node.inputs, name)


def _mean(model: _Model, node: Node, name: str) -> str:
    axes: Any = node.attributes["dim"]
    keep = int(bool(node.attributes["keepdim"]))
    return model.node("ReduceMean", node.inputs, name, axes=list(axes), keepdims=keep)


def _flatten(model: _Model, node: Node, name: str) -> str:
    if node.attributes != {"start_dim": 1, "end_dim": -1}:
        raise Inexpressible(f"{node.name!r} does not flatten into rows")
    return model.node("Flatten", node.inputs, name, axis=1)


def _reshape(model: _Model, node: Node, name: str) -> str:
    shape = model.array(f"{node.name}:shape", numpy.array(node.attributes["shape"], numpy.int64))
    return model.node("Reshape", [*node.inputs, shape], name)


def _index(model: _Model, node: Node, name: str) -> str:
    slices: Any = node.attributes["slices"]
    if any(start is not None or stop is not None for start, stop, _ in slices):
        raise Inexpressible(f"{node.name!r} takes a part of an axis")
    whole = numpy.iinfo(numpy.int64).max
    rows = {
        "starts": [0] * len(slices),
        "ends": [whole] * len(slices),
        "axes": list(range(len(slices))),
        "steps": [step or 1 for _, _, step in slices],
    }
    arrays = [model.array(f"{node.name}:{k}", numpy.array(v, numpy.int64)) for k, v in rows.items()]
    return model.node("Slice", [*node.inputs, *arrays], name)


def _pad(model: _Model, node: Node, name: str) -> str:
    room: Any = node.attributes["pad"]
    if node.attributes["mode"] != "constant":
        raise Inexpressible(f"{node.name!r} pads in an unusual way")
    alone = [0] * (len(model.shapes[node.inputs[0]]) - len(room) // 2)
    # torch counts from the last axis
    before, after = [*alone, *room[-2::-2]], [*alone, *room[::-2]]
    pads = model.array(f"{node.name}:pads", numpy.array([*before, *after], numpy.int64))
    value = numpy.float32(node.attributes["value"] or 0)  # type: ignore[arg-type]
    if not value and name in model.pooled:
        value = NEARLY_ZERO
    return model.node("Pad", [*node.inputs, pads, model.array(f"{node.name}:value", value)], name)


def _two(op: str) -> Callable[[_Model, Node, str], str]:
    def write(model: _Model, node: Node, name: str) -> str:
        if len(node.inputs) != 2:
            raise Inexpressible(f"{node.name!r} has a number on one side")
        return model.node(op, node.inputs, name)

    return write


def _along(op: str) -> Callable[[_Model, Node, str], str]:
    return lambda model, node, name: model.node(op, node.inputs, name, axis=node.attributes["dim"])


WRITERS: dict[str, Callable[[_Model, Node, str], str]] = {
    "adaptive_avg_pool": _global_pool,
    "adaptive_max_pool": _global_pool,
    "add": _two("Add"),
    "affine": _affine,
    "avg_pool": _pool,
    "cat": _along("Concat"),
    "conv": _conv,
    "conv_transpose": _conv,
    "flatten": _flatten,
    "index": _index,
    "linear": _linear,
    "log_softmax": _along("LogSoftmax"),
    "max_pool": _pool,
    "mean": _mean,
    "mul": _two("Mul"),
    "pad": _pad,
    "relu": lambda model, node, name: _clamp(model, "relu", node.inputs[0], name),
    "relu6": lambda model, node, name: _clamp(model, "relu6", node.inputs[0], name),
    "reshape": _reshape,
    "sigmoid": lambda model, node, name: model.node("Sigmoid", node.inputs, name),
    "softmax": _along("Softmax"),
}
