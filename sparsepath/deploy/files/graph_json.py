"""A graph as JSON: operations by name, attributes, and the names of the arrays they use."""

import inspect
import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, cast

from torch import Tensor

from sparsepath.deploy.capture.axes import refuse_contradictions
from sparsepath.deploy.capture.translate import COMPUTED_SHAPE
from sparsepath.deploy.files.arguments import refuse_impossible
from sparsepath.deploy.graph.graph import Arrays, Graph, Node, Value
from sparsepath.deploy.graph.operations import ELEMENTWISE, FUSED, OPERATIONS
from sparsepath.deploy.graph.ordinary import array_name
from sparsepath.errors import BadInput

JSON = Any
TOLD_BY_AN_EXAMPLE = (COMPUTED_SHAPE, "missing")
"""Parts of the reasons that an example does away with: the last, of inputs that forward lacks."""


def written(graph: Graph, *, told: bool = False, own: bool = False) -> tuple[JSON, Arrays]:
    """The graph as JSON, and its arrays under the names used there; shared ones come once.

    `told`: an example has told already how many inputs there are, and axes they have. `own`: the
    model is a network of ours, which no factory of a user's can build.
    """
    arrays: dict[str, Tensor] = {}
    names: dict[int, str] = {}

    def named(node: Node, key: str) -> str:
        array = node.arrays[key]
        if id(array) not in names:
            name = array_name(node, key)
            while name in arrays:  # a layer's own code may use its weight in two ways
                name += "_"
            names[id(array)] = name
            arrays[name] = array
        return names[id(array)]

    nodes = []
    if not graph.outputs:
        raise BadInput("The model gives no tensor, so there is nothing to save.")
    for node in graph:
        if node.call is not None:
            helps = not told and any(why in node.call.why for why in TOLD_BY_AN_EXAMPLE)
            whose = "the model that this one was made of, " if own else ""
            raise BadInput(
                f"{node.name!r} cannot be written as a graph ({node.call.why}): save "
                + ("with example=a batch of inputs, or, if that is refused, " if helps else "")
                + f"{whose}with factory='a name of your choice' and give that factory to load()."
            )
        with _refusing():
            refuse_impossible(node)
        nodes.append(
            {
                "name": node.name,
                "op": node.op,
                "inputs": list(node.inputs),
                "attributes": {key: encoded(value) for key, value in node.attributes.items()},
                "arrays": {key: named(node, key) for key in node.arrays},
            }
        )
    with _refusing():
        refuse_contradictions(graph)
    own_axes = {"axes": list(graph.axes)} if graph.axes else {}
    content = {"inputs": list(graph.inputs), "nodes": nodes, "output": encoded(graph.output)}
    return {**content, **own_axes}, arrays


@contextmanager
def _refusing() -> Iterator[None]:
    """Whatever load would refuse is not saved either."""
    try:
        yield
    except BadInput as error:
        raise BadInput(f"This network cannot be saved: {error}.") from error


def read(content: JSON, arrays: Arrays) -> Graph:
    """The graph that such JSON describes, every operation and name checked."""
    axes = ("axes",) if isinstance(content, dict) and "axes" in content else ()
    (inputs, nodes, output, *told) = fields(content, "inputs", "nodes", "output", *axes)
    made = Graph(
        _names(inputs),
        tuple(_node(x, arrays) for x in _list(nodes)),
        decoded(output),
        _axes(*told, inputs=len(inputs)) if told else (),
    )
    if not made.outputs:
        raise BadInput("its graph gives no tensor")
    refuse_contradictions(made)
    return made


def _axes(content: JSON, *, inputs: int) -> tuple[int, ...]:
    counts = _list(content)
    if len(counts) != inputs or any(type(n) is not int or n < 0 for n in counts):
        raise BadInput(f"{str(content)[:60]!r} should count the axes of {inputs} inputs")
    return tuple(counts)


