"""What a model's code puts beside its classes: values to come must not stay there after a trace."""

import sys
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from torch import fx, nn

from sparsepath.deploy.graph.state import foreign

# Larger ones are data rather than what a model remembers.
MOST = 10_000


@dataclass(frozen=True, eq=False)
class Stashes:
    """The names in the files of a model's classes, and what lies in their containers, as it was."""

    names: tuple[tuple[dict[str, Any], Mapping[str, Any]], ...]
    dicts: tuple[tuple[str, dict[Any, Any], Mapping[Any, Any]], ...]
    others: tuple[tuple[str, Any], ...]

    @classmethod
    def of(cls, model: nn.Module) -> "Stashes":
        """As it is now."""
        kinds = {kind for part in model.modules() for kind in type(part).__mro__}
        homes = {sys.modules.get(kind.__module__) for kind in kinds if not foreign(kind)}
        names = [vars(home) for home in homes if isinstance(home, ModuleType)]
        found = [item for scope in names for item in list(scope.items()) if _small(*item)]
        return cls(
            tuple((scope, dict(scope)) for scope in names),
            tuple((name, x, dict(x)) for name, x in found if isinstance(x, dict)),
            tuple((name, x) for name, x in found if not isinstance(x, dict)),
        )

    def clear(self) -> str | None:
        """Take all values to come out, and name the first place that held one."""
        places: list[str] = []
        for scope, before in self.names:
            places += _put_back(scope, before)
        for name, x, before in self.dicts:
            places += [name for _ in _put_back(x, before)]
        for name, x in self.others:
            held = list(x)  # at once: another thread may change it
            kept = [value for value in held if not _to_come(value)]
            if len(kept) < len(held):
                x.clear()
                (x.update if isinstance(x, set) else x.extend)(kept)
                places.append(name)
        return places[0] if places else None


def _small(name: str, x: Any) -> bool:
    # By its type: an object that stands for another may not like to be asked.
    known = issubclass(type(x), (dict, list, set, deque)) and not name.startswith("__")
    return known and len(x) <= MOST


def _put_back(now: dict[Any, Any], before: Mapping[Any, Any]) -> list[Any]:
    """Give every name that holds a value to come what it held before, if it held anything."""
    lost = [key for key, value in list(now.items()) if _to_come(key) or _to_come(value)]
    for key in lost:
        del now[key]
        if key in before:
            now[key] = before[key]
    return lost


def _to_come(x: Any) -> bool:
    """Whether something is a value to come, or a few of them together."""
    if type(x) in (tuple, list) and len(x) <= MOST:
        return any(issubclass(type(part), fx.Proxy) for part in x)
    return issubclass(type(x), fx.Proxy)
