"""What a module holds, and whether it still holds the same: code that runs may change it."""

import sys
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from types import FunctionType, ModuleType
from typing import Any

from torch import Tensor, nn
from torch.jit import ScriptModule

PLAIN = (bool, int, float, complex, str, bytes)
# Where torch's modules keep things; a path that a person reads leaves them out.
KEEPERS = ("_parameters", "_buffers", "_modules")


@dataclass(frozen=True, eq=False)
class State:
    """Everything that a module held at some time, by identity; of tensors also their version."""

    holders: tuple[tuple[str, Any, dict[Any, Any]], ...]
    tensors: tuple[tuple[str, Tensor, int], ...]

    @classmethod
    def of(cls, module: nn.Module) -> "State":
        """What it holds now."""
        found = list(held(module))
        return cls(
            tuple((path, x, parts(x)) for path, x in found if not isinstance(x, Tensor)),
            tuple((path, x, version_of(x)) for path, x in found if isinstance(x, Tensor)),
        )

    def change(self, *, but: tuple[str, ...] = ()) -> str | None:
        """The first thing that is another now, or None; new names that start with `but` are none.

        A value that was set again to what it was before is no change.
        """
        for path, holder, before in self.holders:
            now = parts(holder)
            for key in {**before, **now}:
                new = key not in before and isinstance(key, str) and key.startswith(but)
                if not (bool(but) and new) and not _same(before, now, key):
                    return joined(path, key)
        return next((path for path, x, before in self.tensors if version_of(x) != before), None)


def held(root: Any) -> Iterator[tuple[str, Any]]:
    """Everything inside that can change, once, with its path."""
    seen: set[int] = set()
    waiting: deque[tuple[str, Any]] = deque([("", root)])
    while waiting:
        path, x = waiting.popleft()
        inside = {} if isinstance(x, Tensor) else parts(x)
        if id(x) in seen or not (inside or isinstance(x, (Tensor, list, dict, set, deque))):
            continue
        seen.add(id(x))
        yield path, x
        waiting.extend((joined(path, key), part) for key, part in inside.items())


def parts(x: Any) -> dict[Any, Any]:
    """What lies directly inside something, by name or place; nothing for what is a whole."""
    if isinstance(x, dict):
        return dict(x)
    if isinstance(x, (list, tuple, deque)):
        return dict(enumerate(x))
    if isinstance(x, (set, frozenset)):
        return dict.fromkeys(x)
    home = type(x).__module__.partition(".")[0]
    # A logger or a lock is nobody's state, nor is what torch's own objects do inside.
    within_torch = home == "torch" and not isinstance(x, nn.Module)
    foreign = home in sys.stdlib_module_names or within_torch or isinstance(x, ScriptModule)
    if foreign or isinstance(x, (type, FunctionType, ModuleType, Tensor)):
        return {}
    return dict(getattr(x, "__dict__", {}))


def version_of(x: Tensor) -> int:
    """How often a tensor was changed in place; tensors made for inference do not count it."""
    return 0 if x.is_inference() else x._version


def joined(path: str, key: Any) -> str:
    """The path of a part."""
    if key in KEEPERS:
        return path
    return f"{path}.{key}" if path else str(key)


def _same(before: dict[Any, Any], now: dict[Any, Any], key: Any) -> bool:
    if (key in before) != (key in now):
        return False
    old, new = before[key], now[key]
    return old is new or (type(old) is type(new) and isinstance(old, PLAIN) and old == new)
