"""The steps that compute a graph for inputs of one size: native programs and torch's operations."""

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from sparsepath.deploy.graph.graph import Graph, Value, mapped
from sparsepath.deploy.graph.inputs import batch_of
from sparsepath.deploy.graph.order import Formats, in_format
from sparsepath.deploy.running import lowerings as lowerings  # fills the table of lowerings
from sparsepath.deploy.running.choices import Choice, Lanes, Weights
from sparsepath.deploy.running.lower import Builder, Unfit
from sparsepath.deploy.running.maps import Map, Plain
from sparsepath.deploy.running.program import Program
from sparsepath.deploy.running.segments import Segment, cut, run_in_torch
from sparsepath.errors import BadInput

log = logging.getLogger("sparsepath")
Shapes = Mapping[str, tuple[int, ...]]


class _Refused(Exception):
    def __init__(self, node: str, why: str) -> None:
        super().__init__(why)
        self.node = node


@dataclass(frozen=True, eq=False)
class Native:
    """A segment as a program of native kernels."""

    segment: Segment
    program: Program
    views: tuple[tuple[int, Plain], ...]  # which of the program's outputs, and its shape
    told: list[str] = field(default_factory=list)  # said once, not at every run

    def __call__(self, *inputs: Tensor, careful: bool = False) -> tuple[Tensor, ...]:
        """The segment's outputs; by torch if the program was built for other inputs."""
        run = self.program.careful if careful else self.program.run
        try:
            given = run([x.resolve_neg().contiguous() for x in inputs])
        except BadInput as error:
            if not self.told:
                names = ", ".join(repr(node.name) for node in self.segment.nodes)
                self.told.append(f"{names} ran in torch for such inputs: {error}")
                log.warning("%s", self.told[0])
            with torch.no_grad(), torch.autocast("cpu", enabled=False):
                return run_in_torch(self.segment, *inputs)
        return tuple(
            x if x.shape[1:] == plain.shape else x.view(-1, *plain.shape)
            for x, plain in ((given[place], plain) for place, plain in self.views)
        )


@dataclass(frozen=True, eq=False)
class Schedule:
    """All steps in order, and where each node ended up."""

    graph: Graph
    steps: tuple[tuple[Segment, Callable[..., tuple[Any, ...]]], ...]
    choices: Mapping[str, Choice]
    formats: Formats
    """the order in memory of each output"""

    @property
    def plain(self) -> Callable[..., tuple[Any, ...]] | None:
        """The one native step, if its inputs and its first output are the graph's own."""
        segment, run = self.steps[0] if len(self.steps) == 1 else (None, None)
        if segment is None or not segment.native or segment.inputs != self.graph.inputs:
            return None
        name = segment.outputs[0]
        usual = self.formats.get(name) in (None, torch.contiguous_format)
        return run if usual and self.graph.output == Value(name) else None

    @property
    def bytes(self) -> int:
        """The memory that its programs work in."""
        return sum(run.program.bytes for _, run in self.steps if isinstance(run, Native))

    def profile(self, *inputs: Any) -> list[tuple[str, float]]:
        """What each call is of, and the seconds it took; torch's nodes count as one call."""
        seconds: list[tuple[str, float]] = []

        def timed(segment: Segment, run: Callable[..., Any], given: list[Any]) -> Any:
            began = time.perf_counter()
            made = run(*given)
            if isinstance(run, Native):
                plain = [x.contiguous() for x in given]
                kinds = run.program.profile(plain)
                seconds.extend(
                    (label, taken)
                    for label, (_, taken) in zip(run.program.labels, kinds, strict=True)
                )
            else:
                names = " ".join(node.name for node in segment.nodes)
                seconds.append((names, time.perf_counter() - began))
            return made

        self._run(inputs, timed)
        return seconds

    def __call__(self, *inputs: Any) -> Any:
        """What the graph gives for these inputs."""
        return self._run(inputs, lambda _, run, given: run(*given))

    def careful(self, *inputs: Any) -> Any:
        """The same, or Extreme where a sum inside our kernels could overflow."""

        def call(segment: Segment, run: Callable[..., Any], given: list[Any]) -> Any:
            return run(*given, careful=True) if isinstance(run, Native) else run(*given)

        return self._run(inputs, call)

    def _run(self, inputs: Sequence[Any], call: Callable[..., Any]) -> Any:
        values = dict(zip(self.graph.inputs, inputs, strict=True))
        for segment, run in self.steps:
            given = call(segment, run, [values[name] for name in segment.inputs])
            values.update(zip(segment.outputs, given, strict=True))
        made = {
            name: in_format(values[name], self.formats.get(name)) for name in self.graph.outputs
        }
        return mapped(
            self.graph.output, lambda leaf: made[leaf.name] if isinstance(leaf, Value) else leaf
        )


