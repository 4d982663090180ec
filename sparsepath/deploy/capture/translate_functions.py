"""Translations of functions without weights: shapes, arithmetic and elementwise functions."""

import inspect
import operator
from typing import Any

import torch
from torch import nn

from sparsepath.deploy.capture.translate import (
    COMPUTED_SHAPE,
    TRANSLATIONS,
    Draft,
    Length,
    Same,
    Translation,
    Unknown,
    as_plain,
    as_value,
    repeated,
    translates,
)
from sparsepath.deploy.graph.graph import Value, values_in
from sparsepath.deploy.graph.operations import DROPOUTS, OPERATIONS, REDUCTIONS

functional = nn.functional

# ---- shapes


@translates("view", "reshape", torch.reshape)
def _reshape(input: Any, *shape: Any) -> Draft:
    lengths = list(shape[0]) if len(shape) == 1 and isinstance(shape[0], (tuple, list)) else shape
    # The length that an axis has already, asked for by `x.size(0)` or `x.shape[0]`, is written 0.
    kept = [0 if n == Length(as_value(input), axis) else n for axis, n in enumerate(lengths)]
    if any(not isinstance(n, int) for n in kept) or 0 in [n for n in lengths if isinstance(n, int)]:
        raise Unknown(COMPUTED_SHAPE)
    return Draft("reshape", (as_value(input),), {"shape": tuple(kept)})


@translates(torch.cat, torch.concat, torch.concatenate)
def _cat(tensors: Any, dim: int = 0, axis: int | None = None) -> Draft:
    return Draft("cat", tuple(as_value(x) for x in tensors), {"dim": dim if axis is None else axis})


@translates("unflatten", torch.unflatten)
def _unflatten(input: Any, dim: Any, sizes: Any) -> Draft:
    lengths = tuple(sizes)
    if not isinstance(dim, int) or not all(isinstance(n, int) and n for n in lengths):
        raise Unknown(COMPUTED_SHAPE)
    return Draft("unflatten", (as_value(input),), {"dim": dim, "sizes": lengths})


@translates(functional.channel_shuffle, torch.channel_shuffle, functional.native_channel_shuffle)
def _channel_shuffle(input: Any, groups: Any) -> Draft:
    back = Draft("flatten", (), {"start_dim": 1, "end_dim": 2})
    turned = Draft("transpose", (), {"dim0": 1, "dim1": 2}, then=back)
    parted = {"dim": 1, "sizes": as_plain((groups, -1))}
    return Draft("unflatten", (as_value(input),), parted, then=turned)


@translates("permute", torch.permute)
def _permute(input: Any, *dims: Any) -> Draft:
    axes = dims[0] if len(dims) == 1 and isinstance(dims[0], (tuple, list)) else dims
    return Draft("permute", (as_value(input),), {"dims": as_plain(axes)})


def _reduction(op: str) -> Translation:
    def translate(input: Any, dim: Any = None, keepdim: bool = False) -> Draft:
        axes = repeated(dim, 1)
        if None in axes or not axes:
            raise Unknown("it leaves the axes open")
        return Draft(op, (as_value(input),), {"dim": axes, "keepdim": keepdim})

    return translate


for _name in REDUCTIONS:
    TRANSLATIONS.update(dict.fromkeys([_name, getattr(torch, _name)], _reduction(_name)))


@translates("norm", torch.norm)
def _norm(
    input: Any, p: Any = "fro", dim: Any = None, keepdim: bool = False, dtype: Any = None
) -> Draft | Same:
    if p not in ("fro", 2) or dtype is not None:
        raise Unknown(f"its norm is of order {p!r}, or it changes the type")
    return _reduction("norm")(input, dim, keepdim)


@translates(torch.linalg.vector_norm)
def _vector_norm(x: Any, ord: Any = 2, dim: Any = None, *rest: Any, **more: Any) -> Draft | Same:
    return _norm(x, ord, dim, *rest, **more)


@translates(torch.linalg.norm)
def _linalg_norm(A: Any, ord: Any = None, dim: Any = None, *rest: Any, **more: Any) -> Draft | Same:
    if ord is not None and not isinstance(dim, int):
        raise Unknown("it is a matrix norm")
    return _norm(A, "fro" if ord is None else ord, dim, *rest, **more)


# ---- what is nothing at all when a network is used


