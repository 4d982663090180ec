"""From a torch model to a graph.

The model is traced with torch.fx rather than torch.export: export fixes every size that the code
touches or wants each one's bounds, and gives up on the whole model at the first line it cannot
follow. fx leaves sizes open, keeps the names of the layers, and lets a module that cannot be
followed become one node, which torch runs.
"""

import inspect
from collections.abc import Sequence
from dataclasses import replace

from torch import Tensor, fx, nn

from sparsepath.deploy.capture.idle import without_idle_dropouts
from sparsepath.deploy.capture.stashes import Stashes
from sparsepath.deploy.capture.trace import Translator
from sparsepath.deploy.capture.tracer import Tracer, untraceable
from sparsepath.deploy.capture.translate import Unknown
from sparsepath.deploy.graph.copies import copied, why_opaque, why_replaced, with_weights_computed
from sparsepath.deploy.graph.graph import Call, Graph, Node, Value
from sparsepath.deploy.graph.network import GraphNetwork, SingleInput
from sparsepath.deploy.graph.state import State

# Where fx keeps what the code made on its way, in the module that it traces.
FX_KEEPS = ("_tensor_constant", "_torchbind_obj", "_tree_spec_constant", "_opaque_obj")


def capture(model: nn.Module, *, inputs: int = 1, example: Sequence[Tensor] | None = None) -> Graph:
    """The model as it is now, in its present mode, as a graph of `inputs` tensors.

    An `example` tells how many there are and how many axes each has, in this and every later use.
    """
    axes = tuple(x.dim() for x in example or ())
    if isinstance(model, GraphNetwork):
        plain = type(model).forward in (GraphNetwork.forward, SingleInput.forward)
        plain = plain and why_replaced(model) is None and why_opaque(model) is None
        if plain and (known := model.graph()) is not None:
            return known
        names = model.input_names()
    else:
        names = _input_names(model, inputs if example is None else len(axes))
    try:
        return _traced(model, names, axes)
    except Exception as error:  # whatever a user's code may raise on values that are not there yet
        return whole(model, names, untraceable(error))


def whole(model: nn.Module, names: tuple[str, ...], why: str) -> Graph:
    """A copy of the model as the single node of a graph, which torch runs."""
    call = Call(copied(model), tuple(map(Value, names)), {}, why)
    return Graph(names, (Node("model", "torch", names, call=call),), Value("model"))


def _traced(model: nn.Module, names: tuple[str, ...], axes: tuple[int, ...]) -> Graph:
    """The graph of a copy, which the code may change on its way; if it did, that is a reason."""
    own = copied(model)
    why = "it cannot be copied" if own is model else why_opaque(with_weights_computed(own))
    why = why_replaced(own) or why  # fx would trace the forward of its class
    if why is not None:
        raise Unknown(why)
    state, stashes, tracer = State.of(own), Stashes.of(own), Tracer(names)
    try:
        with tracer.dice:
            recorded = tracer.trace(own)
    finally:
        stashed = stashes.clear()
    if stashed is not None:
        raise Unknown(f"it keeps what it computes in {stashed!r}, beside its class")
    if tracer.dice.drawn:
        raise Unknown("it draws random numbers")
    changed = state.change(but=FX_KEEPS)
    if changed is not None:
        raise Unknown(f"it changes its own {changed!r} as it runs")
    recorded = without_idle_dropouts(recorded, lambda: Tracer(names).trace(copied(model).train()))
    found = Translator(own, tracer.reasons, untouched=model).graph(recorded, axes)
    if axes and not _alike(found, own, tracer.reasons, model, recorded):
        return replace(found, axes=axes)
    return found


def _alike(
    told: Graph, own: nn.Module, reasons: dict[str, str], model: nn.Module, recorded: fx.Graph
) -> bool:
    """Whether the graph is the same if nothing is told of the inputs' axes: right for any then."""
    try:
        untold = Translator(own, reasons, untouched=model).graph(recorded)
    except Unknown:
        return False
    each = [[(node.op, node.inputs, node.attributes) for node in graph] for graph in (told, untold)]
    return each[0] == each[1]


def _input_names(model: nn.Module, count: int) -> tuple[str, ...]:
    try:
        parameters = list(inspect.signature(model.forward).parameters.values())
    except (TypeError, ValueError):  # compiled code, such as torch.jit's, need not tell
        parameters = []
    plain = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    names = [parameter.name for parameter in parameters if parameter.kind in plain][:count]
    return (*names, *(f"input{number}" for number in range(len(names), count)))
