"""A graph as a list of steps over numbered values, so that a network runs without a look at it."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple, NoReturn

from torch import Tensor, nn

from sparsepath.deploy.graph.graph import Graph, Node, Value, mapped
from sparsepath.deploy.graph.operations import FUSED, OPERATIONS, run_fused
from sparsepath.deploy.graph.reference import last_readers
from sparsepath.errors import BadInput

Path = tuple[str, ...]
Run = Callable[..., Any]


class Place(NamedTuple):
    """Where a network holds what a node needs: its layer, or its arrays by name.

    Steps find them by path at every run, so that a layer put in another's place is the one that
    runs, and copies of a network share nothing.
    """

    layer: Path | None
    arrays: Mapping[str, tuple[Path, str]]


class Step(NamedTuple):
    """A layer of one value or a function of the network and some, and where its result goes."""

    layer: Path | None
    run: Run
    reads: tuple[int, ...]
    gives: int
    done: tuple[int, ...]
    """the values that nobody reads after it"""


def steps(graph: Graph, places: Mapping[str, Place]) -> tuple[Step, ...]:
    """The graph's nodes as steps; its inputs are the first values."""
    number = _numbers(graph)
    last = last_readers(graph)
    return tuple(
        Step(
            None if _is_more(node) else places[node.name].layer,
            _run(node, places[node.name]),
            tuple(number[name] for name in node.inputs),
            number[node.name],
            tuple(number[name] for name in last.get(node.name, ())),
        )
        for node in graph
    )


def numbered_output(graph: Graph) -> Any:
    """The structure that the graph gives, with the numbers of its values as `Number`."""
    number = _numbers(graph)
    return mapped(
        graph.output, lambda leaf: Number(number[leaf.name]) if isinstance(leaf, Value) else leaf
    )


class Number(int):
    """The number of a value, which is no number of the network's output."""


def _numbers(graph: Graph) -> dict[str, int]:
    names = (*graph.inputs, *(node.name for node in graph))
    return {name: number for number, name in enumerate(names)}


def below(network: nn.Module, path: Path) -> nn.Module:
    """The module at a path."""
    found: Any = network
    for piece in path:
        found = found._modules.get(piece)
        if found is None:
            missing(path)
    return found  # type: ignore[no-any-return]


def missing(path: Path) -> NoReturn:
    """Refuse to go on without a layer."""
    raise BadInput(
        f"The network runs its layer {'.'.join(path)!r}, which is not there any more: put another "
        "in its place, or nn.Identity()."
    )


def held(network: nn.Module, places: Mapping[str, tuple[Path, str]]) -> dict[str, Tensor]:
    """The arrays at these places."""
    return {key: getattr(below(network, path), name) for key, (path, name) in places.items()}


def _is_more(node: Node) -> bool:
    """Whether a node is more than its layer."""
    return node.call is not None or any(key in node.attributes for key in FUSED)


def _run(node: Node, place: Place) -> Run:
    own = _called(node, place) if node.call is not None else _operated(node, place)
    if node.call is not None or not _is_more(node):
        return own
    return lambda network, *given: run_fused(node, own(network, *given))


def _called(node: Node, place: Place) -> Run:
    call = node.call
    assert call is not None

    def run(network: nn.Module, *given: Any) -> Any:
        function = call.function if place.layer is None else below(network, place.layer)
        arguments, keywords = call.filled(given, held(network, place.arrays))
        return function(*arguments, **keywords)

    return run


def _operated(node: Node, place: Place) -> Run:
    layer = place.layer
    if layer is not None:
        return lambda network, *given: below(network, layer)(*given)
    own = {key: x for key, x in node.attributes.items() if key not in FUSED}
    operate = partial(OPERATIONS[node.op], **own)
    if not place.arrays:
        return lambda network, *given: operate(*given)
    return lambda network, *given: operate(*given, **held(network, place.arrays))
