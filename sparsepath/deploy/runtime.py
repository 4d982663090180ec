"""A compiled network: called like the model, it runs every part where it is fastest."""

import logging
import os
import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from sparsepath.deploy import kernels, reference
from sparsepath.deploy.capture import capture
from sparsepath.deploy.choices import Weights
from sparsepath.deploy.dense import in_onnxruntime, in_torch
from sparsepath.deploy.extremes import Extreme
from sparsepath.deploy.fold import folded
from sparsepath.deploy.graph import Graph
from sparsepath.deploy.inputs import (
    all_finite,
    batch_of,
    checked_axes,
    checked_example,
    checked_inputs,
    checked_model,
    normed,
    repeated,
    said,
)
from sparsepath.deploy.macs import macs_in_torch
from sparsepath.deploy.maps import LANES
from sparsepath.deploy.plan import FEW, MANY, ONE, Plan, Planner
from sparsepath.deploy.rehearsal import Rehearsal
from sparsepath.deploy.report import Report
from sparsepath.deploy.schedule import Schedule, Shapes
from sparsepath.deploy.target import named
from sparsepath.deploy.tuner import Tuner
from sparsepath.deploy.tuning import Times
from sparsepath.errors import BadInput, checked_count, checked_flag

log = logging.getLogger("sparsepath")
# So many sizes of images are remembered; a runtime that meets ever new ones must not grow.
SIZES = 8
# The batch that stands for all that fill the lanes.
MANY_IMAGES = 32


def compile(
    model: nn.Module,
    example: Tensor | Sequence[Tensor],
    *,
    threads: int = 1,
    tune: bool = True,
    strict: bool = False,
    native_only: bool = False,
    cache: str | Path | None = None,
) -> "Runtime":
    """A runtime with the model's function and its present weights; see `Runtime`.

    `example` is a batch of inputs like those to come: other batch sizes, heights and widths that
    the model takes will do too. With `tune` the fastest way is measured here and kept in `cache`;
    without, a rule decides. With `strict` torch runs whatever is not finite or so large that a sum
    in our kernels could overflow, and nothing runs in onnxruntime; that it looks takes time, most
    of all for a single small image. With `native_only` no dense runtime may take
    the whole model, even if it is faster.

    It is the model as it is now, in float32 even under torch.autocast. A model that changes its
    input in place may or may not change the caller's tensor here: give it a copy if that matters.
    """
    checked_model(model)
    inputs = checked_example(example)
    checked_count("threads", threads)
    for name, flag in (("tune", tune), ("strict", strict), ("native_only", native_only)):
        checked_flag(name, flag)
    with torch.no_grad(), torch.autocast("cpu", enabled=False):
        captured = capture(model, inputs=len(inputs))
        return Runtime(
            captured,
            inputs,
            threads=threads,
            times=_times(cache, threads) if tune else None,
            strict=strict,
            native_only=native_only,
        )


