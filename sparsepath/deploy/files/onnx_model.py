"""An ONNX model under construction, and the table of what writes each operation into it."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy
import onnx
from onnx import helper, numpy_helper
from torch import Tensor

from sparsepath.deploy.graph.graph import Node
from sparsepath.deploy.graph.pools import Shapes

OPSET = 17


class Inexpressible(Exception):
    """A node that has no place here; it says which."""


class Model:
    """ONNX nodes and arrays under construction."""

    def __init__(self, shapes: Shapes, pooled: set[str], *, fixed: bool) -> None:
        """Of an example's shapes, which may be fixed, and of values that pools read."""
        self.shapes, self.pooled, self.fixed = shapes, pooled, fixed
        self.nodes: list[onnx.NodeProto] = []
        self.arrays: list[onnx.TensorProto] = []

    def array(self, name: str, values: Any) -> str:
        """An array under that name."""
        plain = values.detach().numpy() if isinstance(values, Tensor) else numpy.asarray(values)
        self.arrays.append(numpy_helper.from_array(numpy.ascontiguousarray(plain), name))
        return name

    def node(self, op: str, inputs: Sequence[str], output: str, **attributes: Any) -> str:
        """A node that gives `output`."""
        self.nodes.append(helper.make_node(op, list(inputs), [output], **attributes))
        return output

    def number(self, name: str, value: float) -> str:
        """A single number under that name."""
        return self.array(name, numpy.float32(value))

    def shape(self, name: str, *parts: Sequence[int] | tuple[str, int, int | None]) -> str:
        """A shape under that name: of numbers, and of the axes (value, from, to) of others."""
        pieces = []
        for place, part in enumerate(parts):
            own = f"{name}:{place}"
            if part and isinstance(part[0], str):
                value, start, end = part
                ends = {} if end is None else {"end": end}
                pieces.append(self.node("Shape", [str(value)], own, start=start, **ends))
            elif part:
                pieces.append(self.array(own, numpy.array(part, numpy.int64)))
        return pieces[0] if len(pieces) == 1 else self.node("Concat", pieces, name, axis=0)

    def rank(self, name: str) -> int:
        """How many axes a value has."""
        return len(self.shapes[name])


Writer = Callable[[Model, Node, str], str]
WRITERS: dict[str, Writer] = {}
"""What writes a node of each operation, under the name that it is given."""


def writes(*ops: str) -> Callable[[Writer], Writer]:
    """Make a function the writer of these operations."""

    def register(writer: Writer) -> Writer:
        WRITERS.update(dict.fromkeys(ops, writer))
        return writer

    return register


def arrays(model: Model, node: Node, *keys: str) -> list[str]:
    """Arrays of a node, those that it has."""
    return [
        model.array(f"{node.name}:{key}", node.arrays[key]) for key in keys if key in node.arrays
    ]
