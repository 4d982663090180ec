"""The weights that take a network's bytes: parameters of two axes or more, by layer, checked."""

from collections.abc import Sequence
from fnmatch import fnmatchcase

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize

from sparsepath.errors import BadInput
from sparsepath.modules import uncompiled


def weights_of(
    model: nn.Module, layers: Sequence[str] | str | None = None
) -> dict[str, nn.Parameter]:
    """The weights of the layers that a name pattern matches, or of all; shared ones once."""
    if not isinstance(model, nn.Module):
        raise BadInput(f"A torch module has weights, not {type(model).__name__}.")
    model = uncompiled(model)
    if isinstance(model, torch.jit.ScriptModule):
        raise BadInput("torch.jit has compiled this model: give the one that it was made of.")
    found = {
        name: weight
        for name, weight in model.named_parameters()
        if weight.dim() > 1 and weight.is_floating_point() and weight.numel()
    }
    if not found:
        raise BadInput(f"This {type(model).__name__} has no weight of two axes or more.")
    for name, weight in found.items():
        if not bool(weight.isfinite().all()):
            raise BadInput(f"{name!r} holds numbers that are not finite: train it again.")
    patterns = [layers] if isinstance(layers, str) else layers
    if patterns is None:
        return found
    for pattern in patterns:
        if not any(matches(name, pattern) for name in found):
            known = ", ".join(repr(_layer(name)) for name in list(found)[:8])
            raise BadInput(f"No layer matches {pattern!r}; this model has {known}.")
    return {name: x for name, x in found.items() if any(matches(name, each) for each in patterns)}


def refuse_computed(model: nn.Module) -> None:
    """Refuse weights that are computed at every run: they would not stay what they are set to."""
    for place, module in model.named_modules():
        layer = place or type(module).__name__
        if parametrize.is_parametrized(module):
            raise BadInput(
                f"{layer!r} computes its weights by a parametrisation: bake them in first, by "
                "torch.nn.utils.parametrize.remove_parametrizations()."
            )
        for name, value in vars(module).items():
            parts = [key for key in module._parameters if key.startswith(f"{name}_")]
            if isinstance(value, Tensor) and parts and module._forward_pre_hooks:
                raise BadInput(
                    f"{layer!r} computes its {name} from {', '.join(parts)} in a hook: bake it in "
                    "first, by remove_weight_norm(), remove_spectral_norm() or prune.remove() of "
                    "torch.nn.utils."
                )


def matches(name: str, pattern: str) -> bool:
    """Whether the pattern names a weight's layer, or the weight itself."""
    return fnmatchcase(_layer(name), pattern) or fnmatchcase(name, pattern)


def _layer(name: str) -> str:
    return name.rpartition(".")[0]
