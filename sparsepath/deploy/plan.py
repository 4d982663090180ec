"""Chooses where every node runs: by a fixed rule, or by what was measured on this machine."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, cast

import torch
from torch import Tensor

from sparsepath.deploy.choices import Choice, Lanes, Method, Weights
from sparsepath.deploy.graph import Graph, Node
from sparsepath.deploy.kernels import Conv
from sparsepath.deploy.lower import fits
from sparsepath.deploy.measure import fingerprint, layer_seconds, stage, when_asked
from sparsepath.deploy.schedule import Schedule, Shapes, schedule
from sparsepath.deploy.tuning import Times, Work

ONE = (Lanes(4, 1),)
# Of each grid the first is the one in which single layers are measured.
MANY = (Lanes(1, 16), Lanes(1, 32), Lanes(2, 8), Lanes(2, 16), Lanes(4, 4), Lanes(4, 8))
# Leaving the lanes for one layer must save this much of the layer's time.
GAIN = 0.85


@dataclass(frozen=True)
class Plan:
    """Where every node runs and in which lanes, or which dense runtime takes the whole."""

    choices: Mapping[str, Choice]
    lanes: Lanes
    runner: str = "native"
    seconds: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Planner:
    """Makes plans for one graph; `dense` are the runtimes that could take all of it."""

    graph: Graph
    weights: Weights
    threads: int
    dense: Mapping[str, Callable[..., Any]]

    def fixed(self, shapes: Shapes, lanes: Lanes) -> Plan:
        """The rule that needs no measurement: Winograd as large as the tiles allow."""
        return Plan({node.name: _by_rule(node, shapes, lanes) for node in self.graph}, lanes)

    def whole(self, runner: str, why: str) -> Plan:
        """Everything in one dense runtime."""
        return Plan({node.name: Choice("torch", why) for node in self.graph}, ONE[0], runner)

    def fitted(self, plan: Plan, shapes: Shapes) -> Plan:
        """A plan for inputs of another shape, some of which the kernels may not take."""
        unfit = {node.name: fits(node, shapes) for node in self.graph}
        choices = {
            name: choice if unfit[name] is None else Choice("torch", str(unfit[name]))
            for name, choice in plan.choices.items()
        }
        return replace(plan, choices=choices)

    def tuned(
        self, example: Sequence[Tensor], shapes: Shapes, candidates: Sequence[Lanes], times: Times
    ) -> Plan:
        """The plan whose layers, lanes and whole were the fastest on this machine."""
        grids = {lanes.grid: lanes for lanes in reversed(candidates)}
        by_grid = {grid: self._by_layer(shapes, lanes, times) for grid, lanes in grids.items()}
        plans = {str(lanes): replace(by_grid[lanes.grid], lanes=lanes) for lanes in candidates}
        works: dict[str, Work] = {
            name: when_asked(partial(self._work, plan, shapes, example))
            for name, plan in plans.items()
        }
        for name, run in self.dense.items():
            works[name] = partial(run, *example)
            plans[name] = self.whole(name, f"{name} was faster for the whole")
        question = (
            f"{fingerprint(self.graph, shapes)}, {len(example[0])} images, {stage(self.threads)}"
        )
        with torch.inference_mode():
            seconds = times.of(question, works)
        return replace(plans[min(seconds, key=lambda name: seconds[name])], seconds=seconds)

    def schedule(self, plan: Plan, shapes: Shapes) -> Schedule:
        """The steps of a plan for inputs of some size."""
        return schedule(
            self.graph,
            plan.choices,
            shapes=shapes,
            lanes=plan.lanes,
            weights=self.weights,
            threads=self.threads,
        )

    def _work(self, plan: Plan, shapes: Shapes, example: Sequence[Tensor]) -> Work:
        return partial(self.schedule(plan, shapes), *example)

    def _by_layer(self, shapes: Shapes, lanes: Lanes, times: Times) -> Plan:
        rule = self.fixed(shapes, lanes)
        choices = {
            node.name: self._fastest(node, rule.choices[node.name], shapes, lanes, times)
            for node in self.graph
        }
        return replace(rule, choices=choices)

    def _fastest(
        self, node: Node, rule: Choice, shapes: Shapes, lanes: Lanes, times: Times
    ) -> Choice:
        if rule.method == "torch" or node.op not in ("conv", "linear"):
            return rule
        seconds, way = layer_seconds(
            node,
            shapes[node.inputs[0]][1:],
            methods=methods(node),
            lanes=lanes,
            weights=self.weights,
            threads=self.threads,
            times=times,
        )
        best = min(methods(node), key=lambda method: seconds[method])
        if seconds["torch"] + way < GAIN * seconds[best]:
            best = "torch"
        spoken = ", ".join(f"{name} {1e6 * x:.0f} us" for name, x in seconds.items())
        return Choice(best, f"of {spoken}")


def methods(node: Node) -> tuple[Method, ...]:
    """The native methods that can run a node, the usual first."""
    if node.op == "linear":
        return ("linear",)
    if node.op != "conv":
        return ("native",)
    weight, attributes = node.arrays["weight"], node.attributes
    groups = cast(int, attributes["groups"])
    height, width = weight.shape[2:]
    stride, dilation = (cast(tuple[int, int], attributes[k]) for k in ("stride", "dilation"))
    return Conv.methods(
        (height, width), stride, dilation, (weight.shape[1] * groups, len(weight), groups)
    )


def _by_rule(node: Node, shapes: Shapes, lanes: Lanes) -> Choice:
    why = fits(node, shapes)
    if why is not None:
        return Choice("torch", why)
    able = methods(node)
    if "winograd4" in able:
        edge = min(-(-side // lanes.grid) for side in shapes[node.inputs[0]][2:])
        able = able if edge >= 4 else able[1:] if edge >= 2 else able[2:]
    return Choice(able[0], "by rule")