def schedule(
    graph: Graph,
    choices: Mapping[str, Choice],
    *,
    shapes: Shapes,
    lanes: Lanes,
    weights: Weights,
    threads: int,
    formats: Formats,
) -> Schedule:
    """Build every step; a node that the kernels refuse at this size goes to torch."""
    choices = dict(choices)
    images = {name: batch_of(shape) for name, shape in shapes.items()}
    for node in graph:
        met = {images[name] for name in (*node.inputs, node.name)}
        if choices[node.name].method != "torch" and len(met) > 1:
            met_in_words = " and ".join(map(str, sorted(met)))
            choices[node.name] = Choice("torch", f"it brings together {met_in_words} images")
    while True:
        for name in _trivial(cut(graph, choices, images)):
            choices[name] = Choice("torch", "it is too little to be worth the kernels' layout")
        try:
            steps = []
            for segment in cut(graph, choices, images):
                run: Callable[..., Any] = _in_torch(segment)
                if segment.native:
                    run = _native(segment, choices, shapes, lanes, weights, threads)
                steps.append((segment, run))
            return Schedule(graph, tuple(steps), choices, formats)
        except _Refused as refused:
            choices[refused.node] = Choice("torch", str(refused))


def _in_torch(segment: Segment) -> Callable[..., tuple[Any, ...]]:
    return lambda *inputs: run_in_torch(segment, *inputs)


def _native(
    segment: Segment,
    choices: Mapping[str, Choice],
    shapes: Shapes,
    lanes: Lanes,
    weights: Weights,
    threads: int,
) -> Native:
    def built(layouts: Mapping[str, Map]) -> Builder:
        builder = Builder(
            Program(threads=threads, group=lanes.group),
            lambda node, vectors: weights.of(node, choices[node.name].method, vectors),
            grid=lanes.grid,
        )
        for name in segment.inputs:
            builder.input(name, shapes[name][1:])
        builder.join(segment.nodes, layouts)
        for node in segment.nodes:
            try:
                builder.add(node)
            except (Unfit, BadInput) as error:
                raise _Refused(node.name, str(error)) from error
        return builder

    builder = built({})
    if any(node.op == "cat" for node in segment.nodes):
        builder = built(builder.maps)  # now that all layouts are known
    program = builder.program
    given: dict[int, int] = {}
    views = []
    for name in segment.outputs:
        plain = builder.plain(name)
        if plain.slot not in given:
            given[plain.slot] = len(given)
            try:
                program.output(plain)
            except BadInput as error:  # nothing but another view of an input
                raise _Refused(name, str(error)) from error
        views.append((given[plain.slot], plain))
    return Native(segment, program, tuple(views))


def _trivial(segments: Sequence[Segment]) -> tuple[str, ...]:
    """The nodes of native segments without a layer: not worth the way in and out."""
    return tuple(
        node.name
        for segment in segments
        if segment.native and not any(node.op in ("conv", "linear") for node in segment.nodes)
        for node in segment.nodes
    )
