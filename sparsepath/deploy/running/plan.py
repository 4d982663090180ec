"""Plans: where every node of a graph runs, by a rule that needs no measurement."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import cast

import torch

from sparsepath.deploy.graph.graph import Graph, Node
from sparsepath.deploy.graph.order import Formats
from sparsepath.deploy.running.choices import Choice, Lanes, Method, Weights
from sparsepath.deploy.running.kernels import Conv, lengths_after
from sparsepath.deploy.running.lower import fits
from sparsepath.deploy.running.schedule import Schedule, Shapes, schedule

ONE = (Lanes(4, 1),)
FEW = Lanes(4, 8)
# The most images at a time; large maps, which fill the cache, go in smaller groups (phases.py).
MANY = tuple(
    Lanes(grid, group)
    for grid, groups in ((1, (16, 32)), (2, (8, 16, 32)), (4, (4, 8, 16)))
    for group in groups
)
# Smaller tiles than these would be computed for nothing.
TILES = {"winograd4": 4, "woven4": 4, "winograd2": 2}
BY_RULE = "by rule"
# Maps of fewer rows than the grid lose lanes; shorter ones are too small for that to matter.
LONG = 256


@dataclass(frozen=True)
class Plan:
    """Where every node runs and in which lanes, or which dense runtime takes the whole."""

    choices: Mapping[str, Choice]
    lanes: Lanes
    threads: int
    """of our kernels: all that there are, or one where more gain too little"""
    runner: str = "native"
    seconds: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Planner:
    """Makes plans for one graph, and schedules of them."""

    graph: Graph
    weights: Weights
    threads: int
    foreign: Mapping[str, torch.dtype] = field(default_factory=dict)
    """the types of the values that are not float32"""
    formats: Formats = field(default_factory=dict)
    """the order in memory of each output"""
    strict: bool = False
    """without Winograd, whose rounding of a pixel depends on others that it does not read"""

    def fixed(self, shapes: Shapes, lanes: Lanes) -> Plan:
        """The rule that needs no measurement: Winograd as large as the tiles allow."""
        choices = {node.name: self._by_rule(node, shapes, lanes) for node in self.graph}
        return Plan(choices, lanes, self.threads)

    def methods(self, node: Node, shapes: Shapes, lanes: Lanes) -> tuple[Method, ...]:
        """The native methods that can run a node, the usual first."""
        able = _methods(node, shapes, lanes)
        return tuple(method for method in able if method not in TILES) if self.strict else able

    def whole(self, runner: str, why: str) -> Plan:
        """Everything in one dense runtime."""
        choices = {node.name: Choice("torch", why) for node in self.graph}
        return Plan(choices, ONE[0], self.threads, runner)

    def fitted(self, plan: Plan, shapes: Shapes) -> Plan:
        """A plan for inputs of another shape, where the kernels may not take or like some."""
        rule = self.fixed(shapes, plan.lanes).choices

        def fits_still(node: Node, choice: Choice) -> bool:
            if rule[node.name].method == "torch":
                return False
            if node.op != "conv" or choice.method not in (*TILES, "direct", "depthwise", "rows"):
                return True
            if choice.method == "rows" and not _few(node, shapes, plan.lanes):
                return False
            return choice.why != BY_RULE and (
                _edge(node, shapes, plan.lanes) >= TILES.get(choice.method, 1)
            )

        choices = {
            node.name: choice if fits_still(node, choice) else rule[node.name]
            for node, choice in ((node, plan.choices[node.name]) for node in self.graph)
        }
        return replace(plan, choices=choices)

    def schedule(self, plan: Plan, shapes: Shapes) -> Schedule:
        """The steps of a plan for inputs of some size."""
        return schedule(
            self.graph,
            plan.choices,
            shapes=shapes,
            lanes=plan.lanes,
            weights=self.weights,
            threads=plan.threads,
            formats=self.formats,
        )

    def _by_rule(self, node: Node, shapes: Shapes, lanes: Lanes) -> Choice:
        why = fits(node, shapes, self.foreign)
        if why is not None:
            return Choice("torch", why)
        if node.op == "conv" and _thin(node, shapes, lanes):
            return Choice("torch", "its maps are too thin to fill the lanes")
        able = self.methods(node, shapes, lanes)
        if lanes in ONE and node.op == "linear":
            return Choice("rows", BY_RULE)
        if "winograd4" in able:
            able = tuple(m for m in able if _edge(node, shapes, lanes) >= TILES.get(m, 1))
        return Choice(able[0], BY_RULE)


def _methods(node: Node, shapes: Shapes, lanes: Lanes) -> tuple[Method, ...]:
    if node.op == "linear":
        return ("linear", "rows")
    weight, attributes = node.arrays.get("weight"), node.attributes
    if node.op != "conv" or weight is None or weight.dim() != 4:
        return ("native",)
    groups = cast(int, attributes["groups"])
    height, width = weight.shape[2:]
    stride, dilation = (cast(tuple[int, int], attributes[k]) for k in ("stride", "dilation"))
    able = Conv.methods(
        (height, width), stride, dilation, (weight.shape[1] * groups, len(weight), groups)
    )
    if not _few(node, shapes, lanes):
        able = tuple(method for method in able if method != "rows")
    if "winograd2" not in able or lanes in ONE:
        return able
    return (able[0], "woven4", *able[1:])


def made(node: Node, shapes: Shapes) -> tuple[int, ...]:
    """The lengths of the maps that a convolution makes, before they are pooled."""
    taps = node.arrays["weight"].shape[2:]
    stride, padding, dilation = (
        cast(tuple[int, ...], node.attributes[key]) for key in ("stride", "padding", "dilation")
    )
    return lengths_after(shapes[node.inputs[0]][-len(taps) :], taps, stride, padding, dilation)


def _few(node: Node, shapes: Shapes, lanes: Lanes) -> bool:
    """Whether a convolution makes maps of a single image that one vector holds."""
    return lanes in ONE and max(made(node, shapes)) <= lanes.grid


def _thin(node: Node, shapes: Shapes, lanes: Lanes) -> bool:
    """Whether lanes without a pixel cost more than zeros save: a dense kernel's loss is 2 to 12."""
    short, long = sorted(shapes[node.inputs[0]][2:])
    weight = node.arrays["weight"]
    return short < lanes.grid and long >= LONG and 4 * int(weight.count_nonzero()) > weight.numel()


def _edge(node: Node, shapes: Shapes, lanes: Lanes) -> int:
    """The shorter side of the tiles that a node reads."""
    return min(-(-side // lanes.grid) for side in shapes[node.inputs[0]][2:])
