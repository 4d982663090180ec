"""A smaller network with the same function: dead filters, channels and units are removed.

This works on our own graph rather than with the Torch-Pruning package: that one removes channels
whatever they hold, so that biases and batch-norm shifts of dead channels are lost, and rewrites
the user's modules in place; our graph is captured for the runtime anyway, names every operation,
and lets constants be followed exactly.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor, nn

from sparsepath.deploy.capture.capture import capture
from sparsepath.deploy.graph import reference
from sparsepath.deploy.graph.apart import difference, tensors_in
from sparsepath.deploy.graph.fold import without_dead_code
from sparsepath.deploy.graph.graph import Graph, Node
from sparsepath.deploy.graph.inputs import given_tensors
from sparsepath.deploy.graph.network import GraphNetwork, as_module
from sparsepath.deploy.shrinking.channels import LINKS, Shapes, channel_slice, links, width
from sparsepath.deploy.shrinking.layers import LAYERS, Layer
from sparsepath.deploy.shrinking.ranks import lengthened, shortened
from sparsepath.deploy.shrinking.shrink import shrunk
from sparsepath.deploy.shrinking.survivors import Survivors, survivors
from sparsepath.errors import BadInput, checked_count
from sparsepath.metrics import evaluating
from sparsepath.modules import checked_module

# What float32 may make of a network that amplifies its rounding; more is another function.
ROUNDING = 1e-3


@dataclass(frozen=True)
class Compacted:
    """A smaller network and how far it is from the one it was made of."""

    model: GraphNetwork = field(repr=False)
    difference: float
    """max |difference| of the outputs on the example, in eval mode"""
    largest: float
    """max |output| on the example"""
    parameters: tuple[int, int]
    """how many before and after"""
    widths: Mapping[str, tuple[int, int]]
    """the output channels of each layer, before and after"""
    notes: tuple[str, ...] = ()

    def __str__(self) -> str:
        before, after = self.parameters
        smaller = {name: pair for name, pair in self.widths.items() if pair[0] != pair[1]}
        lines = [
            f"{before:,} -> {after:,} parameters; {len(smaller)} of {len(self.widths)} layers "
            f"smaller; max |difference| {self.difference:.1e} of max |output| {self.largest:.1e}",
            *(f"  {name}: {was} -> {now} channels" for name, (was, now) in smaller.items()),
            *self.notes,
        ]
        return "\n".join(lines)


def compact(
    model: nn.Module,
    example: Tensor | Sequence[Tensor],
    *,
    multiple: int = 1,
    approximate: bool = False,
) -> Compacted:
    """The model without its dead channels, checked against it on the example, in eval mode.

    `multiple` rounds the channels that stay in each layer up, where there are so many. A constant
    that zero padding meets keeps its channel, unless `approximate`, which folds it as if there were
    no border and leaves the difference to the caller. The model itself stays as it is.
    """
    model = checked_module("compact", model)
    inputs = given_tensors(example)
    checked_count("multiple", multiple)
    with evaluating(model):
        wanted = _output(model, inputs)
        graph = without_dead_code(capture(model, example=inputs))
        _refuse_untraceable(model, graph)
        shapes: Shapes = reference.shapes(graph, inputs)
        host, shapes = lengthened(_moved(graph, "cpu"), shapes)
        fate = survivors(host, shapes, approximate=approximate, multiple=multiple)
        small = shortened(shrunk(host, shapes, fate), graph)
        devices = {x.device for node in graph for x in node.arrays.values()}
        network = as_module(_moved(small, devices.pop() if devices else "cpu"))
        _freeze(network, model)
        apart, largest = difference(wanted, _output(network, inputs))
        if not approximate:
            _refuse_difference(
                apart, largest, wanted, lambda: _exact(graph, network, inputs, wanted)
            )
    return Compacted(
        model=network,
        difference=apart,
        largest=largest,
        parameters=(_count(model), _count(network)),
        widths={name: (len(fate.kept[name]), int(fate.kept[name].sum())) for name in fate.layers},
        notes=_notes(host, shapes, fate),
    )


def _freeze(network: nn.Module, like: nn.Module) -> None:
    """Let what does not train in the one not train in the other."""
    own = dict(network.named_parameters())
    for name, parameter in like.named_parameters():
        if name in own and not parameter.requires_grad:
            own[name].requires_grad_(False)


def _count(model: nn.Module) -> int:
    return sum(parameter.numel() for parameter in model.parameters())


def _output(model: nn.Module, inputs: Sequence[Tensor]) -> Any:
    for tensor in inputs:
        if not isinstance(tensor, Tensor) or tensor.numel() == 0:
            given = tuple(tensor.shape) if isinstance(tensor, Tensor) else type(tensor).__name__
            raise BadInput(f"The example must hold tensors of at least one image, not {given}.")
    try:
        return model(*(x.clone() for x in inputs))  # it may change them
    except Exception as error:  # whatever a user's model may raise
        line = (str(error).splitlines() or [""])[0]
        raise BadInput(
            f"This {type(model).__name__} cannot run the example of shape "
            f"{tuple(inputs[0].shape) if inputs else ()}: {line}"
        ) from error


def _refuse_untraceable(model: nn.Module, graph: Graph) -> None:
    if [node.op for node in graph] == ["torch"] and graph.nodes[0].call is not None:
        raise BadInput(
            f"This {type(model).__name__} cannot be made smaller: {graph.nodes[0].call.why}; "
            "it stays as it is, and can be used as before."
        )


def _moved(graph: Graph, device: torch.device | str) -> Graph:
    """The graph with its arrays elsewhere; what nodes share stays shared."""
    known: dict[int, Tensor] = {}

    def moved(array: Tensor) -> Tensor:
        return known.setdefault(id(array), array.to(device))

    def node_moved(node: Node) -> Node:
        return replace(node, arrays={name: moved(array) for name, array in node.arrays.items()})

    return replace(graph, nodes=tuple(map(node_moved, graph)))


def _refuse_difference(
    apart: float, largest: float, wanted: Any, exact: Callable[[], float | None]
) -> None:
    bound = max((_bound(tensor.dtype, largest) for tensor in tensors_in(wanted)), default=0.0)
    if apart <= bound:
        return
    wide = exact()
    why = (
        f"in float64 it is {wide:.1e}, so the network amplifies its own rounding: compact it in "
        "float64, and call float() on the result"
        if wide is not None and wide <= _bound(torch.float64, largest)
        else "check that the model gives finite numbers, the same at every call"
    )
    raise BadInput(
        f"The smaller network differs by {apart:.1e} where at most {bound:.1e} is rounding "
        f"(max |output| {largest:.1e}): {why}; the model itself is unchanged."
    )


def _exact(
    graph: Graph, network: GraphNetwork, inputs: Sequence[Tensor], wanted: Any
) -> float | None:
    """The difference in float64, where the graph can be run there and is the model at all."""
    if any(node.call is not None for node in graph):
        return None
    wide = [x.double() if x.is_floating_point() else x for x in inputs]
    small = capture(network, inputs=len(inputs))
    ours, theirs = (reference.run(x.to(torch.float64), *wide) for x in (graph, small))
    apart, largest = difference(ours, wanted)
    return difference(ours, theirs)[0] if apart <= ROUNDING * largest else None


def _bound(dtype: torch.dtype, largest: float) -> float:
    if not dtype.is_floating_point:
        return 0.0
    if dtype == torch.float64:
        return 1e-10 * max(1.0, largest)
    return 1e-5 * largest * torch.finfo(dtype).eps / torch.finfo(torch.float32).eps


def _notes(graph: Graph, shapes: Shapes, fate: Survivors) -> tuple[str, ...]:
    empty = [
        f"  {_end(layer, name)}: {int(fate.kept[name].sum())} zero channel(s) stay."
        for name, layer in fate.layers.items()
        if not fate.needed[name].any()
    ]
    opaque = [
        f"  {node.name} keeps all channels around it: {_why(node)}."
        for node in graph
        if node.op == "torch" or _across(node, shapes, fate)
    ]
    rows = [
        f"  {node.name} makes rows of one length: right for images of the example's size only."
        for node in graph
        if (_cuts_images(node) or _cuts_rows(node, graph, shapes))
        and not fate.kept[node.inputs[0]].all()
    ]
    return (*empty, *opaque, *rows)


def _across(node: Node, shapes: Shapes, fate: Survivors) -> bool:
    """Whether an operation that often follows channels does not, as it stands here."""
    if node.op in LAYERS:
        return node.name not in fate.layers
    several = any(width(shapes.get(name, ())) > 1 for name in node.inputs)
    described = node.op in LINKS and links(node, shapes) is None
    return several and (described or node.op in KEEPING)


def _cuts_images(node: Node) -> bool:
    """Whether a reshape may put a part of an image, or several, into one row."""
    shape: Any = node.attributes.get("shape") if node.op == "reshape" else (0,)
    return shape[0] != 0 and not {0, -1} & set(shape[1:])


def _cuts_rows(node: Node, graph: Graph, shapes: Shapes) -> bool:
    """Whether some of the rows are taken over which a reshape spread each channel before.

    To which channel they belong depends on how large images are.
    """
    name = node.inputs[0] if node.inputs else ""
    count = width(shapes.get(name, ()))
    if node.op != "index" or len(channel_slice(node, count)) == count:
        return False
    makers = {each.name: each for each in graph}
    while name in makers and makers[name].op not in LAYERS and makers[name].inputs:
        maker, name = makers[name], makers[name].inputs[0]
        if maker.op in ("flatten", "reshape") and width(shapes[maker.name]) > width(shapes[name]):
            return True
    return False


def _end(layer: Layer, name: str) -> str:
    return (
        f"no output depends on {name}"
        if bool(layer.alive.any())
        else f"{name} was pruned to nothing"
    )


KEEPING = ("group_norm", "prelu")


def _why(node: Node) -> str:
    if node.call is not None:
        return node.call.why
    if node.op in KEEPING:
        return "no rule follows channels through it"
    return "it acts along another axis than the second"
