"""A compiled network: called like the model, it runs every part where it is fastest."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from sparsepath.deploy.capture.verified import verified
from sparsepath.deploy.files.target import named
from sparsepath.deploy.graph import reference
from sparsepath.deploy.graph.copies import kinds_kept
from sparsepath.deploy.graph.graph import Graph
from sparsepath.deploy.graph.inputs import (
    all_finite,
    batch_of,
    checked_example,
    checked_inputs,
    checked_model,
    in_order,
    said,
)
from sparsepath.deploy.graph.order import format_of
from sparsepath.deploy.running.extremes import Extreme
from sparsepath.deploy.running.planned import SIZES, Planned
from sparsepath.deploy.running.report import Report
from sparsepath.deploy.running.tuning import Times, at_home
from sparsepath.errors import BadInput, checked_count, checked_flag


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
    in our kernels could overflow, and nothing runs in onnxruntime or by Winograd, whose rounding of
    a pixel depends on its neighbours; that takes time, and so does looking, most of all for a
    single small image. With `native_only` no dense runtime may take
    the whole model, even if it is faster.

    It is the model as it is now, in float32 even under torch.autocast. A model that changes its
    input in place may or may not change the caller's tensor here: give it a copy if that matters.
    """
    model = checked_model(model)
    inputs = checked_example(example)
    checked_count("threads", threads)
    for name, flag in (("tune", tune), ("strict", strict), ("native_only", native_only)):
        checked_flag(name, flag)
    with torch.no_grad(), torch.autocast("cpu", enabled=False), kinds_kept(model):
        return Runtime(
            verified(model, inputs),
            inputs,
            threads=threads,
            times=_times(cache, threads) if tune else None,
            strict=strict,
            native_only=native_only,
            channels_last=any(format_of(x) == torch.channels_last for x in model.parameters()),
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
        channels_last: bool = False,
    ) -> None:
        """Plan for single images and for batches; without `times` by rule."""
        self._names = captured.inputs
        self._types = tuple(x.dtype for x in example)
        self._strict = captured if strict else None
        self._planned = Planned(
            captured,
            example,
            threads=threads,
            times=times,
            strict=strict,
            native_only=native_only,
            channels_last=channels_last,
        )
        self._ready = self._planned.ready
        if not self._planned.stateful:
            with suppress(Extreme):
                self._run(example)

    def __call__(self, *inputs: Tensor, **named: Tensor) -> Any:
        """What the model gives for these inputs, in eval mode and without gradients."""
        if named:
            inputs = in_order(self._names, inputs, named)
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
        # In a trace lengths are tensors, which must not outlive it.
        if torch._C._get_tracing_state() is not None:
            raise BadInput("A runtime cannot be traced by torch.jit; trace the model itself.")
        with torch.no_grad(), torch.autocast("cpu", enabled=False):
            if self._strict is None:
                return self._run(inputs)
            if not self._planned.stateful and all_finite(inputs):
                with suppress(Extreme):
                    given = self._run(inputs)
                    if all_finite(given):
                        return given
            whole = self._strict
            return said(inputs, lambda: reference.run(whole, *inputs))

    def report(self) -> Report:
        """Where every node runs and why, for a batch like the example's."""
        return self._planned.report()

    @torch.no_grad()
    def profile(self, *inputs: Tensor) -> Mapping[str, float]:
        """The seconds of one run by node; empty if a dense runtime takes the whole.

        A 1 x 1 convolution that runs within the layer before counts there.
        """
        checked_inputs(inputs, self._types)
        batch = batch_of(inputs[0].shape)
        plan = self._planned.plan(batch)
        if plan.runner != "native" or batch == 0:
            return {}
        seconds: dict[str, float] = {}
        run = self._planned.schedule(plan, inputs).profile
        for name, taken in said(inputs, lambda: run(*inputs)):
            seconds[name] = seconds.get(name, 0.0) + taken
        return seconds

    def _run(self, inputs: Sequence[Tensor]) -> Any:
        batch = batch_of(inputs[0].shape)
        plan = self._planned.plan(batch)
        if batch == 0:
            return said(inputs, lambda: reference.run(self._planned.graph, *inputs))
        if plan.runner != "native":
            dense = self._planned.dense[plan.runner]
            if plan.runner == "onnxruntime":  # which keeps no gradients
                self._shorten(inputs, lambda *given: (dense(*given),))
            return said(inputs, lambda: dense(*inputs))
        schedule = self._planned.schedule(plan, inputs)
        if schedule.plain is not None:
            self._shorten(inputs, schedule.plain)
        careful = self._strict is not None
        return said(inputs, lambda: self._planned.run(schedule, inputs, careful=careful))

    def _shorten(self, inputs: Sequence[Tensor], way: Callable[..., tuple[Any, ...]]) -> None:
        """Let inputs of these shapes take a way without further checks from now on."""
        if self._strict is None:
            if len(self._ready) >= SIZES:
                self._ready.clear()
            self._ready[tuple(x.shape for x in inputs)] = way


def _times(cache: str | Path | None, threads: int) -> Times:
    alone = threads == 1 and torch.get_num_threads() == 1
    folder = None if cache is None else at_home(named(cache))
    if folder is not None and "\0" in str(folder):
        raise BadInput(f"A path holds no zero bytes, as {str(folder)!r} does.")
    return Times(folder, alone=alone)