class Runtime:
    """Called like the model it was compiled from, by any number of threads at once."""

    def __init__(
        self,
        captured: Graph,
        example: Sequence[Tensor],
        *,
        threads: int,
        times: Times | None,
        strict: bool,
        native_only: bool = False,
    ) -> None:
        """Plan for single images and for batches; without `times` by rule."""
        self._graph = folded(captured)
        self._types = tuple(x.dtype for x in example)
        self._strict = captured if strict else None
        threads = min(threads, cores())  # more only get in each other's way
        self._normed: Mapping[str, int] = {}
        rehearsal = Rehearsal.of(self._graph)
        self._trial = rehearsal.graph
        self._shapes = self._traced(example)
        self._normed = normed(captured, self._shapes)
        self._stateful = rehearsal.changed  # looked at now: a second run may undo the first
        dense = {"torch": in_torch(captured if strict else self._graph)}
        able = times is not None and not strict  # onnxruntime has its own way with NaN
        other = in_onnxruntime(self._trial, example, threads) if able else None
        if other is not None:
            dense["onnxruntime"] = other
        self._weights = Weights()
        self._planner = Planner(self._graph, self._weights, threads)
        self._schedules: OrderedDict[object, Schedule] = OrderedDict()
        self._ready: dict[tuple[torch.Size, ...], Callable[..., tuple[Any, ...]]] = {}
        self._lock = threading.Lock()
        self._notes = _notes(self._graph)
        for note in self._notes:
            log.warning("%s", note)
        self._macs = said(example, lambda: macs_in_torch(self._trial, example))
        rivals = dense if self._trial is self._graph else {"torch": in_torch(self._trial)}
        self._one, self._many = self._planned(example, times, {} if native_only else rivals)
        # Some images, but too few for the lanes of batches: as one, but sharing the weights.
        self._few = replace(self._one, lanes=FEW, threads=self._many.threads)
        used = {self._one.runner, self._many.runner}
        self._dense = {name: run for name, run in dense.items() if name in used}
        self._stateful = self._stateful or rehearsal.changed
        if not self._stateful:
            self._trial = self._graph
            with suppress(Extreme):
                self._run(example)

    def __call__(self, *inputs: Tensor) -> Any:
        """What the model gives for these inputs, in eval mode and without gradients."""
        checked_inputs(inputs, self._types)
        # A single image takes so little time that the way to its kernels must be short.
        ready = self._ready.get(tuple([x.shape for x in inputs]))
        return self._checked(inputs) if ready is None else ready(*inputs)[0]

    def __deepcopy__(self, memo: object) -> "Runtime":
        """The runtime itself: any number of callers may share it."""
        return self

    def __copy__(self) -> "Runtime":
        """The same."""
        return self

    def __reduce__(self) -> Any:
        """Refused: what a runtime holds is of this process and this machine."""
        raise BadInput(
            "A runtime cannot be pickled; save the model (sparsepath.deploy.save) and compile it "
            "where it is to run."
        )

    def _checked(self, inputs: Sequence[Tensor]) -> Any:
        with torch.no_grad(), torch.autocast("cpu", enabled=False):
            if self._strict is None:
                return self._run(inputs)
            if not self._stateful and all_finite(inputs):
                with suppress(Extreme):
                    given = self._run(inputs)
                    if all_finite(given):
                        return given
            return reference.run(self._strict, *inputs)

    def report(self) -> Report:
        """Where every node runs and why, for a batch like the example's."""
        plan = self._plan(batch_of(self._shapes[self._graph.inputs[0]]))
        choices = plan.choices
        if plan.runner == "native":
            choices = self._planner.schedule(plan, self._shapes).choices
        return Report.of(self._graph, choices, self._shapes, plan, self._notes, self._macs)

    @torch.no_grad()
    def profile(self, *inputs: Tensor) -> Mapping[str, float]:
        """The seconds of one run by node; empty if a dense runtime takes the whole.

        A 1 x 1 convolution that runs within the layer before counts there.
        """
        checked_inputs(inputs, self._types)
        batch = batch_of(inputs[0].shape)
        plan = self._plan(batch)
        if plan.runner != "native" or batch == 0:
            return {}
        seconds: dict[str, float] = {}
        for name, taken in self._schedule(plan, inputs).profile(*inputs):
            seconds[name] = seconds.get(name, 0.0) + taken
        return seconds

    def _run(self, inputs: Sequence[Tensor]) -> Any:
        batch = batch_of(inputs[0].shape)
        plan = self._plan(batch)
        if batch == 0:
            return said(inputs, lambda: reference.run(self._graph, *inputs))
        if plan.runner != "native":
            dense = self._dense[plan.runner]
            if plan.runner == "onnxruntime":  # which keeps no gradients
                self._shorten(inputs, lambda *given: (dense(*given),))
            return said(inputs, lambda: dense(*inputs))
        schedule = self._schedule(plan, inputs)
        if schedule.plain is not None:
            self._shorten(inputs, schedule.plain)
        run = schedule if self._strict is None else schedule.careful
        return said(inputs, lambda: run(*inputs))

    def _shorten(self, inputs: Sequence[Tensor], way: Callable[..., tuple[Any, ...]]) -> None:
        """Let inputs of these shapes take a way without further checks from now on."""
        if self._strict is None:
            if len(self._ready) >= SIZES:
                self._ready.clear()
            self._ready[tuple(x.shape for x in inputs)] = way

    def _schedule(self, plan: Plan, inputs: Sequence[Tensor]) -> Schedule:
        """The steps of a plan for inputs of this size, built at the first."""
        batch = batch_of(inputs[0].shape)
        alike = tuple(batch_of(x.shape) == batch for x in inputs)
        key = (plan.lanes, alike, *(tuple(x.shape[1:]) for x in inputs))
        with self._lock:
            schedule = self._schedules.get(key)
        if schedule is None:
            shapes = self._traced(inputs)
            if any(shapes[name][1:] != self._shapes[name][1:] for name in self._graph.inputs):
                plan = self._planner.fitted(plan, shapes)
            schedule = self._planner.schedule(plan, shapes)
            with self._lock:
                self._schedules[key] = schedule
                if len(self._schedules) > SIZES:
                    self._schedules.popitem(last=False)
        return schedule

    def _traced(self, inputs: Sequence[Tensor]) -> Shapes:
        """The shape of every tensor of the graph, by running it once in torch."""
        shapes: Shapes = said(inputs, lambda: reference.shapes(self._trial, inputs))
        said(inputs, lambda: checked_axes(self._normed, shapes))
        return shapes

    def _plan(self, batch: int) -> Plan:
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
        if not all_finite([dict(node.arrays) for node in self._graph]):
            why = "a weight is not finite"
        if why is not None:
            self._note(f"Everything runs in torch: {why}.")
            return self._planner.whole("torch", why), self._planner.whole("torch", why)
        if times is None:
            one, many = (self._planner.fixed(self._shapes, lanes[0]) for lanes in (ONE, MANY))
            return one, many
        plans = []
        for lanes, batch in ((ONE, 1), (MANY, MANY_IMAGES)):
            images = [repeated(x, batch) for x in example]
            try:
                shapes = self._traced(images)
            except BadInput:  # the first axis is not that of the images
                images, shapes = list(example), self._shapes
            planner = replace(self._planner, graph=self._trial)
            plans.append(Tuner(planner, images, shapes, rivals, times).plan(lanes))
        times.keep()
        self._weights.forget_all_but(*(plan.choices for plan in plans))
        return plans[0], plans[1]

    def _note(self, note: str) -> None:
        self._notes = (*self._notes, note)
        log.warning("%s", note)


def _times(cache: str | Path | None, threads: int) -> Times:
    alone = threads == 1 and torch.get_num_threads() == 1
    folder = None if cache is None else named(cache)
    if folder is not None and "\0" in str(folder):
        raise BadInput(f"A path holds no zero bytes, as {str(folder)!r} does.")
    return Times(folder, alone=alone)


def cores() -> int:
    """The cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _notes(graph: Graph) -> tuple[str, ...]:
    return tuple(
        f"{node.name!r} runs in torch: {node.call.why}." for node in graph if node.call is not None
    )
