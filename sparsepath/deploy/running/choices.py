"""Where a node runs and how: the method, the lanes, and the weights packed for them."""

import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from sparsepath.deploy.graph.graph import Node
from sparsepath.deploy.running.kernels import Conv, Linear, usual_isa

Method = Literal[
    "winograd4", "woven4", "winograd2", "direct", "depthwise", "linear", "rows", "native", "torch"
]  # fmt: skip
# A direct convolution reads its columns set by set, each with all filters. Few vectors leave room
# in the first cache for more columns, and a short run of steps costs more than its work.
COLUMNS = {1: 800, 2: 400}
# Winograd makes a vector of tiles from so many vectors of pixels. Where that is all, four slices
# are woven (native/winograd.cpp); with "woven4" two are, in panels of two vectors of tiles.
TILE = {"winograd4": 16, "winograd2": 4}
# Narrower vectors make more of them, and gain nothing.
WIDE = "avx512"


@dataclass(frozen=True)
class Choice:
    """Where a node runs, how, and why."""

    method: Method
    why: str
    seconds: Mapping[str, float] = field(default_factory=dict)
    """for one image by each method, where that was measured"""


@dataclass(frozen=True)
class Lanes:
    """How a batch is laid out: tiles of a side, and images that go through together."""

    grid: int
    group: int


class Weights:
    """Packed weights by layer and method, each packed once and shared by all programs."""

    def __init__(self) -> None:
        """Nothing is packed before it is asked for."""
        self._packed: dict[tuple[str, Method, int, int], Conv | Linear] = {}
        self._lock = threading.Lock()

    def of(self, node: Node, method: Method, vectors: int) -> Conv | Linear:
        """A layer's weights for a method, on maps of so many vectors a channel."""
        with self._lock:
            columns = COLUMNS.get(vectors, 0) if method == "direct" else 0
            one = vectors <= TILE.get(method, 0) and usual_isa() == WIDE
            woven = 2 if method == "woven4" else 4 if one else 0
            key = (node.name, method, columns, woven)
            if key not in self._packed:
                self._packed[key] = _packed(node, method, columns=columns, woven=woven)
                self._packed[key].before = node.before
            return self._packed[key]

    def forget_all_but(self, *plans: Mapping[str, Choice]) -> None:
        """Let go of what was packed only to be measured."""
        with self._lock:
            kept = {(name, choice.method) for plan in plans for name, choice in plan.items()}
            self._packed = {key: x for key, x in self._packed.items() if key[:2] in kept}

    @property
    def bytes(self) -> int:
        """The memory that all packed weights take."""
        return sum(packed.bytes for packed in self._packed.values())


def _packed(node: Node, method: Method, *, columns: int, woven: int) -> Conv | Linear:
    weight, bias = node.arrays["weight"], node.arrays.get("bias")
    if node.op == "linear":
        return Linear(weight, bias, few=method == "rows")
    shape: Mapping[str, Any] = {
        key: node.attributes[key] for key in ("stride", "padding", "dilation", "groups")
    }
    own = "winograd4" if method == "woven4" else method
    assert own in ("winograd4", "winograd2", "direct", "depthwise", "rows")
    return Conv(weight, bias, method=own, columns=columns, woven=woven, **shape)