def _dropout(op: str) -> Translation:
    def translate(
        input: Any, p: float = 0.5, training: bool = True, inplace: bool = False
    ) -> Draft:
        if training:
            raise Unknown("it draws random numbers")
        return Draft(op, (as_value(input),), {"p": p})

    return translate


for _name in DROPOUTS:
    TRANSLATIONS[getattr(functional, _name)] = _dropout(_name)
TRANSLATIONS[torch.dropout] = _dropout("dropout")


@translates("contiguous", "detach")
def _identity(input: Any, memory_format: Any = None) -> Same:
    return Same(as_value(input))


# ---- arithmetic and elementwise functions


def _arithmetic(op: str) -> Translation:
    def translate(input: Any, other: Any, alpha: float = 1) -> Draft:
        if alpha != 1:
            raise Unknown("it scales one side")
        values = values_in((input, other))
        if all(isinstance(x, Value) for x in (input, other)):
            return Draft(op, (input, other))
        number = other if isinstance(input, Value) else input
        if not isinstance(number, (int, float)) or len(values) != 1:
            raise Unknown(f"one side of it is a {type(number).__name__}")
        return Draft(op, values, {"right" if isinstance(input, Value) else "left": number})

    return translate


for _name in ("add", "sub", "mul", "div"):
    TRANSLATIONS.update(dict.fromkeys([_name, getattr(torch, _name)], _arithmetic(_name)))
for _spelling, _name in {
    operator.add: "add",
    operator.sub: "sub",
    operator.mul: "mul",
    operator.truediv: "div",
}.items():
    TRANSLATIONS[_spelling] = _arithmetic(_name)


@translates("pow", torch.pow, operator.pow)
def _pow(input: Any, exponent: Any) -> Draft:
    if isinstance(exponent, bool) or not isinstance(exponent, int | float):
        raise Unknown(f"its exponent is a {type(exponent).__name__}")
    return Draft("pow", (as_value(input),), {"exponent": exponent})


@translates("square", torch.square)
def _square(input: Any) -> Draft:
    return Draft("pow", (as_value(input),), {"exponent": 2})


# Clamps that have names of their own; nn.ReLU6 calls the first.
_CLAMPS: dict[tuple[object, ...], str] = {
    ("hardtanh", 0.0, 6.0): "relu6",
    ("clamp", 0, None): "relu",
    ("clamp", 0, 6): "relu6",
}


def _by_signature(op: str, *spellings: object) -> None:
    """Translate calls whose arguments the operation itself takes, under the same names."""
    signature = inspect.signature(OPERATIONS[op])

    def translate(*arguments: Any, **keywords: Any) -> Draft:
        keywords.pop("inplace", None)
        renamed = {"x" if key in ("input", "self") else key: x for key, x in keywords.items()}
        bound = signature.bind(*arguments, **renamed)
        bound.apply_defaults()
        attributes = dict(bound.arguments)
        value = as_value(attributes.pop("x"))
        plain = {key: as_plain(x) for key, x in attributes.items()}
        name = _CLAMPS.get((op, *plain.values()))
        return Draft(op, (value,), plain) if name is None else Draft(name, (value,))

    TRANSLATIONS.update(dict.fromkeys(spellings, translate))


_METHODS = ("relu", "sigmoid", "tanh", "clamp", "abs", "neg", "exp", "sqrt", "flatten", "transpose")
_FUNCTIONS = (
    *_METHODS,
    *("relu6", "leaky_relu", "elu", "selu", "silu", "mish", "gelu", "hardswish", "hardsigmoid"),
    *("hardtanh", "softplus", "pad", "interpolate", "pixel_shuffle"),
)
for _name in _FUNCTIONS:
    _homes = [getattr(home, _name) for home in (torch, functional) if hasattr(home, _name)]
    _by_signature(_name, *_homes, *([_name] if _name in _METHODS else []))
_by_signature("neg", operator.neg)


def _softmax(op: str) -> Translation:
    def translate(
        input: Any, dim: int | None = None, _stacklevel: int = 3, dtype: Any = None
    ) -> Draft:
        if dim is None or dtype is not None:
            raise Unknown("it leaves the axis open or changes the type")
        return Draft(op, (as_value(input),), {"dim": dim})

    return translate


for _name in ("softmax", "log_softmax"):
    TRANSLATIONS.update(
        dict.fromkeys([_name, getattr(torch, _name), getattr(functional, _name)], _softmax(_name))
    )
