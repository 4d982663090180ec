"""What the numbers of an operation may be: a file chooses its own, and torch trusts some."""

from collections.abc import Mapping

from sparsepath.deploy.graph import Attribute, Node
from sparsepath.errors import BadInput

LEAST = {"stride": 1, "dilation": 1, "kernel_size": 1, "padding": 0, "output_padding": 0}
CONVOLUTIONS = ("conv", "conv_transpose")


def refuse_impossible(node: Node) -> None:
    """Refuse steps below 1, room below 0, and groups that do not divide the channels."""
    for key, least in LEAST.items():
        if key in node.attributes:
            _refuse_below(node, key, least)
    if node.op in CONVOLUTIONS:
        _refuse_unfit(node, node.attributes)


def _refuse_below(node: Node, key: str, least: int) -> None:
    given = node.attributes[key]
    if not isinstance(given, tuple) or not all(type(x) is int and x >= least for x in given):
        raise BadInput(
            f"{node.name!r} has the {key} {given!r}: each number must be whole and at least {least}"
        )


def _refuse_unfit(node: Node, attributes: Mapping[str, Attribute]) -> None:
    weight, groups = node.arrays["weight"], attributes["groups"]
    axes = weight.dim() - 2
    if axes not in (1, 2, 3):
        raise BadInput(f"{node.name!r} has a weight of {weight.dim()} axes, not 3 to 5")
    for key in LEAST:
        given = attributes.get(key)
        if isinstance(given, tuple) and len(given) != axes:
            raise BadInput(f"{node.name!r} has the {key} {given!r} for {axes} axes")
    # The first axis holds the output channels of a convolution, the inputs of a transposed one.
    if type(groups) is not int or groups < 1 or len(weight) % groups:
        raise BadInput(f"{node.name!r} has {groups!r} groups, which do not divide {len(weight)}")
