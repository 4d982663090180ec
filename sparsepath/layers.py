"""Which layers are sparsified: chosen by name pattern, type or predicate."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import cast

from torch import nn

from sparsepath.blocks import Blocks, Partition, spoken
from sparsepath.errors import BadInput

Predicate = Callable[[str, nn.Module], bool]
Choice = str | type[nn.Module] | Predicate
Layers = Choice | Sequence[Choice] | None
"""A name pattern ("features.*"), a type, a predicate of (name, layer), or several; None for all."""


@dataclass(frozen=True)
class Target:
    """A weight of the model and the blocks it is cut into."""

    name: str
    weight: nn.Parameter
    blocks: Blocks


def targets(model: nn.Module, partition: Partition, layers: Layers = None) -> tuple[Target, ...]:
    """The weights of the chosen layers with their blocks, in the model's own order."""
    cut = {name: to for name, layer in model.named_modules() if (to := _cut(partition, layer))}
    if not cut:
        raise BadInput(
            f"{spoken(partition)} cuts no layer of this {type(model).__name__} into blocks."
        )
    chosen = _chosen(model, layers, list(cut))
    found = tuple(_target(name, model.get_submodule(name), cut[name]) for name in chosen)
    first: dict[nn.Parameter, str] = {}
    for target in found:
        if (name := first.setdefault(target.weight, target.name)) != target.name:
            raise BadInput(
                f"{name!r} and {target.name!r} are one shared parameter: leave one layer out."
            )
    return found


def _cut(partition: Partition, layer: nn.Module) -> Blocks | BadInput | None:
    """The layer's blocks, or why it has none, which matters only if the layer is chosen."""
    if getattr(layer, "weight", None) is None:
        return None  # not a layer: a partition of the user's own need not know of such
    try:
        found: object = partition(layer)
    except BadInput as refusal:
        return refusal
    if found is not None and not isinstance(found, Blocks):
        return BadInput(
            f"{spoken(partition)} gave {found!r} for a {type(layer).__name__}: a partition gives "
            "Blocks, or None to leave a layer alone."
        )
    return found


def _chosen(model: nn.Module, layers: Layers, names: list[str]) -> list[str]:
    if layers is None:
        return names
    by: dict[str, Choice] = {}
    single = isinstance(layers, str) or not isinstance(layers, Sequence)
    for choice in cast(Sequence[Choice], [layers] if single else layers):
        matches = _predicate(choice)
        found = [name for name in names if matches(name, model.get_submodule(name))]
        if not found:
            raise BadInput(f"No layer matches {_shown(choice)}; this model has {_listed(names)}.")
        for name in found:
            if name in by:
                raise BadInput(
                    f"Layer {name!r} is listed twice: by {_shown(by[name])} and {_shown(choice)}."
                )
            by[name] = choice
    if not by:
        raise BadInput(f"An empty list of layers was given; this model has {_listed(names)}.")
    return [name for name in names if name in by]


def _predicate(choice: Choice) -> Predicate:
    if isinstance(choice, str):
        return lambda name, layer: fnmatchcase(name, choice)
    if isinstance(choice, type):
        return lambda name, layer: isinstance(layer, choice)
    if callable(choice):
        return choice
    raise BadInput(f"Layers are chosen by name pattern, type or predicate, not by {choice!r}.")


def _target(layer_name: str, layer: nn.Module, blocks: Blocks | BadInput) -> Target:
    if isinstance(blocks, BadInput):
        raise blocks
    name = f"{layer_name}.weight" if layer_name else "weight"
    weight = layer.weight
    if not isinstance(weight, nn.Parameter):
        raise BadInput(
            f"{name!r} is computed from other tensors, not a parameter: leave that layer out."
        )
    if weight.numel() == 0:
        raise BadInput(f"{name!r} is empty (shape {tuple(weight.shape)}): leave that layer out.")
    if not weight.requires_grad:
        raise BadInput(f"{name!r} is frozen (requires_grad is False): unfreeze it or leave it out.")
    return Target(name, weight, blocks)


def _shown(choice: Choice) -> str:
    return repr(getattr(choice, "__name__", choice))


def _listed(names: list[str]) -> str:
    shown = ", ".join(repr(name) for name in names[:8])
    return shown if len(names) <= 8 else f"{shown} and {len(names) - 8} more"