def _node(content: JSON, arrays: Arrays) -> Node:
    name, op, inputs, attributes, used = fields(
        content, "name", "op", "inputs", "attributes", "arrays"
    )
    if not isinstance(name, str) or not isinstance(op, str):
        raise BadInput(f"a node is called {name!r} and does {op!r}")
    if op not in OPERATIONS:
        raise BadInput(f"{name!r} does {op!r}, which this version does not know")
    own = {}
    for key, array in _dict(used).items():
        if not isinstance(array, str) or array not in arrays:
            raise BadInput(f"{name!r} uses the array {array!r}, which is not there")
        own[key] = arrays[array]
    plain = {key: decoded(value) for key, value in _dict(attributes).items()}
    node = Node(name, op, _names(inputs), plain, own)
    _refuse_misuse(node)
    return node


def _refuse_misuse(node: Node) -> None:
    """An operation gets the arguments it has, and nothing else."""
    attributes = {key: value for key, value in node.attributes.items() if key not in FUSED}
    if values := [key for key, x in attributes.items() if _holds_value(x)]:
        raise BadInput(f"{node.name!r} has the attributes {values}, which are no plain ones")
    if node.attributes.get("activation", "relu") not in ELEMENTWISE:
        raise BadInput(f"{node.name!r} has an unknown activation")
    try:
        signature = inspect.signature(OPERATIONS[node.op])
        signature.bind(*node.inputs, **{**attributes, **node.arrays})
    except TypeError as error:
        raise BadInput(f"{node.name!r} does not fit {node.op!r} ({error})") from error
    refuse_impossible(node)


def _holds_value(x: Any) -> bool:
    return any(map(_holds_value, x)) if isinstance(x, tuple) else isinstance(x, (Value, list, dict))


def encoded(x: Any) -> JSON:
    """Plain data, tuples and values as JSON, without anything that JSON does not know."""
    if x is None or isinstance(x, (bool, int, str)):
        return x
    if isinstance(x, float):
        return x if math.isfinite(x) else {"float": str(x)}
    if isinstance(x, Value):
        return {"value": x.name}
    if isinstance(x, tuple) and not hasattr(x, "_fields"):
        return [encoded(part) for part in x]
    if isinstance(x, list):
        return {"list": [encoded(part) for part in x]}
    if isinstance(x, Mapping) and all(isinstance(key, str) for key in x):
        return {"dict": {key: encoded(part) for key, part in x.items()}}
    raise BadInput(f"{x!r} ({type(x).__name__}) cannot be written to the file; use plain data.")


def decoded(content: JSON) -> Any:
    """What `encoded` was given."""
    if isinstance(content, list):
        return tuple(map(decoded, content))
    if not isinstance(content, dict):
        return content
    if len(content) == 1:
        ((kind, inner),) = content.items()
        if kind == "value" and isinstance(inner, str):
            return Value(inner)
        if kind == "list" and isinstance(inner, list):
            return list(map(decoded, inner))
        if kind == "dict" and isinstance(inner, dict):
            return {key: decoded(part) for key, part in inner.items()}
        if kind == "float" and inner in ("inf", "-inf", "nan"):
            return float(inner)
    raise BadInput(f"{str(content)[:60]!r} is no kind of data")


def fields(content: JSON, *names: str) -> tuple[JSON, ...]:
    """The values of an object that has exactly these keys."""
    if not isinstance(content, dict) or set(content) != set(names):
        raise BadInput(f"{str(content)[:60]!r} should have exactly the keys {', '.join(names)}")
    return tuple(content[name] for name in names)


def _dict(content: JSON) -> dict[str, JSON]:
    if not isinstance(content, dict):
        raise BadInput(f"{str(content)[:60]!r} should be an object")
    return content


def _list(content: JSON) -> list[JSON]:
    if not isinstance(content, list):
        raise BadInput(f"{str(content)[:60]!r} should be a list")
    return content


def _names(content: JSON) -> tuple[str, ...]:
    if not all(isinstance(name, str) for name in _list(content)):
        raise BadInput(f"{str(content)[:60]!r} should be a list of names")
    return cast(tuple[str, ...], tuple(content))
