"""What a recorded call asks for: lengths, changes in place, and the place it was made at."""

import math
import operator
import re
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, fields, is_dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch.fx.immutable_collections import immutable_dict, immutable_list

from sparsepath.deploy.capture.lengths import Size
from sparsepath.deploy.capture.translate import Length, Unknown
from sparsepath.deploy.graph.graph import Value, mapped

INPLACE = {
    operator.iadd: operator.add,
    operator.isub: operator.sub,
    operator.imul: operator.mul,
    operator.itruediv: operator.truediv,
    operator.ifloordiv: operator.floordiv,
}
# Changes of a tensor that is there already by one that is to come: only `_Proxy` hears of others.
LOST = (operator.setitem, "__setitem__", "__iand__", "__ior__", "__ixor__", "__ilshift__",
        "__irshift__")  # fmt: skip
# Where a recorded call keeps why it was not spelled out.
WHY = "sparsepath why"
# What a tensor tells of itself in numbers, and what it has that is a tensor.
TOLD = ("size", "dim", "ndimension", "numel", "nelement", "stride", "element_size", "item")
VIEWS = ("T", "mT", "H", "mH", "data", "real", "imag", "grad")


@dataclass(frozen=True)
class Shape:
    """The lengths of all axes of a value, as `x.shape` asks for them."""

    value: Value


@dataclass(frozen=True)
class Part:
    """The lengths of all axes from one on, as `x.shape[2:]` or `x.shape[-2:]` asks for them."""

    value: Value
    start: int

    def length(self, place: int) -> Length | None:
        """One of them, if it is there for sure."""
        if place >= 0 and self.start < 0:
            return Length(self.value, self.start + place) if place < -self.start else None
        return Length(self.value, self.start + place if place >= 0 else place)


@dataclass(frozen=True)
class Method:
    """A method by name, called on its first argument; on a copy of it if it would change it."""

    function: Any
    on_a_copy: bool = False

    def __call__(self, first: Any, *rest: Any, **keywords: Any) -> Any:
        """The method's result."""
        first = first.clone() if self.on_a_copy else first
        if isinstance(self.function, str):
            return getattr(first, self.function)(*rest, **keywords)
        return self.function(first, *rest, **keywords)


def length_of(x: Tensor, axis: int) -> int:
    """What `x.size(axis)` gives."""
    return x.shape[axis]


def shape_of(x: Tensor) -> torch.Size:
    """What `x.shape` gives."""
    return x.shape


def part_of(x: Tensor, start: int) -> torch.Size:
    """What `x.shape[start:]` gives."""
    return x.shape[start:]


def asked(target: Any, arguments: tuple[Any, ...], keywords: Mapping[str, Any]) -> Any:
    """`x.size(0)`, `x.shape` and `x.shape[0]`: only asked for, perhaps never needed."""
    first, *rest = arguments or (None,)
    if keywords:
        if target != "size" or rest or set(keywords) != {"dim"}:
            return None
        rest = [keywords["dim"]]
    if isinstance(first, Value):
        if (target == "size" and not rest) or (target is getattr and rest == ["shape"]):
            return Shape(first)
        if target == "size" and isinstance(rest[0], int):
            return Length(first, rest[0])
        if target in ("numel", "nelement", torch.numel):
            return Size(math.prod, (Shape(first),))
    if target is operator.getitem and isinstance(first, Shape | Part):
        return _picked(first, rest[0])
    return None


def _picked(lengths: Shape | Part, which: Any) -> Any:
    """One length, or all from one on; None for others."""
    if isinstance(lengths, Part):
        return lengths.length(which) if isinstance(which, int) else None
    if isinstance(which, int):
        return Length(lengths.value, which)
    behind = isinstance(which, slice) and which == slice(which.start, None)
    return Part(lengths.value, which.start) if behind and isinstance(which.start, int) else None


KNOWN_LATER = (Value, Length, Shape, Part, Size)


def counts(node: fx.Node) -> bool:
    """Whether what a recorded call gives is a number, or several, but no tensor."""
    if node.op == "call_method":
        return node.target in TOLD
    if node.target is getattr:
        return node.args[1] not in VIEWS
    home = getattr(node.target, "__module__", None)
    return home in ("_operator", "math") and all(map(counts, node.all_input_nodes))


def is_open(structure: Any) -> bool:
    """Whether something in it is known only at run time."""
    found: list[bool] = []
    mapped(structure, lambda leaf: found.append(isinstance(leaf, KNOWN_LATER)))
    return any(found)


def out_of_place(target: Any, keywords: dict[str, Any]) -> tuple[Any, bool]:
    """The same call without a change in place, and whether there was one; `out=None` is dropped."""
    if keywords.pop("out", None) is not None:
        raise Unknown("it writes into a tensor that it was given")
    if target in INPLACE:
        return INPLACE[target], True
    name = target if isinstance(target, str) else getattr(target, "__name__", "")
    if name.endswith("_") and not name.endswith("__"):
        if isinstance(target, str):
            return name[:-1], True
        homes = [home for home in (torch, nn.functional) if hasattr(home, name[:-1])]
        return (getattr(homes[0], name[:-1]) if homes else target), True
    return target, keywords.get("inplace") is True


def in_any_order(target: Any, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
    """`view` as `reshape`: a graph leaves out the copy that `contiguous` made for it."""
    if keywords or any(isinstance(x, torch.dtype) for x in arguments):
        return target
    return {"view": "reshape", "view_as": "reshape_as"}.get(target, target)


def refuse_lost_changes(target: Any) -> None:
    """Refuse a call that changes a tensor which the trace takes for a constant."""
    if target in LOST:
        raise Unknown("it writes into a tensor that it made before")


def refuse_lost_kind(x: Any) -> None:
    """Refuse a container that fx would take for a plain one."""
    kinds = (dict, list, tuple, OrderedDict, immutable_dict, immutable_list, torch.Size)
    named = hasattr(x, "_fields") or not isinstance(x, (dict, list, tuple))
    made = is_dataclass(x) and not isinstance(x, type) and any(not f.init for f in fields(x))
    if (not named and type(x) not in kinds) or made:
        raise Unknown(f"it makes a {type(x).__name__}")


def place_of(node: fx.Node) -> str:
    """The layer that a node belongs to; followed by a dot where it is not one of torch's own."""
    if node.op == "call_module":
        return str(node.target)
    stack = list((node.meta.get("nn_module_stack") or {}).values())
    if not stack:
        return ""
    path, kind = stack[-1]
    return str(path) if kind.__module__.startswith("torch.nn.modules") else f"{path}."


def line_of(node: fx.Node) -> str:
    """The line of the user's code that recorded a node, in brackets, where that is known."""
    lines = re.findall(r'File "(.+?)", line (\d+)', node.stack_trace or "")
    own = [(Path(file), number) for file, number in lines if not _foreign(Path(file))]
    return f" ({own[-1][0].name}, line {own[-1][1]})" if own else ""


def _foreign(file: Path) -> bool:
    return bool({Path(torch.__file__).parent, Path(__file__).parents[1]} & set(file.parents))


def spoken(function: Any) -> str:
    """A function by its name."""
    target = getattr(function, "function", function)
    return target if isinstance(target, str) else getattr(target, "__name__", "torch").strip("_")
