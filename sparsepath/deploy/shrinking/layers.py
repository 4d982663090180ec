"""Layers that mix channels by weights, all seen alike: kernels by group, output, input and tap."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from sparsepath.deploy.graph.graph import Graph, Node
from sparsepath.deploy.graph.operations import FUSED
from sparsepath.deploy.shrinking.channels import Shapes

LAYERS = ("conv", "conv_transpose", "linear")
NAN = float("nan")


@dataclass(frozen=True, eq=False)
class Layer:
    """A convolution or a linear layer, its weight seen as (group, output, input, tap)."""

    node: Node
    approximate: bool = False
    """whether a constant may be folded where zero padding meets it"""
    groups: int = field(init=False)
    kernels: Tensor = field(init=False)
    alive: Tensor = field(init=False)
    """which kernels hold a weight that is not zero"""

    def __post_init__(self) -> None:
        """See the weight's axes by name."""
        weight: Tensor = self.node.arrays["weight"]
        groups: Any = self.node.attributes.get("groups", 1)
        kernels = weight.reshape(groups, len(weight) // groups, weight.shape[1], -1)
        if self.node.op == "conv_transpose":
            kernels = kernels.transpose(1, 2)
        object.__setattr__(self, "groups", groups)
        object.__setattr__(self, "kernels", kernels)
        object.__setattr__(self, "alive", (kernels != 0).any(-1))

    def foldable(self, given: Tensor) -> Tensor:
        """The constants among its inputs that it can take into its bias; NaN for all others."""
        padding: Any = self.node.attributes.get("padding", ())
        # At the border zeros take a constant's place; a transposed one meets no two taps alike.
        exact = self.node.op != "conv_transpose" and not any(padding)
        return given if exact or self.approximate else torch.where(given == 0, given, NAN)

    def shift(self, folded: Tensor) -> Tensor:
        """What the folded constants add to each output."""
        strides: Any = self.node.attributes["stride"] if self.node.op == "conv_transpose" else ()
        numbers = torch.where(folded.isnan(), 0.0, folded).view(self.groups, 1, -1)
        # Only the few inputs that count are summed in float64: a weight may fill the memory.
        used = (numbers != 0).any(0).flatten().nonzero().flatten()
        sums = self.kernels[:, :, used].sum(-1, dtype=torch.float64) / math.prod(strides)
        return (
            torch.where(numbers[..., used] != 0, sums * numbers[..., used], 0.0).sum(-1).flatten()
        )

    def constants(self, given: Tensor) -> Tensor:
        """The number that each output is, if everything it reads can be folded; else NaN."""
        folded = self.foldable(given)
        open_ones = folded.isnan().view(self.groups, 1, -1)
        varies = (self.alive & open_ones).any(-1).flatten()
        return torch.where(varies, NAN, self._bias() + self.shift(folded))

    def _bias(self) -> Tensor:
        outputs = self.groups * self.kernels.shape[1]
        bias = self.node.arrays.get("bias")
        return torch.zeros(outputs, dtype=torch.float64) if bias is None else bias.double()

    def needs(self, need: Tensor, folded: Tensor) -> Tensor:
        """The inputs that the needed outputs read and that are not folded."""
        read = (self.alive & need.view(self.groups, -1, 1)).any(1).flatten()
        return read & folded.isnan()

    def tied(self, inputs: Tensor, outputs: Tensor) -> tuple[Tensor, Tensor]:
        """What must stay besides: a group stays whole in number, as many channels as the others."""
        if self.groups == 1:
            return inputs, outputs
        sides = [side.view(self.groups, -1) for side in (inputs, outputs)]
        present = sides[0].any(1) | sides[1].any(1)
        first, second = (_levelled(side, present) for side in sides)
        return first.flatten(), second.flatten()

    def rewritten(self, inputs: Tensor, outputs: Tensor, need: Tensor, folded: Tensor) -> Node:
        """The layer between the channels that stay, with what nobody needs set to zero."""
        dead = ~need.view(self.groups, -1, 1) | ~folded.isnan().view(self.groups, 1, -1)
        kernels = self.kernels.masked_fill(dead.unsqueeze(-1), 0.0)
        start = torch.where(need, self._bias() + self.shift(folded), 0.0)
        sides = [side.view(self.groups, -1) for side in (outputs, inputs)]
        present = sides[0].any(1).nonzero()
        rows, columns = (
            side[present.flatten()].nonzero()[:, 1].view(len(present), -1) for side in sides
        )
        small = kernels[present.unsqueeze(-1), rows.unsqueeze(2), columns.unsqueeze(1)]
        weight = self.node.arrays["weight"]
        if self.node.op == "conv_transpose":
            small = small.transpose(1, 2)
        shape = (small.shape[0] * small.shape[1], small.shape[2], *weight.shape[2:])
        arrays = {"weight": small.reshape(shape)}
        if "bias" in self.node.arrays or bool(start.any()):
            arrays["bias"] = start[outputs].to(weight.dtype)
        attributes = dict(self.node.attributes)
        if "groups" in attributes:
            attributes["groups"] = len(present)
        return replace(self.node, arrays=arrays, attributes=attributes)


def _levelled(kept: Tensor, present: Tensor) -> Tensor:
    """As many in each present group as in the fullest, the first ones that are free."""
    most = max(1, int(kept.sum(1).max()))
    missing = most - kept.sum(1, keepdim=True)
    free = ~kept
    return (kept | (free & (free.cumsum(1) <= missing))) & present.unsqueeze(1)


def layers(graph: Graph, shapes: Shapes, *, approximate: bool) -> Mapping[str, Layer]:
    """The layers whose channels lie along axis 1, by name."""
    found = {node.name: Layer(node, approximate) for node in graph if _along_channels(node, shapes)}
    unlike = {
        name
        for name in found
        for other in shared(found, name)
        if other.node.op != found[name].node.op or other.groups != found[name].groups
    }
    return {name: layer for name, layer in found.items() if name not in unlike}


def _along_channels(node: Node, shapes: Shapes) -> bool:
    if node.op not in LAYERS or any(key in node.attributes for key in FUSED):
        return False
    weight = node.arrays["weight"]
    return weight.is_floating_point() and len(shapes[node.inputs[0]]) == weight.dim()


def shared(found: Mapping[str, Layer], name: str) -> Sequence[Layer]:
    """All layers with the weight of that one, itself included."""
    own = found[name].node.arrays["weight"]
    return [layer for layer in found.values() if layer.node.arrays["weight"] is own]
