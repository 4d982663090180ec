"""Functions that are others one after the other: a trace records those in their place."""

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from sparsepath.deploy.capture.translate import Unknown

functional = nn.functional
Spelling = Callable[..., Any]
SPELLED_OUT: dict[object, Spelling] = {}
"""By function, or method's name: the same in functions that a graph has operations for.

Only what is the same for every type and number of axes, and in its gradients too, belongs here.
"""


def spells_out(*functions: object) -> Callable[[Spelling], Spelling]:
    """Make a function what these functions and methods (named by strings) are in others."""

    def register(spelling: Spelling) -> Spelling:
        SPELLED_OUT.update(dict.fromkeys(functions, spelling))
        return spelling

    return register


@spells_out(torch.multiply)
def _multiply(input: Any, other: Any) -> Any:
    return input * other


@spells_out(torch.divide, torch.true_divide)
def _divide(input: Any, other: Any) -> Any:
    return input / other


@spells_out("reciprocal", torch.reciprocal)
def _reciprocal(input: Any) -> Any:
    return 1 / input


@spells_out("rsqrt", torch.rsqrt)
def _rsqrt(input: Any) -> Any:
    return 1 / input.sqrt()


@spells_out("addcmul", torch.addcmul)
def _addcmul(input: Any, tensor1: Any, tensor2: Any, *, value: float = 1) -> Any:
    product = tensor1 * tensor2
    return input + (product if value == 1 else value * product)


@spells_out("addcdiv", torch.addcdiv)
def _addcdiv(input: Any, tensor1: Any, tensor2: Any, *, value: float = 1) -> Any:
    ratio = tensor1 / tensor2
    return input + (ratio if value == 1 else value * ratio)


@spells_out("clamp_min", torch.clamp_min)
def _clamp_min(input: Any, min: Any) -> Any:
    return input.clamp(min=min)


@spells_out("clamp_max", torch.clamp_max)
def _clamp_max(input: Any, max: Any) -> Any:
    return input.clamp(max=max)


@spells_out("swapaxes", torch.swapaxes)
def _swapaxes(input: Any, axis0: Any, axis1: Any) -> Any:
    return input.transpose(axis0, axis1)


@spells_out("swapdims", torch.swapdims)
def _swapdims(input: Any, dim0: Any, dim1: Any) -> Any:
    return input.transpose(dim0, dim1)


@spells_out(functional.normalize)
def _normalize(input: Any, p: float = 2.0, dim: Any = 1, eps: float = 1e-12) -> Any:
    if p != 2:
        raise Unknown(f"its norm is of order {p!r}")
    return input / torch.linalg.vector_norm(input, 2, dim, True).clamp(min=eps)


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


@spells_out(functional.celu)
def _celu(input: Any, alpha: float = 1.0, inplace: bool = False) -> Any:
    if alpha != 1 or inplace:
        raise Unknown("it is no ELU, or changes its input")
    return functional.elu(input)


@spells_out(functional.pixel_unshuffle)
def _pixel_unshuffle(input: Any, downscale_factor: int) -> Any:
    parted = input.unflatten(-1, (-1, downscale_factor)).unflatten(-3, (-1, downscale_factor))
    turned = parted.transpose(-4, -3).transpose(-2, -1).transpose(-3, -2)
    return turned.flatten(-5, -3)
