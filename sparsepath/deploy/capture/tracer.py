"""Runs a model's code on values to come and records what it calls, unnoticed by other threads."""

import math
import operator
import sys
import threading
import traceback
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from inspect import isbuiltin
from pathlib import Path
from types import FunctionType
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch.fx import _symbolic_trace

from sparsepath.deploy.capture.asking import asks
from sparsepath.deploy.capture.dice import Dice
from sparsepath.deploy.capture.norm_layers import is_plain
from sparsepath.deploy.capture.pieces import how_many
from sparsepath.deploy.capture.recorded import WHY, counts, refuse_lost_changes, refuse_lost_kind
from sparsepath.deploy.capture.spelled_out import SPELLED_OUT
from sparsepath.deploy.capture.translate import UNUSUAL, Unknown
from sparsepath.deploy.graph.copies import why_opaque

# While fx traces it takes over the calls and attributes of all modules there are, and math.
TAKEN_OVER: Mapping[Any, tuple[str, ...]] = {
    nn.Module: ("__call__", "__getattr__"),
    math: tuple(name for name, function in vars(math).items() if isbuiltin(function)),
}
ONE_AT_A_TIME = threading.RLock()


def untraceable(error: Exception) -> str:
    """What went wrong and in which line of the user's code."""
    foreign = {Path(torch.__file__).parent, Path(__file__).parents[1]}
    frames = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if not foreign & set(Path(frame.filename).parents)
    ]
    where = f" ({Path(frames[-1].filename).name}, line {frames[-1].lineno})" if frames else ""
    if isinstance(error, Unknown):
        return f"{error}{where}"
    lines = str(error).strip().splitlines() or [type(error).__name__]
    return f"it cannot be traced{where}: {lines[0]}"


def _single(result: Any) -> fx.Proxy:
    """The one value to come that a call gives: fx takes no other for what was marked."""
    if not isinstance(result, fx.Proxy):
        raise Unknown("it gives other things than a tensor")
    return result


class _Changing(fx.Proxy):
    """Remembers changes in place, where fx itself would record plain ones."""

    def __iadd__(self, other: Any) -> Any:
        return self.tracer.create_proxy("call_function", operator.iadd, (self, other), {})

    def __isub__(self, other: Any) -> Any:
        return self.tracer.create_proxy("call_function", operator.isub, (self, other), {})

    def __imul__(self, other: Any) -> Any:
        return self.tracer.create_proxy("call_function", operator.imul, (self, other), {})

    def __itruediv__(self, other: Any) -> Any:
        return self.tracer.create_proxy("call_function", operator.itruediv, (self, other), {})

    def __ifloordiv__(self, other: Any) -> Any:
        return self.tracer.create_proxy("call_function", operator.ifloordiv, (self, other), {})

    def _unheard(self, other: Any) -> Any:
        raise NotImplementedError("this kind of change in place is not understood")

    __imod__ = __ipow__ = __imatmul__ = __iand__ = __ior__ = __ixor__ = _unheard
    __ilshift__ = __irshift__ = _unheard


class _Attribute(_Changing, fx.proxy.Attribute):
    """What a value to come has by a name, perhaps another such value."""


class _Proxy(_Changing):
    """A value to come.

    Code that asks is told that it is a tensor, but no weight; unless it is a number. Compiled code
    is not: torch's would look for the tensor's memory and crash.
    """

    _is_param = _is_buffer = False

    @property
    def __class__(self) -> Any:
        told = asks(sys._getframe(1)) and not counts(self.node)
        return Tensor if told else _Proxy

    @__class__.setter
    def __class__(self, kind: type) -> None:
        raise Unknown("it sets '__class__' of a tensor")

    def __len__(self) -> int:
        """Of pieces, how many there are: `list` asks, too."""
        count = how_many(self.node)
        return super().__len__() if count is None else count

    def __getattr__(self, name: str) -> _Attribute:
        """Recorded once it is used, and not if it is a method that is called."""
        return _Attribute(self, name)

    def __setattr__(self, name: str, value: Any) -> None:
        """Only fx itself sets what a value to come is."""
        if name not in ("node", "tracer"):
            raise Unknown(f"it sets {name!r} of a tensor")
        super().__setattr__(name, value)


@dataclass(frozen=True)
class _Here:
    """True in the thread that it names alone."""

    thread: int | None

    def __bool__(self) -> bool:
        return self.thread == threading.get_ident()


