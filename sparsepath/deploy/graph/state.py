"""What a module holds, and whether it still holds the same: code that runs may change it."""

import io
import pickle
import random
import sys
import warnings
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
    """Everything that a module held at some time, by identity; of some things also what is within.

    These are tensors, by their version, and arrays, iterators and generators of random numbers.
    """

    holders: tuple[tuple[str, Any, dict[Any, Any]], ...]
    within: tuple[tuple[str, Any, object], ...]

    @classmethod
    def of(cls, module: nn.Module) -> "State":
        """What it holds now."""
        found = list(held(module))
        return cls(
            tuple((path, x, parts(x)) for path, x in found if not _has_depth(x)),
            tuple((path, x, _depth(x)) for path, x in found if _has_depth(x)),
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
        return next((path for path, x, before in self.within if _depth(x) != before), None)


def held(root: Any) -> Iterator[tuple[str, Any]]:
    """Everything inside that can change, once, with its path."""
    seen: set[int] = set()
    waiting: deque[tuple[str, Any]] = deque([("", root)])
    while waiting:
        path, x = waiting.popleft()
        deep = _has_depth(x)
        inside = {} if deep else parts(x)
        if id(x) in seen or not (deep or inside or isinstance(x, (list, dict, set, deque, type))):
            continue
        seen.add(id(x))
        yield path, x
        waiting.extend((joined(path, key), part) for key, part in inside.items())
        if not isinstance(x, type):
            waiting.extend((path, kind) for kind in type(x).__mro__ if not foreign(kind))


def parts(x: Any) -> dict[Any, Any]:
    """What lies directly inside something, by name or place; nothing for what is a whole."""
    if isinstance(x, dict):
        return dict(x)
    if isinstance(x, (list, tuple, deque)):
        return dict(enumerate(x))
    if isinstance(x, (set, frozenset)):
        return dict.fromkeys(x)
    if isinstance(x, type):  # what all of a kind share; its functions and names are its code
        return {} if foreign(x) else {key: part for key, part in vars(x).items() if _own(key, part)}
    inside_torch = _home(type(x)) == "torch" and not isinstance(x, nn.Module)
    if _home(type(x)) in sys.stdlib_module_names or inside_torch or isinstance(x, ScriptModule):
        return {}  # a logger or a lock is nobody's state, nor is what torch's own objects do inside
    if isinstance(x, (FunctionType, ModuleType, Tensor)):
        return {}
    return dict(getattr(x, "__dict__", {}))


def _home(kind: type) -> str:
    return kind.__module__.partition(".")[0]


def foreign(kind: type) -> bool:
    """Whether a class is none of the user's."""
    return _home(kind) in {*sys.stdlib_module_names, "torch", "numpy", "sparsepath"}


def _own(key: str, part: Any) -> bool:
    code = (FunctionType, classmethod, staticmethod, property, type)
    return not (key.startswith("__") or isinstance(part, code))


def _has_depth(x: Any) -> bool:
    """Whether something may become another while it holds the same, or nothing to be seen."""
    if isinstance(x, (Tensor, random.Random)):
        return True
    if _home(type(x)) == "numpy":
        return True
    known = _home(type(x)) in sys.stdlib_module_names and not isinstance(x, io.IOBase)
    return known and isinstance(x, Iterator)


def _depth(x: Any) -> object:
    """What can be seen of it: nothing where it cannot be written down, as a generator."""
    if isinstance(x, Tensor):
        return version_of(x)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            return pickle.dumps(x)
    except Exception:  # whatever is in the way
        return None


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
