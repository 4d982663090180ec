"""A network planned: where it runs for a size of batch, in which steps for a size of image."""

import logging
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from math import prod
from typing import Any

import torch
from torch import Tensor

from sparsepath.deploy.graph import reference
from sparsepath.deploy.graph.fold import folded
from sparsepath.deploy.graph.graph import Graph, leaves_of
from sparsepath.deploy.graph.inputs import (
    all_finite,
    batch_of,
    checked_axes,
    normed,
    repeated,
    said,
)
from sparsepath.deploy.running import kernels
from sparsepath.deploy.running.choices import Weights
from sparsepath.deploy.running.dense import in_onnxruntime, in_torch, turned
from sparsepath.deploy.running.extents import extents
from sparsepath.deploy.running.macs import macs_in_torch
from sparsepath.deploy.running.maps import LANES
from sparsepath.deploy.running.plan import FEW, MANY, ONE, Plan, Planner
from sparsepath.deploy.running.recent import Recent
from sparsepath.deploy.running.rehearsal import Rehearsal
from sparsepath.deploy.running.report import Report
from sparsepath.deploy.running.schedule import Schedule, Shapes
from sparsepath.deploy.running.tuner import FEW_IMAGES, Tuner
from sparsepath.deploy.running.tuning import Times
from sparsepath.errors import BadInput

log = logging.getLogger("sparsepath")
# So many nodes are named by a line that says why they run in torch.
NAMED = 3
# A runtime that meets ever new sizes of images must not grow: so many sizes have their shapes
# remembered, so many their programs, and fewer if these have threads of their own. Programs that
# work in more memory than that are forgotten but for the last two, for images that come in turn
# upright and across.
SHAPES = 4096
SIZES = 256
FEW_SIZES = 8
BYTES = 1 << 28
LAST_SIZES = 2
# The batch that stands for all that fill the lanes: so many images, or as many as have so many
# pixels. Each way to run it is run several times over, for seconds and gigabytes if images are
# large; those fill the lanes with few images or one, which tell as much of the ways.
MANY_IMAGES = 32
MANY_PIXELS = MANY_IMAGES * 48 * 48