class Tracer(fx.Tracer):
    """Sees through every module it can; one that it cannot follow stays whole."""

    def __init__(self, names: tuple[str, ...]) -> None:
        """Trace once, with values of these names."""
        super().__init__()
        self.record_stack_traces = True  # so that a line can be named
        self.names = names
        self.reasons: dict[str, str] = {}
        self.dice = Dice()
        self._here = _Here(None)
        self._autocast = torch.is_autocast_enabled("cpu")

    def trace(self, root: Any, concrete_args: dict[str, Any] | None = None) -> fx.Graph:
        """The recorded calls; afterwards modules and math are as they were, whatever happened."""
        with ONE_AT_A_TIME:
            before = [
                (holder, name, getattr(holder, name))
                for holder, names in TAKEN_OVER.items()
                for name in names
            ]
            self._here = _Here(threading.get_ident())
            try:
                return super().trace(root, concrete_args)
            finally:
                self._here = _Here(None)
                for holder, name, function in before:
                    setattr(holder, name, function)

    def getattr(self, attr: str, attr_val: Any, parameter_proxy_cache: dict[str, Any]) -> Any:
        """What a module has by a name: for this trace a value, for others what it is."""
        return super().getattr(attr, attr_val, parameter_proxy_cache) if self._here else attr_val

    def create_args_for_root(
        self, root_fn: Callable[..., Any], is_module: bool, concrete_args: Any = None
    ) -> tuple[Callable[..., Any], list[Any]]:
        """One value for every tensor of the example; what it does not give keeps its default."""
        # Else what torch.compile made would refuse to run in all threads.
        _symbolic_trace._is_fx_tracing_flag = self._here  # type: ignore[assignment]
        values = [self.create_proxy("placeholder", name, (), {}) for name in self.names]
        return root_fn, [self.root, *values]

    def proxy(self, node: fx.Node) -> fx.Proxy:
        """A value to come."""
        return _Proxy(node, self)

    def create_proxy(
        self, kind: str, target: Any, args: Any, kwargs: Any, *rest: Any, **more: Any
    ) -> Any:
        """Record a call; a function that `torch.fx.wrap` marked is traced into if it can be.

        In place of one that is others one after the other those are recorded.
        """
        if kind in ("call_function", "call_method") and target in SPELLED_OUT:
            given = {name: x for name, x in kwargs.items() if name != "out" or x is not None}
            try:
                return self._followed(lambda: SPELLED_OUT[target](*args, **given))
            except (TypeError, Unknown) as error:  # called in a way that they do not mean
                found = super().create_proxy(kind, target, args, kwargs, *rest, **more)
                found.node.meta[WHY] = str(error) if isinstance(error, Unknown) else UNUSUAL
                return found
        own = isinstance(target, FunctionType) and not target.__module__.startswith("torch.")
        if kind == "call_function" and own:
            with suppress(Exception):  # whatever a user's code may raise
                return self._followed(lambda: _single(target(*args, **kwargs)))
        return super().create_proxy(kind, target, args, kwargs, *rest, **more)

    def iter(self, obj: Any) -> Iterator[Any]:
        """`list(x.chunk(2, 1))`: as many pieces as it asks for; of others nothing is known."""
        count = how_many(obj.node)
        return super().iter(obj) if count is None else iter([obj[k] for k in range(count)])

    def create_node(self, kind: str, target: Any, *rest: Any, **options: Any) -> fx.Node:
        """Record a call, unless it would write where a trace does not see it."""
        refuse_lost_changes(target)
        if torch.is_autocast_enabled("cpu") != self._autocast:
            raise Unknown("it turns autocast on or off")
        return super().create_node(kind, target, *rest, **options)

    def create_arg(self, a: Any) -> Any:
        """Record an argument, unless fx would make another kind of thing of it."""
        if type(a) is _Proxy:
            return a.node
        refuse_lost_kind(a)
        if type(a) is OrderedDict:
            pairs = [(key, self.create_arg(x)) for key, x in a.items()]
            return self.create_node("call_function", OrderedDict, (pairs,), {})
        return super().create_arg(a)

    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        """Norms check their input's shape, which a trace cannot; hooks are the user's own.

        Recurrent layers gather their weights anew whenever those are other objects.
        """
        why = why_opaque(m)
        if why is not None:
            self.reasons[module_qualified_name] = why
            return True
        return is_plain(m) or isinstance(m, nn.RNNBase)

    def call_module(
        self,
        m: nn.Module,
        forward: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> Any:
        """Trace into a module; if that fails, forget what it left and take it as a whole.

        One of another thread, or that the model does not hold, is called as ever.
        """
        if not self._here or m not in (self.submodule_paths or ()):
            return forward(*args, **kwargs)
        follow = super().call_module
        try:
            return self._followed(lambda: follow(m, forward, args, kwargs))
        except Exception as error:
            path = self.path_of_module(m)
            self.reasons[path] = untraceable(error)
            return self.create_proxy("call_module", path, args, kwargs)

    def _followed(self, run: Callable[[], Any]) -> Any:
        """What code gives for values to come; if it fails or draws, what it left is forgotten."""
        before, stack, drawn = len(self.graph.nodes), self.module_stack.copy(), self.dice.drawn
        try:
            result = run()
            if self.dice.drawn != drawn:
                raise Unknown("it draws random numbers")
        except Exception:
            for node in reversed(list(self.graph.nodes)[before:]):
                self.graph.erase_node(node)
            self.module_stack, self.dice.drawn = stack, drawn
            raise
        return result
