"""From a torch model to a graph.

The model is traced with torch.fx rather than torch.export: export fixes every size that the code
touches or wants each one's bounds, and gives up on the whole model at the first line it cannot
follow. fx leaves sizes open, keeps the names of the layers, and lets a module that cannot be
followed become one node, which torch runs.
"""

import inspect
import operator
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import fx, nn
from torch.nn.modules.batchnorm import _BatchNorm

from sparsepath.deploy.graph import Call, Graph, Node, Value
from sparsepath.deploy.network import GraphNetwork
from sparsepath.deploy.trace import Translator, copied


def capture(model: nn.Module, *, inputs: int = 1) -> Graph:
    """The model as it is now, in its present mode, as a graph of `inputs` tensors."""
    if isinstance(model, GraphNetwork):
        if (known := model.graph()) is not None:
            return known
        names = model.input_names()
    else:
        names = _input_names(model, inputs)
    own = set(vars(model))
    try:
        tracer = _Tracer(names)
        traced = tracer.trace(model)
        return Translator(model, tracer.reasons).graph(traced)
    except Exception as error:  # whatever a user's code may raise on values that are not there yet
        call = Call(copied(model), tuple(map(Value, names)), {}, _untraceable(error))
        node = Node("model", "torch", names, call=call)
        return Graph(names, (node,), Value("model"))
    finally:
        # fx leaves tensors that the code made on its way as attributes of the user's model.
        for name in set(vars(model)) - own:
            delattr(model, name)


def _input_names(model: nn.Module, count: int) -> tuple[str, ...]:
    parameters = inspect.signature(model.forward).parameters.values()
    plain = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    names = [parameter.name for parameter in parameters if parameter.kind in plain][:count]
    return (*names, *(f"input{number}" for number in range(len(names), count)))


def _untraceable(error: Exception) -> str:
    """What went wrong and in which line of the user's code."""
    foreign = {Path(torch.__file__).parent, Path(__file__).parent}
    frames = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if not foreign & set(Path(frame.filename).parents)
    ]
    where = f" ({Path(frames[-1].filename).name}, line {frames[-1].lineno})" if frames else ""
    lines = str(error).strip().splitlines() or [type(error).__name__]
    return f"it cannot be traced{where}: {lines[0]}"


class _Proxy(fx.Proxy):
    """A value to come that remembers changes in place, where fx itself would record plain ones."""

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


class _Tracer(fx.Tracer):
    """Sees through every module it can; one that it cannot follow stays whole."""

    def __init__(self, names: tuple[str, ...]) -> None:
        super().__init__()
        self.record_stack_traces = True  # so that a line can be named
        self.names = names
        self.reasons: dict[str, str] = {}

    def create_args_for_root(
        self, root_fn: Callable[..., Any], is_module: bool, concrete_args: Any = None
    ) -> tuple[Callable[..., Any], list[Any]]:
        """One value for every tensor of the example; what it does not give keeps its default."""
        values = [self.create_proxy("placeholder", name, (), {}) for name in self.names]
        return root_fn, [self.root, *values]

    def proxy(self, node: fx.Node) -> fx.Proxy:
        """A value to come."""
        return _Proxy(node, self)

    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        """Batch norm checks its input's shape, which a trace cannot; hooks are the user's own."""
        if m._forward_hooks or m._forward_pre_hooks:
            self.reasons[module_qualified_name] = "it has forward hooks"
            return True
        return isinstance(m, _BatchNorm)

    def call_module(
        self,
        m: nn.Module,
        forward: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> Any:
        """Trace into a module; if that fails, forget what it left and take it as a whole."""
        before, stack = len(self.graph.nodes), self.module_stack.copy()
        try:
            return super().call_module(m, forward, args, kwargs)
        except Exception as error:
            for node in reversed(list(self.graph.nodes)[before:]):
                self.graph.erase_node(node)
            self.module_stack = stack
            path = self.path_of_module(m)
            self.reasons[path] = _untraceable(error)
            return self.create_proxy("call_module", path, args, kwargs)
