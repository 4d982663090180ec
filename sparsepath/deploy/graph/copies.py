"""Copies of a user's modules: tracing and running may change them, but never the user's own."""

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from types import CellType, FunctionType
from typing import Any

import torch
from torch import Tensor, nn
from torch.fx import GraphModule
from torch.nn.modules import module as global_hooks
from torch.nn.parameter import is_lazy
from torch.nn.utils.prune import BasePruningMethod
from torch.nn.utils.spectral_norm import SpectralNorm
from torch.nn.utils.weight_norm import WeightNorm

from sparsepath.deploy.graph.state import held, parts

# Torch's own hooks that do nothing but compute a weight before each run.
COMPUTE_A_WEIGHT = (BasePruningMethod, SpectralNorm, WeightNorm)


@torch.inference_mode(False)
@torch.no_grad()
def copied(module: nn.Module) -> nn.Module:
    """A module of our own in the same state; what cannot be copied, such as a lock, is shared.

    One that takes no part in this at all is given back itself.
    """
    inside = [x for _, x in held(module)]
    memo: dict[int, Any] = {
        id(x): _cloned(x) for x in inside if isinstance(x, Tensor) and _refuses_copies(x)
    }
    functions = [f for x in inside if not isinstance(x, Tensor) for f in _closures(x)]
    memo.update({id(f): _opened(f) for f in functions})
    try:
        made = dict(memo)
        own = copy.deepcopy(module, made)
    except Exception:  # whatever a user's module may hold
        try:
            own, made = _copied_in_part(module, memo)
        except Exception:
            return module
    for function in functions:
        old, new = function.__closure__ or (), made[id(function)].__closure__ or ()
        for before, after in zip(old, new, strict=True):
            if before != CellType():  # one that names nothing yet
                after.cell_contents = made.get(id(before.cell_contents), before.cell_contents)
    return own


def _refuses_copies(x: Tensor) -> bool:
    """Torch copies none that remembers how it was computed, as a pruned weight, nor sparse ones."""
    return not x.is_leaf or (x.layout != torch.strided and not is_lazy(x))


def _cloned(x: Tensor) -> Tensor:
    own = x.detach().clone()
    return nn.Parameter(own, x.requires_grad) if isinstance(x, nn.Parameter) else own


@contextmanager
def kinds_kept(module: nn.Module) -> Iterator[None]:
    """Runs of copies within leave the attributes of the classes as they were: copies share them."""
    kept = [(kind, parts(kind)) for _, kind in held(module) if isinstance(kind, type)]
    try:
        yield
    finally:
        for kind, before in kept:
            now = parts(kind)
            for name in now.keys() - before.keys():
                delattr(kind, name)
            for name, x in before.items():
                if name not in now or now[name] is not x:
                    setattr(kind, name, x)


def _closures(holder: Any) -> list[FunctionType]:
    """The functions that a module keeps and that may speak of it, as `lambda x: self.conv(x)`."""
    return [f for f in parts(holder).values() if isinstance(f, FunctionType) and f.__closure__]


def _opened(function: FunctionType) -> FunctionType:
    """The same function about things that are still to be named."""
    cells = tuple(CellType() for _ in function.__closure__ or ())
    twin = FunctionType(
        function.__code__, function.__globals__, function.__name__, function.__defaults__, cells
    )
    twin.__kwdefaults__ = function.__kwdefaults__
    twin.__dict__.update(function.__dict__)
    return twin


def _copied_in_part(module: nn.Module, memo: dict[int, Any]) -> tuple[nn.Module, dict[int, Any]]:
    twins = [(x, object.__new__(x.__class__)) for x in module.modules()]
    memo.update({id(x): twin for x, twin in twins})
    for x, twin in twins:
        for name, value in vars(x).items():
            trial = dict(memo)  # a copy that fails half way must leave nothing behind
            try:
                twin.__dict__[name] = copy.deepcopy(value, trial)
                memo = trial
            except Exception:
                twin.__dict__[name] = value
    own: nn.Module = memo[id(module)]
    return own, memo


def with_weights_computed(module: nn.Module) -> nn.Module:
    """The same module; pruned and normed weights are computed now, not by hooks before each run."""
    for part in module.modules():
        for key, hook in list(part._forward_pre_hooks.items()):
            if isinstance(hook, COMPUTE_A_WEIGHT) and not part.training:
                hook(part, ())
                del part._forward_pre_hooks[key]
    return module


def why_replaced(module: nn.Module) -> str | None:
    """Why a call of the module is not what its class's forward says, or None."""
    if "forward" in vars(module):
        return "its forward was replaced"
    calls = next(kind for kind in type(module).__mro__ if "__call__" in vars(kind))
    # That of an fx.GraphModule only says more about errors.
    plain = calls is nn.Module or isinstance(module, GraphModule)
    return None if plain else "it has a __call__ of its own"


def why_opaque(module: nn.Module) -> str | None:
    """Why a module must stay whole, whatever its forward says, or None."""
    if isinstance(module, torch.jit.ScriptModule):
        return "torch.jit has compiled it"
    if module._forward_hooks or module._forward_pre_hooks:
        return "it has forward hooks"
    if global_hooks._global_forward_hooks or global_hooks._global_forward_pre_hooks:
        return "all modules have forward hooks"
    return None