class Planned:
    """A captured network with its plans, which any number of threads may ask at once."""

    def __init__(
        self,
        captured: Graph,
        example: Sequence[Tensor],
        *,
        threads: int,
        times: Times | None,
        strict: bool,
        native_only: bool,
        channels_last: bool,
    ) -> None:
        """Plan for single images and for batches; without `times` by rule."""
        self.graph = folded(captured)
        threads = min(threads, cores())  # more only get in each other's way
        self._normed: Mapping[str, int] = {}
        rehearsal = Rehearsal.of(self.graph)
        self._trial = rehearsal.graph
        kinds = said(example, lambda: reference.kinds(self._trial, example))
        self._shapes: Shapes = {name: kind.shape for name, kind in kinds.items()}
        self._normed = normed(captured, self._shapes)
        self.stateful = rehearsal.changed  # looked at now: a second run may undo the first
        if channels_last:  # a captured weight is in the plain order, whatever the model's was
            kinds = said(example, lambda: reference.kinds(turned(self._trial), example))
        formats = {name: kinds[name].format for name in self.graph.outputs}
        # Pairs of all leaves: two outputs may be one value once dropout is gone.
        ends = zip(leaves_of(captured.output), leaves_of(self.graph.output), strict=True)
        own = {before.name: formats[after.name] for before, after in ends}
        dense = {"torch": in_torch(captured, own) if strict else in_torch(self.graph, formats)}
        able = times is not None and not strict  # onnxruntime has its own way with NaN
        other = None
        if able:
            other = in_onnxruntime(self._trial, example, threads, formats=formats)
        if other is not None:
            dense["onnxruntime"] = other
        self._weights = Weights()
        foreign = _foreign(kinds)
        self._planner = Planner(self.graph, self._weights, threads, foreign, formats, strict)
        self._types = {name: kind.dtype for name, kind in kinds.items()}
        self._known: Recent[Shapes] = Recent(SHAPES)
        self._schedules: Recent[Schedule] = Recent(max(FEW_SIZES, SIZES // threads**2))
        self.ready: dict[tuple[torch.Size, ...], Callable[..., tuple[Any, ...]]] = {}
        """ways of some shapes that need no further checks"""
        self._notes = _notes(self.graph)
        for note in self._notes:
            log.warning("%s", note)
        self._macs = said(example, lambda: macs_in_torch(self._trial, example))
        rivals = dense if self._trial is self.graph else {"torch": in_torch(self._trial, formats)}
        self._one, self._many = self._planned(example, times, {} if native_only else rivals)
        # Some images, but too few for the lanes of batches: as one, but sharing the weights.
        self._few = replace(self._one, lanes=FEW, threads=self._many.threads)
        used = {self._one.runner, self._many.runner}
        self.dense = {name: run for name, run in dense.items() if name in used}
        self.stateful = self.stateful or rehearsal.changed
        if not self.stateful:
            self._trial = self.graph

    def report(self) -> Report:
        """Where every node runs and why, for a batch like the example's."""
        plan = self.plan(batch_of(self._shapes[self.graph.inputs[0]]))
        choices = plan.choices
        if plan.runner == "native":
            choices = self._planner.schedule(plan, self._shapes).choices
        return Report.of(self.graph, choices, self._shapes, plan, self._notes, self._macs)

    def schedule(self, plan: Plan, inputs: Sequence[Tensor]) -> Schedule:
        """The steps of a plan for inputs of this size, built at the first."""
        batch = batch_of(inputs[0].shape)
        alike = tuple(batch_of(x.shape) == batch for x in inputs)
        key = (plan.lanes, alike, *(tuple(x.shape[1:]) for x in inputs))
        schedule = self._schedules.get(key)
        if schedule is None:
            shapes = self._known.get(key)
            if shapes is None:
                shapes = self._traced(inputs)
                self._known.put(key, shapes)
            if any(shapes[name][1:] != self._shapes[name][1:] for name in self.graph.inputs):
                plan = self._planner.fitted(plan, shapes)
            self._forget(LAST_SIZES - 1)  # to make room
            schedule = self._planner.schedule(plan, shapes)
            if self._schedules.put(key, schedule):
                self.ready.clear()  # which would keep what is forgotten
        return schedule

    def run(self, schedule: Schedule, inputs: Sequence[Tensor], *, careful: bool) -> Any:
        """What a schedule gives for these inputs; if it needs more memory, others may be lost."""
        before = schedule.bytes
        try:
            return (schedule.careful if careful else schedule)(*inputs)
        finally:
            if schedule.bytes > before:
                self._forget(LAST_SIZES)

    def _forget(self, least: int) -> None:
        """Forget the oldest sizes while all take too much memory, but for the last ones."""
        if self._schedules.forget_while(_much, least=least):
            self.ready.clear()

    def _traced(self, inputs: Sequence[Tensor]) -> Shapes:
        """The shape of every tensor of the graph, by rule or else by running it once in torch."""
        self.graph.check(inputs)
        shapes: Shapes
        try:
            shapes = extents(self.graph, [tuple(x.shape) for x in inputs], self._types)
        except Exception:  # whatever rules or torch have against them: a run says it best
            shapes = said(inputs, lambda: reference.shapes(self._trial, inputs))
        said(inputs, lambda: checked_axes(self._normed, shapes))
        return shapes

    def plan(self, batch: int) -> Plan:
        """The plan of batches, if such a batch about fills its lanes."""
        if batch > 3 and 4 * batch >= 3 * LANES // self._many.lanes.grid**2:
            return self._many
        return self._one if batch <= 1 else self._few

    def _planned(
        self,
        example: Sequence[Tensor],
        times: Times | None,
        rivals: Mapping[str, Callable[..., Any]],
    ) -> tuple[Plan, Plan]:
        missing = kernels.why_missing()
        why = None if missing is None else f"there are no native kernels here ({missing})"
        if not all_finite([dict(node.arrays) for node in self.graph]):
            why = "a weight is not finite"
        only = {node.call.why if node.call is not None else None for node in self.graph}
        if len(only) == 1 and None not in only:  # no run for shapes then, which the code may count
            return (self._planner.whole("torch", str(only.pop())),) * 2
        if why is not None:
            self._note(f"Everything runs in torch: {why}.")
            return self._planner.whole("torch", why), self._planner.whole("torch", why)
        if times is None:
            one, many = (self._planner.fixed(self._shapes, lanes[0]) for lanes in (ONE, MANY))
            return one, many
        plans: list[Plan] = []
        batch = images_in_a_batch(example)
        filled = tuple(lanes for lanes in MANY if lanes.group <= batch)
        for lanes, count in ((ONE, 1), (filled, batch)):
            if not lanes:  # many go as one, several at a time
                plans.append(replace(plans[0], lanes=FEW))
                continue
            images, shapes = self._repeated(example, count)
            few = self._repeated(example, FEW_IMAGES)[0] if count > FEW_IMAGES else images
            planner = replace(self._planner, graph=self._trial)
            plans.append(Tuner(planner, images, few, shapes, rivals, times).plan(lanes))
        times.keep()
        self._weights.forget_all_but(*(plan.choices for plan in plans))
        return plans[0], plans[1]

    def _repeated(self, example: Sequence[Tensor], count: int) -> tuple[Sequence[Tensor], Shapes]:
        """So many images like the example's, or the example if the model takes no such number."""
        images = [repeated(x, count) for x in example]
        try:
            return images, self._traced(images)
        except BadInput:  # the first axis of an input is not that of the images
            return list(example), self._shapes

    def _note(self, note: str) -> None:
        self._notes = (*self._notes, note)
        log.warning("%s", note)


def cores() -> int:
    """The cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def images_in_a_batch(example: Sequence[Tensor]) -> int:
    """How many images like the example's stand for a batch: fewer of large ones, at least one."""
    pixels = max(prod(x.shape[2:]) for x in example)
    return max(1, min(MANY_IMAGES, MANY_PIXELS // pixels))


def _foreign(kinds: Mapping[str, reference.Kind]) -> Mapping[str, torch.dtype]:
    """The types of the values that are tensors, but not of float32."""
    types = ((name, kind.dtype) for name, kind in kinds.items())
    return {name: dtype for name, dtype in types if dtype not in (None, torch.float32)}


def _much(schedules: Sequence[Schedule]) -> bool:
    return sum(schedule.bytes for schedule in schedules) > BYTES


def _notes(graph: Graph) -> tuple[str, ...]:
    """A line for every reason to run nodes in torch; the report names all of them."""
    named: dict[str, list[str]] = {}
    for node in graph:
        if node.call is not None:
            named.setdefault(node.call.why, []).append(repr(node.name))
    return tuple(f"{_listed(names)} in torch: {why}." for why, names in named.items())


def _listed(names: Sequence[str]) -> str:
    """Who runs: all of a few, else the first of them and how many more."""
    if len(names) == 1:
        return f"{names[0]} runs"
    if len(names) <= NAMED:
        return f"{', '.join(names[:-1])} and {names[-1]} run"
    return f"{', '.join(names[: NAMED - 1])} and {len(names) - NAMED + 1} more run"
