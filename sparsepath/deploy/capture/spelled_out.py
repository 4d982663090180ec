"""Functions that are others one after the other: a trace records those in their place."""

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from sparsepath.deploy.capture.translate import Unknown

functional = nn.functional
Spelling = Callable[..., Any]
SPELLED_OUT: dict[object, Spelling] = {}
"""By function, or method's name: the same in functions that a graph has operations for."""


def spells_out(*functions: object) -> Callable[[Spelling], Spelling]:
    """Make a function what these functions and methods (named by strings) are in others."""

    def register(spelling: Spelling) -> Spelling:
        SPELLED_OUT.update(dict.fromkeys(functions, spelling))
        return spelling

    return register


@spells_out("add", torch.add)
def _add(input: Any, other: Any, *, alpha: float) -> Any:
    return input + alpha * other


@spells_out("sub", torch.sub, "subtract", torch.subtract)
def _sub(input: Any, other: Any, *, alpha: float = 1) -> Any:
    return input - (other if alpha == 1 else alpha * other)


@spells_out("multiply", torch.multiply)
def _multiply(input: Any, other: Any) -> Any:
    return input * other


@spells_out("divide", torch.divide, "true_divide", torch.true_divide)
def _divide(input: Any, other: Any) -> Any:
    return input / other


@spells_out("clone", torch.clone)
def _clone(input: Any, *, memory_format: Any = None) -> Any:
    """Without a change in place it is nothing at all; with one it may have been a copy or not."""
    return input.contiguous()


@spells_out(functional.cosine_similarity)
def _cosine_similarity(x1: Any, x2: Any, dim: int = 1, eps: float = 1e-8) -> Any:
    lengths = (_norm(x, 2, dim, keepdim=True).clamp(min=eps) for x in (x1, x2))
    one, other = (x / length for x, length in zip((x1, x2), lengths, strict=True))
    return (one * other).sum(dim)


@spells_out("norm", torch.norm)
def _norm(input: Any, p: Any = "fro", dim: Any = None, keepdim: bool = False) -> Any:
    if p not in ("fro", 2):
        raise Unknown(f"its norm is of order {p!r}")
    if dim is None:
        raise Unknown("it leaves the axes open")
    return (input * input).sum(dim, keepdim).sqrt()


@spells_out(torch.linalg.vector_norm)
def _vector_norm(x: Any, ord: Any = 2, dim: Any = None, keepdim: bool = False) -> Any:
    return _norm(x, ord, dim, keepdim)


@spells_out(torch.linalg.norm)
def _linalg_norm(A: Any, ord: Any = None, dim: Any = None, keepdim: bool = False) -> Any:
    if ord is not None and not isinstance(dim, int):
        raise Unknown("it is a matrix norm")
    return _norm(A, "fro" if ord is None else ord, dim, keepdim)


@spells_out(functional.normalize)
def _normalize(input: Any, p: float = 2.0, dim: Any = 1, eps: float = 1e-12) -> Any:
    return input / _norm(input, p, dim, keepdim=True).clamp(min=eps)


@spells_out(functional.rms_norm, torch.rms_norm)
def _rms_norm(input: Any, normalized_shape: Any, weight: Any = None, eps: Any = None) -> Any:
    if eps is None:
        raise Unknown("its eps hangs on the type of what comes")
    axes = tuple(range(-len(normalized_shape), 0))
    scaled = input / ((input * input).mean(axes, True) + eps).sqrt()
    return scaled if weight is None else scaled * weight


@spells_out(torch.var_mean)
def _var_mean(
    input: Any,
    dim: Any = None,
    unbiased: bool | None = None,
    keepdim: bool = False,
    *,
    correction: int | None = None,
) -> tuple[Any, Any]:
    if dim is None or isinstance(dim, bool):
        raise Unknown("it leaves the axes open")
    if unbiased is not False and correction != 0:
        raise Unknown("it divides by one less than there are")
    apart = input - input.mean(dim, True)
    return (apart * apart).mean(dim, keepdim), input.mean(dim, keepdim)


@spells_out("var", torch.var)
def _var(*arguments: Any, **keywords: Any) -> Any:
    return _var_mean(*arguments, **keywords)[0]


@spells_out("std", torch.std)
def _std(*arguments: Any, **keywords: Any) -> Any:
    return _var(*arguments, **keywords).sqrt()


@spells_out("clamp_min", torch.clamp_min)
def _clamp_min(input: Any, min: Any) -> Any:
    return input.clamp(min=min)


@spells_out("clamp_max", torch.clamp_max)
def _clamp_max(input: Any, max: Any) -> Any:
    return input.clamp(max=max)


@spells_out("rsqrt", torch.rsqrt)
def _rsqrt(input: Any) -> Any:
    return 1 / input.sqrt()


@spells_out("reciprocal", torch.reciprocal)
def _reciprocal(input: Any) -> Any:
    return 1 / input


@spells_out("lerp", torch.lerp)
def _lerp(input: Any, end: Any, weight: Any) -> Any:
    return input + weight * (end - input)


@spells_out("addcmul", torch.addcmul)
def _addcmul(input: Any, tensor1: Any, tensor2: Any, *, value: float = 1) -> Any:
    product = tensor1 * tensor2
    return input + (product if value == 1 else value * product)


@spells_out("addcdiv", torch.addcdiv)
def _addcdiv(input: Any, tensor1: Any, tensor2: Any, *, value: float = 1) -> Any:
    ratio = tensor1 / tensor2
    return input + (ratio if value == 1 else value * ratio)


@spells_out("swapaxes", torch.swapaxes, "swapdims", torch.swapdims)
def _swapaxes(input: Any, axis0: Any, axis1: Any) -> Any:
    return input.transpose(axis0, axis1)


@spells_out(functional.softsign)
def _softsign(input: Any) -> Any:
    return input / (1 + input.abs())


@spells_out(functional.tanhshrink)
def _tanhshrink(input: Any) -> Any:
    return input - input.tanh()


@spells_out(functional.logsigmoid)
def _logsigmoid(input: Any) -> Any:
    return -functional.softplus(-input)


@spells_out(functional.softshrink)
def _softshrink(input: Any, lambd: float = 0.5) -> Any:
    return (input - lambd).relu() - (-input - lambd).relu()


@spells_out(functional.celu, torch.celu)
def _celu(input: Any, alpha: float = 1.0, inplace: bool = False) -> Any:
    if inplace:
        raise Unknown("it changes its input")
    return alpha * functional.elu(input / alpha)


@spells_out(functional.glu)
def _glu(input: Any, dim: int = -1) -> Any:
    values, gates = input.chunk(2, dim)
    return values * gates.sigmoid()


@spells_out(functional.local_response_norm)
def _local_response_norm(
    input: Any, size: int, alpha: float = 1e-4, beta: float = 0.75, k: float = 1.0
) -> Any:
    """Its windows are over channels, which stand for it where a pool has its last side."""
    squares = functional.pad((input * input).transpose(1, -1), (size // 2, (size - 1) // 2))
    means = functional.avg_pool2d(squares, (1, size), stride=1).transpose(1, -1)
    return input / (means * alpha + k) ** beta


@spells_out(functional.pixel_unshuffle)
def _pixel_unshuffle(input: Any, downscale_factor: int) -> Any:
    parted = input.unflatten(-1, (-1, downscale_factor)).unflatten(-3, (-1, downscale_factor))
    turned = parted.transpose(-4, -3).transpose(-2, -1).transpose(-3, -2)
    return turned.flatten(-5, -3)
