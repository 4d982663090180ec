"""Which values may share memory, so that a change in place of one is a change of others."""

from typing import Any

from torch import fx

from sparsepath.deploy.capture.translate import Unknown
from sparsepath.deploy.graph.graph import Node, Value, leaves_of
from sparsepath.deploy.graph.operations import DROPOUTS

# What may share memory with its input, so that a change in one is a change in the other.
VIEWS = {"reshape", "flatten", "unflatten", "index", "permute", "transpose", "torch", *DROPOUTS}
# What gives its input itself or a copy of it, as the order in memory happens to be.
PERHAPS_A_COPY = "contiguous"
Known = dict[fx.Node, Any]


class Aliases:
    """What each value is a view of, or is itself when a network is used."""

    def __init__(self) -> None:
        """Nothing shares anything yet."""
        self._base: dict[str, str] = {}
        self._same: dict[str, str] = {}

    def learn(self, node: Node) -> None:
        """What a node's result shares memory with."""
        for name in node.inputs if node.op in VIEWS else ():
            self._base[node.name] = self._base.get(name, name)
        if node.op in DROPOUTS:
            self._same[node.name] = self._undropped(node.inputs[0])

    def _undropped(self, name: str) -> str:
        """The value that this one is when a network is used, whatever dropouts lie between."""
        return self._same.get(name, name)

    def redirect(self, known: Known, changed: fx.Node, new: Value, to_come: set[fx.Node]) -> None:
        """After a change in place, whoever held the old value holds the new one."""
        old = known[changed].name
        same = self._undropped(old)
        holders = {
            node
            for node, x in known.items()
            if isinstance(x, Value) and self._undropped(x.name) == same
        }
        base = self._base.get(old, old)
        held = [(node, value.name) for node, x in known.items() for value in leaves_of(x)]
        for node, name in held:
            readers = to_come & set(node.users)
            sure = node in holders and _origin(node, holders) is _origin(changed, holders)
            shares = self._undropped(name) == same or self._base.get(name, name) == base
            if shares and not sure and readers:
                raise Unknown(f"a change in place may show in {name!r} too")
        known.update(dict.fromkeys(holders, new))


def _origin(node: fx.Node, holders: set[fx.Node]) -> fx.Node:
    """The first of those that certainly hold the same memory as this one."""
    while node.target != PERHAPS_A_COPY and node.args and node.args[0] in holders:
        node = node.args[0]  # type: ignore[assignment]
    return node
