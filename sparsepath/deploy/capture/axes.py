"""How many axes each value has, at least and at most, as far as a model's code tells.

Torch's layers take a single image as well as a batch of them, and nothing in a trace says which
of the two came: only code that could not run otherwise does.
"""

import math
from collections.abc import Iterable, Iterator
from typing import Any

from sparsepath.deploy.files.arguments import CONVOLUTIONS
from sparsepath.deploy.graph.graph import Node
from sparsepath.deploy.graph.operations import DROPOUTS, ELEMENTWISE, REDUCTIONS
from sparsepath.errors import BadInput

POOLS = ("max_pool", "avg_pool", "adaptive_avg_pool", "adaptive_max_pool")
# What gives as many axes as it takes.
SAME = {
    *(*ELEMENTWISE, *DROPOUTS, *POOLS, "conv", "conv_transpose", "linear", "batch_norm", "affine"),
    *("group_norm", "layer_norm", "prelu", "softmax", "log_softmax"),
    *("interpolate", "interpolate_like", "pad", "index", "permute", "transpose", "cat"),
}

GAIN = ("flatten", "unflatten", *REDUCTIONS)


class Axes:
    """The number of axes of each value; values that have as many share what is learned."""

    def __init__(self) -> None:
        """Nothing is known yet."""
        self._like: dict[str, str] = {}
        self._least: dict[str, int] = {}
        self._most: dict[str, float] = {}

    def _first(self, name: str) -> str:
        while name in self._like:
            name = self._like[name]
        return name

    def least(self, name: str) -> int:
        """The axes that a value has at least."""
        return self._least.get(self._first(name), 0)

    def most(self, name: str) -> float:
        """The axes that a value has at most."""
        return self._most.get(self._first(name), math.inf)

    def tell(self, name: str, axes: int, most: float = math.inf) -> None:
        """A value, and all that have as many axes, have at least so many, and at most so many."""
        first = self._first(name)
        self._least[first] = max(axes, self._least.get(first, 0))
        self._most[first] = min(most, self._most.get(first, math.inf))

    def learn(self, node: Node) -> None:
        """What a node says about the axes of what it reads and gives."""
        for name in node.inputs if node.op in SAME else ():
            own, other = self._first(node.name), self._first(name)
            if own != other:
                self._like[own] = other
                self.tell(other, self._least.get(own, 0), self._most.get(own, math.inf))
        for axes, most in _shown(node):
            self.tell(node.inputs[0], axes, most)
        if node.op == "reshape":
            shape: Any = node.attributes["shape"]
            self.tell(node.name, len(shape), len(shape))
        elif node.op in GAIN and (more := _gained(node)) is not None:
            (name,) = node.inputs
            self.tell(node.name, self.least(name) + more, self.most(name) + more)
        elif node.op in ("add", "sub", "mul", "div"):
            least, most = max(map(self.least, node.inputs)), max(map(self.most, node.inputs))
            self.tell(node.name, least, most)
        elif node.op == "constant":
            self.tell(node.name, node.arrays["value"].dim(), node.arrays["value"].dim())


def _gained(node: Node) -> int | None:
    """How many axes more a node's result has than its input, where the node alone says so."""
    attributes: Any = node.attributes
    if node.op == "unflatten":
        return len(attributes["sizes"]) - 1
    if node.op in REDUCTIONS:
        return 0 if attributes.get("keepdim") else -len(attributes["dim"])
    start, end = attributes.get("start_dim", 0), attributes.get("end_dim", -1)
    return start - end if 0 <= start <= end or start <= end < 0 else None


def refuse_contradictions(nodes: Iterable[Node]) -> None:
    """Refuse operations that could not run on what the others give or take."""
    axes = Axes()
    for node in nodes:
        axes.learn(node)
        for name in (node.name, *node.inputs):
            if axes.least(name) > axes.most(name):
                raise BadInput(
                    f"{node.name!r} ({node.op}) meets {axes.least(name)} axes where there can be "
                    f"no more than {axes.most(name)}"
                )


def _shown(node: Node) -> Iterator[tuple[int, float]]:
    """How many axes a node's input must have for it to run, at least and at most."""
    attributes: Any = node.attributes
    if node.op == "batch_norm":
        sides = attributes.get("axes")
        # The layer for lines takes rows, too.
        yield (2 if sides in (None, 1) else sides + 2), (math.inf if sides is None else sides + 2)
    elif node.op in CONVOLUTIONS:
        axes = node.arrays["weight"].dim()
        yield axes - 1, axes
    elif node.op in POOLS:
        sides = len(attributes.get("kernel_size") or attributes["output_size"])
        yield sides + 1, sides + 2
    elif node.op in ("group_norm", "prelu"):
        several = node.op == "group_norm" or node.arrays["weight"].numel() > 1
        yield 1 + several, math.inf
    elif node.op == "layer_norm":
        yield len(attributes["normalized_shape"]), math.inf
    elif node.op == "permute":
        yield len(attributes["dims"]), len(attributes["dims"])
    elif node.op == "index":
        yield len(attributes["slices"]), math.inf
    for key in ("dim", "dim0", "dim1", "start_dim"):
        axis = attributes.get(key)
        if isinstance(axis, int) and node.inputs:
            yield (axis + 1 if axis >= 0 else -axis), math.inf
