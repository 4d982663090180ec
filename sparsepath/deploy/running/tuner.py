"""Finds the plan that is fastest on this machine: layers first, then lanes, then the whole."""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from sparsepath.deploy.graph.graph import Node
from sparsepath.deploy.graph.inputs import batch_of
from sparsepath.deploy.running.choices import Choice, Lanes, Method
from sparsepath.deploy.running.measure import (
    described,
    fingerprint,
    layer_seconds,
    stage,
    when_asked,
)
from sparsepath.deploy.running.plan import Plan, Planner
from sparsepath.deploy.running.schedule import Shapes
from sparsepath.deploy.running.tuning import Times, Work

# Leaving the lanes for one layer must save this much of the layer's time.
GAIN = 0.85
# So must threads of the whole: they are disturbed more easily than one, and take cores from others.
THREADS_GAIN = 0.9
# So many images are enough to compare methods inside the network.
FEW_IMAGES = 16


@dataclass(frozen=True)
class Tuner:
    """Measures plans on an example; `rivals` are dense runtimes that could take the whole."""

    planner: Planner
    example: Sequence[Tensor]
    few: Sequence[Tensor]
    """FEW_IMAGES of the example, or all where the model takes no other number"""
    shapes: Shapes
    rivals: Mapping[str, Callable[..., Any]]
    times: Times

    @torch.inference_mode()
    def plan(self, candidates: Sequence[Lanes]) -> Plan:
        """The fastest plan in any of these lanes, or a rival if it is faster still."""
        whole = self._native(candidates)
        if self.planner.threads > 1:
            whole |= {f"{name}, one thread": replace(x, threads=1) for name, x in whole.items()}
        works = {name: self._work(plan) for name, plan in whole.items()}
        by_layer = whole["native, by layer"]
        for name, run in self.rivals.items():
            works[name] = partial(run, *self.example)
            whole[name] = self._handed_over(by_layer, name)
        seconds = self._seconds(f"whole, {_digest(whole['native'])}", works)
        return replace(whole[_best(seconds, whole)], seconds=seconds)

    def _native(self, candidates: Sequence[Lanes]) -> dict[str, Plan]:
        """Our kernels in the fastest of these lanes, as found in three ways.

        The whole decides, so that one wrong measurement on the way cannot spoil the plan.
        """
        plans = {
            str(lanes): replace(self._by_layer(_standing_for(lanes)), lanes=lanes)
            for lanes in candidates
        }
        seconds = self._seconds("lanes", {name: self._work(x) for name, x in plans.items()})
        by_layer = plans[_least(seconds)]
        return {
            "native": self._refined(by_layer),
            "native, by layer": by_layer,
            "native, by rule": self.planner.fixed(self.shapes, candidates[0]),
        }

    def _handed_over(self, plan: Plan, rival: str) -> Plan:
        """All in a rival's hands; what the layers took here is kept for the report."""
        why = f"{rival} was faster for the whole"
        choices = {
            name: Choice("torch", why, seconds=choice.seconds)
            for name, choice in plan.choices.items()
        }
        return Plan(choices, plan.lanes, plan.threads, rival)

    def _by_layer(self, lanes: Lanes) -> Plan:
        """Every layer as it is fastest by itself."""
        rule = self.planner.fixed(self.shapes, lanes)
        choices = {
            node.name: self._fastest(node, rule.choices[node.name], lanes)
            for node in self.planner.graph
        }
        return replace(rule, choices=choices)

    def _fastest(self, node: Node, rule: Choice, lanes: Lanes) -> Choice:
        if rule.method == "torch" or node.op not in ("conv", "linear"):
            return rule
        able = self.planner.methods(node, self.shapes, lanes)
        seconds, way = layer_seconds(
            node,
            self.shapes[node.inputs[0]][1:],
            methods=able,
            lanes=lanes,
            weights=self.planner.weights,
            threads=self.planner.threads,
            times=self.times,
        )
        best = min(able, key=lambda method: seconds[method])
        if seconds["torch"] + way < GAIN * seconds[best]:
            best = "torch"
        per_image = {name: x / lanes.group for name, x in seconds.items()}
        spoken = ", ".join(f"{name} {1e6 * x:.0f}" for name, x in per_image.items())
        return Choice(best, f"us an image: {spoken}", seconds=per_image)

    def _refined(self, plan: Plan) -> Plan:
        """Each kind of layer as it is fastest inside the network, where caches are not its own."""
        few = self.few if plan.lanes.group <= FEW_IMAGES else self.example
        kinds: dict[str, list[Node]] = {}
        for node in self.planner.graph:
            able = self.planner.methods(node, self.shapes, plan.lanes)
            if plan.choices[node.name].method in able and len(able) > 1:
                kinds.setdefault(described(node, self.shapes[node.inputs[0]][1:]), []).append(node)
        for kind, nodes in kinds.items():
            able = self.planner.methods(nodes[0], self.shapes, plan.lanes)
            plans = {method: _with(plan, nodes, method) for method in able}
            works: dict[str, Work] = {m: self._work(x, few) for m, x in plans.items()}
            seconds = self._seconds(f"{kind} in {_digest(plan)}", works)
            plan = plans[min(plans, key=lambda method: seconds[method])]
        return plan

    def _work(self, plan: Plan, images: Sequence[Tensor] | None = None) -> Work:
        """A plan's run, built when it is asked for."""
        given = self.example if images is None else images
        return when_asked(lambda: partial(self.planner.schedule(plan, self.shapes), *given))

    def _seconds(self, question: str, works: Mapping[str, Work]) -> Mapping[str, float]:
        images = f"{batch_of(self.example[0].shape)} images"
        name = fingerprint(self.planner.graph, self.shapes)
        asked = f"{name}, {images}, {stage(self.planner.threads)}: {question}"
        return self.times.of(asked, works, patience=0.15)


def _standing_for(lanes: Lanes) -> Lanes:
    """The lanes in which layers are measured: methods depend on the grid more than on the group."""
    return Lanes(lanes.grid, {1: 16, 2: 8, 4: 4 if lanes.group > 2 else 1}[lanes.grid])


def _least(seconds: Mapping[str, float]) -> str:
    return min(seconds, key=lambda name: seconds[name])


def _best(seconds: Mapping[str, float], plans: Mapping[str, Plan]) -> str:
    """The fastest plan, but one in a single thread if more of them hardly help."""
    least = _least(seconds)
    own = [name for name, plan in plans.items() if plan.runner == "native"]
    alone = {name: seconds[name] for name in own if plans[name].threads == 1}
    if not alone or least not in own:
        return least
    simplest = _least(alone)
    return least if seconds[least] < THREADS_GAIN * seconds[simplest] else simplest


def _with(plan: Plan, nodes: Sequence[Node], method: Method) -> Plan:
    """The plan with some nodes run by another method."""
    changed = {node.name: replace(plan.choices[node.name], method=method) for node in nodes}
    return replace(plan, choices={**plan.choices, **changed})


def _digest(plan: Plan) -> str:
    """A short name for what a plan runs where."""
    lines = [
        str(plan.lanes),
        str(plan.threads),
        *(f"{name} {x.method}" for name, x in plan.choices.items()),
    ]
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()[:12]
