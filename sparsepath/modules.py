"""The module that a user hands over, out of what torch.compile wraps around it."""

from torch import nn

from sparsepath.errors import BadInput


def uncompiled(model: nn.Module) -> nn.Module:
    """The model itself, whose parameters keep their own names where torch.compile wraps it."""
    inside = getattr(model, "_orig_mod", None)
    return inside if isinstance(inside, nn.Module) else model


def checked_module(caller: str, model: object) -> nn.Module:
    """The model itself; whatever is none is refused in the caller's name."""
    if not isinstance(model, nn.Module):
        raise BadInput(f"{caller}() takes a torch module, not {type(model).__name__}.")
    return uncompiled(model)
