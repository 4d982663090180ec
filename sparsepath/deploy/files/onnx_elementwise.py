"""Arithmetic and elementwise functions in ONNX."""

import math
from collections.abc import Mapping
from typing import Any

from sparsepath.deploy.files.onnx_model import WRITERS, Inexpressible, Model, Writer, writes
from sparsepath.deploy.graph.graph import Node
from sparsepath.deploy.graph.operations import DROPOUTS

PLAIN: Mapping[str, str] = {
    **{op: op.capitalize() for op in ("relu", "sigmoid", "tanh", "selu", "abs", "neg", "exp")},
    **dict.fromkeys(DROPOUTS, "Identity"),
    "sqrt": "Sqrt",
    "hardswish": "HardSwish",
}
"""Operations that ONNX has under another name."""


def _plain(kind: str) -> Writer:
    return lambda model, node, name: model.node(kind, node.inputs, name)


WRITERS.update({op: _plain(kind) for op, kind in PLAIN.items()})


def _binary(kind: str) -> Writer:
    def write(model: Model, node: Node, name: str) -> str:
        number: Any = node.attributes.get("left", node.attributes.get("right"))
        sides = list(node.inputs)
        if number is not None:
            place = 0 if "left" in node.attributes else 1
            sides.insert(place, model.number(f"{node.name}:number", number))
        return model.node(kind, sides, name)

    return write


WRITERS.update({op: _binary(op.capitalize()) for op in ("add", "sub", "mul", "div")})


@writes("relu6", "hardtanh", "clamp")
def _clip(model: Model, node: Node, name: str) -> str:
    attributes = node.attributes
    least: Any = attributes.get("min_val", attributes.get("min"))
    most: Any = attributes.get("max_val", attributes.get("max"))
    usual = {"relu6": (0.0, 6.0), "hardtanh": (-1.0, 1.0)}.get(node.op)
    if usual is not None:
        least, most = (own if x is None else x for x, own in zip((least, most), usual, strict=True))
    # Of an end that is left out onnxruntime makes the largest finite number.
    given = (-math.inf if least is None else least, math.inf if most is None else most)
    ends = [
        model.number(f"{node.name}:{end}", x)
        for end, x in zip(("least", "most"), given, strict=True)
    ]
    return model.node("Clip", [*node.inputs, *ends], name)


@writes("pow")
def _pow(model: Model, node: Node, name: str) -> str:
    exponent: Any = node.attributes["exponent"]
    return model.node("Pow", [*node.inputs, model.number(f"{node.name}:exponent", exponent)], name)


@writes("leaky_relu")
def _leaky_relu(model: Model, node: Node, name: str) -> str:
    slope = node.attributes.get("negative_slope", 0.01)
    return model.node("LeakyRelu", node.inputs, name, alpha=slope)


@writes("elu")
def _elu(model: Model, node: Node, name: str) -> str:
    return model.node("Elu", node.inputs, name, alpha=node.attributes.get("alpha", 1.0))


@writes("hardsigmoid")
def _hardsigmoid(model: Model, node: Node, name: str) -> str:
    return model.node("HardSigmoid", node.inputs, name, alpha=1 / 6, beta=0.5)


@writes("softplus")
def _softplus(model: Model, node: Node, name: str) -> str:
    beta: Any = node.attributes.get("beta", 1)
    threshold: Any = node.attributes.get("threshold", 20)
    if beta <= 0 or threshold < 17:  # from there on float32 sees no difference
        raise Inexpressible(f"{node.name!r} is a softplus that is cut off early")
    if beta == 1:
        return model.node("Softplus", node.inputs, name)
    factor = model.number(f"{node.name}:beta", beta)
    steep = model.node("Mul", [*node.inputs, factor], f"{node.name}:steep")
    soft = model.node("Softplus", [steep], f"{node.name}:soft")
    return model.node("Div", [soft, factor], name)


@writes("silu")
def _silu(model: Model, node: Node, name: str) -> str:
    share = model.node("Sigmoid", node.inputs, f"{node.name}:share")
    return model.node("Mul", [*node.inputs, share], name)


@writes("mish")
def _mish(model: Model, node: Node, name: str) -> str:
    soft = model.node("Softplus", node.inputs, f"{node.name}:soft")
    share = model.node("Tanh", [soft], f"{node.name}:share")
    return model.node("Mul", [*node.inputs, share], name)


@writes("gelu")
def _gelu(model: Model, node: Node, name: str) -> str:
    (source,) = node.inputs

    def step(kind: str, one: str, other: str | float) -> str:
        place = f"{node.name}:{len(model.nodes)}"
        beside = other if isinstance(other, str) else model.number(f"{place}:number", other)
        return model.node(kind, [one, beside], place)

    if node.attributes.get("approximate", "none") == "none":
        inner = model.node("Erf", [step("Mul", source, math.sqrt(0.5))], f"{node.name}:inner")
    else:
        cube = step("Mul", step("Mul", source, source), step("Mul", source, 0.044715))
        near = step("Mul", step("Add", source, cube), math.sqrt(2 / math.pi))
        inner = model.node("Tanh", [near], f"{node.name}:inner")
    share = step("Mul", step("Add", inner, 1.0), 0.5)
    return model.node("Mul", [source, share], name)
