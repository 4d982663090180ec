"""Recorded calls of native kernels, their buffers, and their runs on any batch from any thread."""

import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Sequence
from ctypes import Array, addressof, c_int32
from itertools import pairwise
from math import prod
from typing import TypeGuard

import torch
from torch import Tensor

from sparsepath.deploy.running.extremes import Bounds
from sparsepath.deploy.running.kernels import ISA, NO_CLAMP, Conv, Engine, Linear, Pair, library
from sparsepath.deploy.running.library import CCall
from sparsepath.deploy.running.maps import LANES, Layout, Map, Plain
from sparsepath.deploy.running.memory import Arena, Slot, empty
from sparsepath.deploy.running.phases import phases, visits
from sparsepath.deploy.running.stages import (
    CALL_BYTES,
    PLANS,
    Place,
    Plan,
    Stage,
    held,
    read_to_the_end,
)
from sparsepath.errors import BadInput, checked_count

KINDS = (
    "import", "export", "relayout", "conv", "max_pool", "avg_pool", "add", "affine", "mean",
    "linear",
)  # fmt: skip
Clamp = tuple[float, float]


class Calls:
    """Calls in order, with the buffers that they read and write; `Program` gives them names."""

    def __init__(self, *, threads: int = 1, isa: ISA | None = None, group: int = 16) -> None:
        """Start without calls; at most `group` images go through them at a time."""
        self._places = deque([Place(Engine(threads, isa=isa))])
        self._threads, self._isa = threads, isa
        self.group = checked_count("group", group)
        self._calls: list[CCall] = []
        self.labels: list[str] = []
        """what each call is of, for a profile"""
        self.label = ""
        self._slots: list[Slot] = []
        self._inputs: list[Plain] = []
        self._outputs: list[Plain] = []
        self._weights: list[Conv | Linear | None] = []
        self._kept: list[Tensor] = []
        self._plans: dict[int, Plan] = {}
        self._lock = threading.Lock()  # of those who change the plans

    def input(self, shape: Sequence[int]) -> Plain:
        """The next input tensor, of shape (batch, *shape)."""
        self._inputs.append(self._plain(tuple(shape)))
        return self._inputs[-1]

    def output(self, tensor: Plain) -> None:
        """Name the next output tensor."""
        if any(tensor.slot == other.slot for other in (*self._inputs, *self._outputs)):
            raise BadInput("An input, or a tensor that is an output already, cannot be an output.")
        self._outputs.append(tensor)

    def buffer(self, channels: int, layout: Layout) -> Map:
        """Room for maps, to be written part by part: a concatenation that copies nothing."""
        self._slots.append(Slot(lambda batch: layout.floats(channels, batch)))
        return Map(len(self._slots) - 1, 0, channels, channels, layout)

    @property
    def bytes(self) -> int:
        """The memory of all places where a run may happen, but for those at work."""
        return sum(place.bytes for place in tuple(self._places))

    def run(self, inputs: Sequence[Tensor]) -> list[Tensor]:
        """The outputs for these inputs, group of images by group."""
        outputs, plan, addresses = self._begun(inputs)
        place = self._taken()
        try:
            for stage in place.stages(plan):
                stage.bind(plan.ends, addresses)
                stage.run(place.engine, stage.first, stage.last)
        finally:
            self._places.append(place)
        return outputs

    def profile(
        self, inputs: Sequence[Tensor], *, clock: Callable[[], float] = time.perf_counter
    ) -> list[tuple[str, float]]:
        """The kind of each call and the seconds it took for these inputs.

        A call that runs as a tail of another took none of its own.
        """
        seconds = [0.0] * len(self._calls)

        def timed(engine: Engine, stage: Stage, index: int, after: int) -> None:
            began = clock()
            stage.run(engine, index, after)
            seconds[index] += clock() - began

        self._one_by_one(inputs, timed)
        return [(KINDS[c.kind], taken) for c, taken in zip(self._calls, seconds, strict=True)]

    def careful(self, inputs: Sequence[Tensor]) -> list[Tensor]:
        """The outputs, or Extreme where a sum on the way could overflow."""
        bounds = Bounds()

        def checked(engine: Engine, stage: Stage, index: int, after: int) -> None:
            calls, weights = self._calls[index:after], self._weights[index:after]
            address = stage.pointers[calls[0].source.slot] or 0
            bounds.check(KINDS[calls[0].kind], calls, weights, address, stage.count)
            stage.run(engine, index, after)

        return self._one_by_one(inputs, checked)

    def _one_by_one(
        self, inputs: Sequence[Tensor], run: Callable[[Engine, Stage, int, int], None]
    ) -> list[Tensor]:
        """The outputs, where `run` runs every call with its tails."""
        outputs, plan, addresses = self._begun(inputs)
        place = self._taken()
        try:
            for stage in place.stages(plan):
                stage.bind(plan.ends, addresses)
                after = stage.first
                while after < stage.last:
                    index, after = after, after + 1 + plan.calls[after].tails
                    run(place.engine, stage, index, after)
        finally:
            self._places.append(place)
        return outputs

    def _begun(self, inputs: Sequence[Tensor]) -> tuple[list[Tensor], Plan, list[int]]:
        """Empty outputs, the plan that fills them, and where inputs and outputs lie."""
        batch = self._checked(inputs)
        outputs = [empty(batch, *tensor.shape) for tensor in self._outputs]
        if any(type(x) is not Tensor for x in outputs):
            raise BadInput("Inside such a mode of torch tensors hold no numbers; leave it first.")
        addresses = [x.data_ptr() for x in (*inputs, *outputs)]
        if 0 in addresses:
            raise BadInput("An input must hold its numbers in memory; give a copy of it.")
        return outputs, self._plan(batch), addresses

    def _taken(self) -> Place:
        """A place that nobody else works at."""
        try:
            return self._places.pop()
        except IndexError:  # all are at work in other threads
            return Place(Engine(self._threads, isa=self._isa))

    def _plan(self, batch: int) -> Plan:
        plan = self._plans.get(batch)
        if plan is None or len(plan.calls) != len(self._calls):
            plan = self._planned(batch)
            with self._lock:
                if len(self._plans) >= PLANS:
                    del self._plans[next(iter(self._plans))]
                self._plans[batch] = plan
        return plan

    def _planned(self, batch: int) -> Plan:
        bound = {plain.slot for plain in (*self._inputs, *self._outputs)}
        calls = (CCall * len(self._calls))(*self._calls)
        bound |= self._chained(calls, bound)
        grids = [m.layout.grid for c in calls for m in (c.source, c.target) if m.layout.grid]
        step = LANES // min(grids, default=4) ** 2
        slots = read_to_the_end(self._slots, list(calls))
        found = phases(list(calls), slots, bound, group=self.group, step=step)
        workspace = max(
            library().sp_workspace(
                addressof(calls) + phase.first * CALL_BYTES,
                phase.last - phase.first,
                min(batch, phase.group),
                self._threads,
            )
            for phase in found
        )
        arena = Arena.of(held(slots, found, batch), bound)
        ends = tuple((x.slot, 4 * prod(x.shape)) for x in (*self._inputs, *self._outputs))
        return Plan(batch, ends, calls, slots, found, visits(found, batch), arena, workspace)

    def _chained(self, calls: Array[CCall], bound: Collection[int]) -> set[int]:
        """Let each run of 1 x 1 convolutions go with what they follow, and name the slots between.

        Nobody else may read such a slot: the call that writes it and the next one touch it alone.
        """
        between = set()
        head = 0
        for index, (before, call) in enumerate(pairwise(calls), 1):
            conv, slot = self._weights[index], call.source.slot
            touched = (self._slots[slot].first, self._slots[slot].last)
            alone = touched == (index - 1, index) and slot not in bound
            follows = alone and before.pool == 1 and bytes(before.target) == bytes(call.source)
            if follows and _direct(self._weights[head]) and _direct(conv) and conv.pointwise:
                calls[head].tails += 1
                between.add(slot)
            else:
                head = index
        return between

    def _checked(self, inputs: Sequence[Tensor]) -> int:
        if len(inputs) != len(self._inputs) or not self._outputs:
            raise BadInput(
                f"The program has {len(self._inputs)} inputs and {len(self._outputs)} outputs; "
                f"it was given {len(inputs)}."
            )
        batch = len(inputs[0])
        for plain, tensor in zip(self._inputs, inputs, strict=True):
            if tensor.shape != (batch, *plain.shape) or batch == 0:
                raise BadInput(
                    f"An input must have the shape (batch, {', '.join(map(str, plain.shape))}) "
                    f"with at least one image, not {tuple(tensor.shape)}."
                )
            if tensor.dtype != torch.float32 or tensor.device.type != "cpu":
                raise BadInput(
                    f"An input must be float32 on the CPU, not {tensor.dtype} on {tensor.device}."
                )
            if not tensor.is_contiguous() or tensor.is_neg():
                raise BadInput("An input must be contiguous; call .clone() on it.")
        return batch

    def _plain(self, shape: tuple[int, ...]) -> Plain:
        self._slots.append(Slot(lambda batch: batch * prod(shape)))
        return Plain(len(self._slots) - 1, shape)

    def _call(
        self,
        kind: str,
        source: Map | Plain,
        target: Map | Plain,
        *,
        other: Map | None = None,
        clamp: Clamp = NO_CLAMP,
        pool: int = 1,
        panel: int = 0,
        weights: Conv | Linear | None = None,
        scale: Tensor | None = None,
        shift: Tensor | None = None,
        window: Pair = (1, 1),
        stride: Pair = (1, 1),
        padding: Pair = (0, 0),
        count_padding: bool = False,
    ) -> None:
        call = CCall(kind=KINDS.index(kind), pool=pool, panel=panel)
        call.source, call.target = source.packed(), target.packed()
        call.other = (other or source).packed()
        call.window, call.stride, call.padding = (
            (c_int32 * 2)(*pair) for pair in (window, stride, padding)
        )
        call.count_padding = count_padding
        call.lower, call.upper = clamp
        call.weights = weights.handle if weights else None
        for name, values in (("scale", scale), ("shift", shift)):
            if values is not None:
                plain = values.detach().to("cpu", torch.float32).contiguous()
                self._kept.append(plain)
                setattr(call, name, plain.data_ptr())
        self._weights.append(weights)
        for tensor in (source, other, target):
            if tensor is not None:
                self._slots[tensor.slot].touch(len(self._calls))
        self._calls.append(call)
        self.labels.append(self.label)


def _direct(weights: Conv | Linear | None) -> TypeGuard[Conv]:
    return isinstance(weights, Conv) and weights.method == "direct"
