"""A graph as an ONNX model, for onnxruntime to run the whole of it where that is the fastest."""

from collections.abc import Sequence

from onnx import TensorProto, helper
from torch import Tensor

from sparsepath.deploy.files import onnx_elementwise, onnx_layers, onnx_shapes
from sparsepath.deploy.files.onnx_model import OPSET, WRITERS, Inexpressible, Model
from sparsepath.deploy.graph import reference
from sparsepath.deploy.graph.graph import Graph, Node, leaves_of
from sparsepath.deploy.graph.pools import Shapes, with_plain_pools

__all__ = ["FILLED", "Inexpressible", "onnx_for", "onnx_model"]
FILLED = (onnx_elementwise, onnx_layers, onnx_shapes)
"""What fills the table of writers."""


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
    model = Model(shapes, {name for inputs in pools for name in inputs}, fixed=only_batch)
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
    given: list[str] = []
    for name in (value.name for value in leaves_of(graph.output)):
        # What a model gives twice is two results of other names.
        twice = name in given
        own = f"{name}:{len(given)}"
        given.append(model.node("Identity", [name], own) if twice else name)
    outputs = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in given]
    made = helper.make_graph(model.nodes, "sparsepath", inputs, outputs, model.arrays)
    whole = helper.make_model(made, opset_imports=[helper.make_opsetid("", OPSET)])
    whole.ir_version = 8
    return bytes(whole.SerializeToString())


def _fused(node: Node) -> bool:
    return "activation" in node.attributes or "pool" in node.attributes


def _write_fused(model: Model, node: Node, own: str) -> None:
    pool, activation = node.attributes.get("pool"), node.attributes.get("activation")
    if activation is not None:
        clamped = f"{node.name}:clamped" if pool else node.name
        own = _clamp(model, str(activation), own, clamped)
    if isinstance(pool, tuple):
        shape = {"kernel_shape": (2, 2), "strides": (2, 2), "ceil_mode": int(bool(pool[1]))}
        model.node("MaxPool", [own], node.name, **shape)


def _clamp(model: Model, op: str, source: str, name: str) -> str:
    if op == "relu":
        return model.node("Relu", [source], name)
    ends = [model.number(f"{name}:{end}", end) for end in (0, 6)]
    return model.node("Clip", [source, *ends], name)
