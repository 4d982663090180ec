"""From a torch model to a graph.

The model is traced with torch.fx rather than torch.export: export fixes every size that the code
touches or wants each one's bounds, and gives up on the whole model at the first line it cannot
follow. fx leaves sizes open, keeps the names of the layers, and lets a module that cannot be
followed become one node, which torch runs.
"""

import inspect
import operator
import traceback
from collections import OrderedDict
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch.nn.modules.batchnorm import _BatchNorm

from sparsepath.deploy.copies import copied, replaced_forward, why_opaque, with_weights_computed
from sparsepath.deploy.dice import Dice
from sparsepath.deploy.graph import Call, Graph, Node, Value
from sparsepath.deploy.idle import without_idle_dropouts
from sparsepath.deploy.network import GraphNetwork, SingleInput
from sparsepath.deploy.recorded import refuse_lost_changes, refuse_lost_kind
from sparsepath.deploy.state import State
from sparsepath.deploy.trace import Translator
from sparsepath.deploy.translate import Unknown

# Where fx keeps what the code made on its way, in the module that it traces.
FX_KEEPS = ("_tensor_constant", "_torchbind_obj", "_tree_spec_constant", "_opaque_obj")


def capture(model: nn.Module, *, inputs: int = 1, example: Sequence[Tensor] | None = None) -> Graph:
    """The model as it is now, in its present mode, as a graph of `inputs` tensors.

    An `example` tells how many there are and how many axes each has, in this and every later use.
    """
    axes = tuple(x.dim() for x in example or ())
    if isinstance(model, GraphNetwork):
        plain = type(model).forward in (GraphNetwork.forward, SingleInput.forward)
        plain = plain and not replaced_forward(model) and why_opaque(model) is None
        if plain and (known := model.graph()) is not None:
            return known
        names = model.input_names()
    else:
        names = _input_names(model, inputs if example is None else len(axes))
    try:
        return _traced(model, names, axes)
    except Exception as error:  # whatever a user's code may raise on values that are not there yet
        call = Call(copied(model), tuple(map(Value, names)), {}, _untraceable(error))
        node = Node("model", "torch", names, call=call)
        return Graph(names, (node,), Value("model"))


def _traced(model: nn.Module, names: tuple[str, ...], axes: tuple[int, ...]) -> Graph:
    """The graph of a copy, which the code may change on its way; if it did, that is a reason."""
    own = copied(model)
    why = "it cannot be copied" if own is model else why_opaque(with_weights_computed(own))
    if replaced_forward(own):  # fx would trace that of its class
        why = "its forward was replaced"
    if why is not None:
        raise Unknown(why)
    state, tracer = State.of(own), _Tracer(names)
    with tracer.dice:
        recorded = tracer.trace(own)
    if tracer.dice.drawn:
        raise Unknown("it draws random numbers")
    changed = state.change(but=FX_KEEPS)
    if changed is not None:
        raise Unknown(f"it changes its own {changed!r} as it runs")
    recorded = without_idle_dropouts(recorded, lambda: _Tracer(names).trace(copied(model).train()))
    return Translator(own, tracer.reasons, untouched=model).graph(recorded, axes)


def _input_names(model: nn.Module, count: int) -> tuple[str, ...]:
    try:
        parameters = list(inspect.signature(model.forward).parameters.values())
    except (TypeError, ValueError):  # compiled code, such as torch.jit's, need not tell
        parameters = []
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
    if isinstance(error, Unknown):
        return f"{error}{where}"
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

    def __setattr__(self, name: str, value: Any) -> None:
        """Only fx itself sets what a value to come is."""
        if name not in ("node", "tracer"):
            raise Unknown(f"it sets {name!r} of a tensor")
        super().__setattr__(name, value)

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
        self.dice = Dice()

    def create_args_for_root(
        self, root_fn: Callable[..., Any], is_module: bool, concrete_args: Any = None
    ) -> tuple[Callable[..., Any], list[Any]]:
        """One value for every tensor of the example; what it does not give keeps its default."""
        values = [self.create_proxy("placeholder", name, (), {}) for name in self.names]
        return root_fn, [self.root, *values]

    def proxy(self, node: fx.Node) -> fx.Proxy:
        """A value to come."""
        return _Proxy(node, self)

    def create_node(self, kind: str, target: Any, *rest: Any, **options: Any) -> fx.Node:
        """Record a call, unless it would write where a trace does not see it."""
        refuse_lost_changes(target)
        return super().create_node(kind, target, *rest, **options)

    def create_arg(self, a: Any) -> Any:
        """Record an argument, unless fx would make another kind of thing of it."""
        refuse_lost_kind(a)
        if type(a) is OrderedDict:
            pairs = [(key, self.create_arg(x)) for key, x in a.items()]
            return self.create_node("call_function", OrderedDict, (pairs,), {})
        return super().create_arg(a)

    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        """Batch norm checks its input's shape, which a trace cannot; hooks are the user's own.

        Recurrent layers gather their weights anew whenever those are other objects.
        """
        why = why_opaque(m)
        if why is not None:
            self.reasons[module_qualified_name] = why
            return True
        return isinstance(m, (_BatchNorm, nn.RNNBase))

    def call_module(
        self,
        m: nn.Module,
        forward: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> Any:
        """Trace into a module; if that fails, forget what it left and take it as a whole."""
        before, stack = len(self.graph.nodes), self.module_stack.copy()
        drawn = self.dice.drawn
        try:
            result = super().call_module(m, forward, args, kwargs)
            if self.dice.drawn == drawn:
                return result
            self.dice.drawn = drawn
            raise Unknown("it draws random numbers")
        except Exception as error:
            for node in reversed(list(self.graph.nodes)[before:]):
                self.graph.erase_node(node)
            self.module_stack = stack
            path = self.path_of_module(m)
            self.reasons[path] = _untraceable(error)
            return self.create_proxy("call_module", path, args, kwargs)
