"""Dropouts that their own code turns off for good, not only while a network is used."""

from collections.abc import Callable

import torch
from torch import fx, nn

from sparsepath.deploy.capture.recorded import line_of, place_of
from sparsepath.deploy.graph.operations import DROPOUTS

CALLS = {torch.dropout, *(getattr(nn.functional, name) for name in DROPOUTS)}


def without_idle_dropouts(recorded: fx.Graph, in_training: Callable[[], fx.Graph]) -> fx.Graph:
    """The trace without each dropout that a second one, in training, shows to be idle too."""
    own = _dropouts(recorded)
    if not own:
        return recorded
    try:
        others = _dropouts(in_training())
    except Exception:  # whatever a user's code may raise; then all are taken for active
        return recorded
    for where, nodes in own.items():
        twins = others.get(where, [])
        for node, twin in zip(nodes, twins, strict=False) if len(nodes) == len(twins) else ():
            if not _training(twin):
                node.replace_all_uses_with(node.all_input_nodes[0])
                recorded.erase_node(node)
    return recorded


def _dropouts(recorded: fx.Graph) -> dict[tuple[str, str], list[fx.Node]]:
    """The dropouts of the user's own code, by where it calls them."""
    found: dict[tuple[str, str], list[fx.Node]] = {}
    for node in recorded.nodes:
        place = place_of(node)
        if node.target in CALLS and node.all_input_nodes and place[-1:] in ("", "."):
            found.setdefault((place, line_of(node)), []).append(node)
    return found


def _training(node: fx.Node) -> bool:
    return bool(node.args[2] if len(node.args) > 2 else node.kwargs.get("training", True))
