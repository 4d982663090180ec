"""How many axes each value has at least, as far as a model's code tells.

Torch's layers take a single image as well as a batch of them, and nothing in a trace says which
of the two came: only code that could not run otherwise does.
"""

from collections.abc import Iterator
from typing import Any

from sparsepath.deploy.graph import Node
from sparsepath.deploy.operations import DROPOUTS, ELEMENTWISE

POOLS = ("max_pool", "avg_pool", "adaptive_avg_pool", "adaptive_max_pool")
# What gives as many axes as it takes.
SAME = {
    *(*ELEMENTWISE, *DROPOUTS, *POOLS, "conv", "conv_transpose", "linear", "batch_norm", "affine"),
    *("softmax", "log_softmax", "interpolate", "pad", "index", "permute", "transpose", "cat"),
}


class Axes:
    """The least number of axes of each value; values that have as many share what is learned."""

    def __init__(self) -> None:
        """Nothing is known yet."""
        self._like: dict[str, str] = {}
        self._least: dict[str, int] = {}

    def _first(self, name: str) -> str:
        while name in self._like:
            name = self._like[name]
        return name

    def least(self, name: str) -> int:
        """The axes that a value has at least."""
        return self._least.get(self._first(name), 0)

    def tell(self, name: str, axes: int) -> None:
        """A value, and all that have as many axes, have at least so many."""
        first = self._first(name)
        self._least[first] = max(axes, self._least.get(first, 0))

    def learn(self, node: Node) -> None:
        """What a node says about the axes of what it reads and gives."""
        for name in node.inputs if node.op in SAME else ():
            own, other = self._first(node.name), self._first(name)
            if own != other:
                self._like[own] = other
                self.tell(other, self._least.get(own, 0))
        for axes in _shown(node):
            self.tell(node.inputs[0], axes)
        if node.op == "reshape":
            shape: Any = node.attributes["shape"]
            self.tell(node.name, len(shape))
        elif node.op in ("add", "sub", "mul", "div"):
            self.tell(node.name, max(map(self.least, node.inputs)))


def _shown(node: Node) -> Iterator[int]:
    """How many axes a node's input must have for it to run."""
    attributes: Any = node.attributes
    if node.op == "batch_norm":  # its layer for lines takes rows, too
        yield attributes["axes"] + 2 if attributes.get("axes", 1) > 1 else 2
    elif node.op == "permute":
        yield len(attributes["dims"])
    elif node.op == "index":
        yield len(attributes["slices"])
    for key in ("dim", "dim0", "dim1", "start_dim"):
        axis = attributes.get(key)
        if isinstance(axis, int) and node.inputs:
            yield axis + 1 if axis >= 0 else -axis
