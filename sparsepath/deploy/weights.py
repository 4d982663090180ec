"""The weights that take a network's bytes: parameters of two axes or more, by layer, checked."""

from collections.abc import Sequence
from fnmatch import fnmatchcase

from torch import nn

from sparsepath.errors import BadInput


def weights_of(
    model: nn.Module, layers: Sequence[str] | str | None = None
) -> dict[str, nn.Parameter]:
    """The weights of the layers that a name pattern matches, or of all; shared ones once."""
    if not isinstance(model, nn.Module):
        raise BadInput(f"A torch module has weights, not {type(model).__name__}.")
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


def matches(name: str, pattern: str) -> bool:
    """Whether the pattern names a weight's layer, or the weight itself."""
    return fnmatchcase(_layer(name), pattern) or fnmatchcase(name, pattern)


def _layer(name: str) -> str:
    return name.rpartition(".")[0]
