"""Shapes, parts and sizes of images in ONNX."""

from collections.abc import Sequence
from typing import Any

import numpy

from sparsepath.deploy.files.onnx_model import Inexpressible, Model, arrays, writes
from sparsepath.deploy.graph.graph import Node

NEARLY_ZERO = numpy.float32(1e-45)
"""onnxruntime takes a pad by zero into the pool behind it, which pads otherwise, or not at all."""


@writes("constant")
def _constant(model: Model, node: Node, name: str) -> str:
    return model.node("Identity", arrays(model, node, "value"), name)


@writes("cat")
def _cat(model: Model, node: Node, name: str) -> str:
    return model.node("Concat", node.inputs, name, axis=node.attributes["dim"])


@writes("flatten")
def _flatten(model: Model, node: Node, name: str) -> str:
    rank = model.rank(node.inputs[0])
    ends: Any = node.attributes.get("start_dim", 0), node.attributes.get("end_dim", -1)
    start, end = (axis % max(1, rank) for axis in ends)
    if (start, end) == (1, rank - 1):
        return model.node("Flatten", node.inputs, name, axis=1)
    return _in_shape(model, node, name, [*[0] * start, -1], end + 1)


@writes("unflatten")
def _unflatten(model: Model, node: Node, name: str) -> str:
    axis: Any = node.attributes["dim"]
    sizes: Any = node.attributes["sizes"]
    axis %= model.rank(node.inputs[0])
    return _in_shape(model, node, name, [*[0] * axis, *sizes], axis + 1)


def _in_shape(model: Model, node: Node, name: str, first: Sequence[int], behind: int) -> str:
    """In a shape that ends in the input's own, 0 for the length that an axis has already."""
    (source,) = node.inputs
    rest = [(source, behind, None)] if behind < model.rank(source) else []
    return model.node("Reshape", [source, model.shape(f"{node.name}:shape", first, *rest)], name)


@writes("reshape")
def _reshape(model: Model, node: Node, name: str) -> str:
    shape = model.array(f"{node.name}:shape", numpy.array(node.attributes["shape"], numpy.int64))
    return model.node("Reshape", [*node.inputs, shape], name)


@writes("permute", "transpose")
def _permute(model: Model, node: Node, name: str) -> str:
    rank, attributes = model.rank(node.inputs[0]), node.attributes
    order: Any = list(range(rank))
    if node.op == "permute":
        dims: Any = attributes["dims"]
        order = [axis % rank for axis in dims]
    else:
        one, other = (int(str(attributes[key])) % rank for key in ("dim0", "dim1"))
        order[one], order[other] = order[other], order[one]
    return model.node("Transpose", node.inputs, name, perm=order)


@writes("index")
def _index(model: Model, node: Node, name: str) -> str:
    slices: Any = node.attributes["slices"]
    whole = numpy.iinfo(numpy.int64).max
    rows = {
        "starts": [start or 0 for start, _, _ in slices],
        "ends": [whole if stop is None else stop for _, stop, _ in slices],
        "axes": list(range(len(slices))),
        "steps": [step or 1 for _, _, step in slices],
    }
    places = [model.array(f"{node.name}:{k}", numpy.array(v, numpy.int64)) for k, v in rows.items()]
    return model.node("Slice", [*node.inputs, *places], name)


@writes("pixel_shuffle")
def _pixel_shuffle(model: Model, node: Node, name: str) -> str:
    if model.rank(node.inputs[0]) != 4:
        raise Inexpressible(f"{node.name!r} takes a single image, without a batch")
    sides = {"blocksize": node.attributes["upscale_factor"], "mode": "CRD"}
    return model.node("DepthToSpace", node.inputs, name, **sides)


@writes("pad")
def _pad(model: Model, node: Node, name: str) -> str:
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


@writes("interpolate", "interpolate_like")
def _resize(model: Model, node: Node, name: str) -> str:
    attributes: Any = node.attributes
    source, mode = node.inputs[0], attributes["mode"]
    by, anew = attributes.get("scale_factor"), attributes.get("recompute_scale_factor")
    sides = model.rank(source) - 2
    factors = list(by) if isinstance(by, tuple) else [by] * sides
    by_factors = by is not None and not anew
    if mode == "nearest" and not (by_factors and all(x == int(x) for x in factors)):
        return _nearest(model, node, name)
    if attributes.get("antialias") or mode not in RESIZES or (by is not None and anew):
        raise Inexpressible(f"{node.name!r} resizes in a way that has no translation to ONNX")
    given = {**RESIZES[mode]}
    if attributes.get("align_corners"):
        given["coordinate_transformation_mode"] = "align_corners"
    if by_factors and not _alike(model, node, factors):
        raise Inexpressible(f"{node.name!r} resizes by a factor that ONNX rounds")
    if by_factors:
        scales = numpy.array([1, 1, *factors], numpy.float32)
        inputs = [source, "", model.array(f"{node.name}:scales", scales)]
    else:
        size = attributes.get("size")
        wanted: Any = size if isinstance(size, tuple) else (size,) * sides
        if node.op == "interpolate_like":
            wanted = (node.inputs[1], 2, None)
        inputs = [source, "", "", model.shape(f"{node.name}:size", (source, 0, 2), wanted)]
    return model.node("Resize", inputs, name, **given)


def _alike(model: Model, node: Node, factors: Sequence[float]) -> bool:
    """Whether factors in float32 give images of the same size: of every size, or of this alone."""
    if all(x == float(numpy.float32(x)) for x in factors):
        return True
    before, after = model.shapes[node.inputs[0]][2:], model.shapes[node.name][2:]
    rounded = numpy.array(before, numpy.float32) * numpy.array(factors, numpy.float32)
    return model.fixed and numpy.floor(rounded).astype(int).tolist() == list(after)


HALF: dict[str, Any] = {"coordinate_transformation_mode": "half_pixel"}
RESIZES: dict[str, dict[str, Any]] = {
    "nearest": {
        "mode": "nearest",
        "coordinate_transformation_mode": "asymmetric",
        "nearest_mode": "floor",
    },
    **{mode: {"mode": "linear", **HALF} for mode in ("linear", "bilinear", "trilinear")},
    "bicubic": {"mode": "cubic", "cubic_coeff_a": -0.75, **HALF},
}


def _nearest(model: Model, node: Node, name: str) -> str:
    """Pixel by pixel: which is the nearest may hang on rounding, and torch's is its own."""
    if not model.fixed:
        raise Inexpressible(f"{node.name!r} takes the nearest pixels of images of any size")
    value = node.inputs[0]
    before, after = model.shapes[value][2:], model.shapes[node.name][2:]
    by: Any = node.attributes.get("scale_factor")
    if node.attributes.get("recompute_scale_factor"):
        by = None
    for axis, (now, then) in enumerate(zip(before, after, strict=True)):
        factor = by[axis] if isinstance(by, tuple) else by
        step = numpy.float32(now / then if factor is None else 1 / factor)
        pixels = numpy.floor(numpy.arange(then, dtype=numpy.float32) * step).astype(numpy.int64)
        places = model.array(f"{node.name}:pixels{axis}", numpy.minimum(pixels, now - 1))
        own = f"{node.name}:along{axis}"
        value = model.node("Gather", [value, places], own, axis=axis + 2)
    return model.node("Identity", [value], name)
