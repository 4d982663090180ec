"""The table from torch's functions and methods to a graph's operations, and what fills it needs."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

from sparsepath.deploy.graph.graph import Arrays, Attribute, Value

COMPUTED_SHAPE = "its shape is computed from the input"
"""why a reshape is none of ours; an example of the inputs may still tell what it is"""
UNUSUAL = "it is called in an unusual way"


class Unknown(Exception):
    """A call that no operation means; it says why."""


@dataclass(frozen=True)
class Draft:
    """A node that has no name yet; several in a row where one call means several operations."""

    op: str
    inputs: tuple[Value, ...]
    attributes: Mapping[str, Attribute] = field(default_factory=dict)
    arrays: Arrays = field(default_factory=dict)
    then: "Draft | None" = None


@dataclass(frozen=True)
class Same:
    """A call that gives back one of its arguments as it is."""

    value: Value


@dataclass(frozen=True)
class Length:
    """The length of one axis of a value, as `x.size(0)` asks for it."""

    value: Value
    axis: int


Translation = Callable[..., Draft | Same]
TRANSLATIONS: dict[object, Translation] = {}


def translates(*spellings: object) -> Callable[[Translation], Translation]:
    """Make a function the translation of these functions and methods (named by strings)."""

    def register(translation: Translation) -> Translation:
        TRANSLATIONS.update(dict.fromkeys(spellings, translation))
        return translation

    return register


def translated(
    spelling: object, arguments: tuple[Any, ...], keywords: dict[str, Any]
) -> Draft | Same:
    """The operation that a call means, or Unknown with the reason."""
    if spelling not in TRANSLATIONS:
        raise Unknown("sparsepath has no such operation")
    try:
        return TRANSLATIONS[spelling](*arguments, **keywords)
    except TypeError as error:
        raise Unknown(f"{UNUSUAL} ({error})") from error


def as_value(x: Any) -> Value:
    """An argument that must be a value of the graph."""
    if not isinstance(x, Value):
        raise Unknown(f"it takes a {type(x).__name__} where a tensor was expected")
    return x


def as_array(x: Any) -> Tensor:
    """An argument that must be a weight."""
    if not isinstance(x, Tensor):
        raise Unknown("its weights are computed from its input")
    return x


def as_plain(x: Any) -> Attribute:
    """An argument that must be an attribute."""
    if isinstance(x, (tuple, list)):
        return tuple(as_plain(part) for part in x)
    if x is None or isinstance(x, (bool, int, float, str)):
        return x
    raise Unknown(f"it has an argument of type {type(x).__name__}")


def repeated(x: Any, count: int) -> tuple[Any, ...]:
    """An attribute for each of so many axes."""
    plain = as_plain(x)
    if not isinstance(plain, tuple):
        return (plain,) * count
    return plain * count if len(plain) == 1 else plain
