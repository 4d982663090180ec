"""A program: the calls of native kernels that compute a network, with the buffers in between.

    program = Program()
    image = program.input((3, 32, 32))
    x = program.enter(image, grid=4)             # into the lane layout of native/layout.h
    x = program.conv(x, Conv(weight, bias, padding=(1, 1), method="winograd4"), clamp=RELU)
    x = program.conv(x, other, clamp=RELU, pool=True)
    program.output(program.leave(x))
    (y,) = program.run([images])                 # any batch size, from any thread

Everything is checked while the program is built; a run checks only its input tensors.
"""

import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from ctypes import Array, addressof, c_int32, c_void_p, sizeof
from dataclasses import dataclass
from functools import lru_cache
from math import prod

import torch
from torch import Tensor

from sparsepath.deploy.kernels import (
    ISA,
    NO_CLAMP,
    PANELS,
    CCall,
    Conv,
    Engine,
    Linear,
    Pair,
    library,
)
from sparsepath.deploy.maps import LANES, Layout, Map, Plain
from sparsepath.deploy.memory import Arena, Slot
from sparsepath.errors import BadInput, checked_count

KINDS = (
    "import", "export", "relayout", "conv", "max_pool", "avg_pool", "add", "affine", "mean",
    "linear",
)  # fmt: skip
Clamp = tuple[float, float]


class Place:
    """Where one run at a time happens: an engine with the memory it works in."""

    def __init__(self, engine: Engine) -> None:
        """Start with no memory."""
        self.engine = engine
        self._memory = torch.empty(0)

    def memory(self, floats: int) -> int:
        """The address of so much memory, aligned to a cache line."""
        if len(self._memory) < floats + LANES:
            self._memory = torch.empty(floats + LANES)
        return self._memory.data_ptr() + -self._memory.data_ptr() % (4 * LANES)


@dataclass(frozen=True)
class Plan:
    """A program for one size of batch: its calls, its buffers and its workspace."""

    calls: Array[CCall]
    arena: Arena
    workspace: int


class Program:
    """Calls of native kernels, built once and run on any batch, from any number of threads."""

    def __init__(self, *, threads: int = 1, isa: ISA | None = None, group: int = 16) -> None:
        """Start without calls; `group` images go through all of them at a time."""
        self._places = deque([Place(Engine(threads, isa=isa))])
        self._threads, self._isa = threads, isa
        self.group = checked_count("group", group)
        self._calls: list[CCall] = []
        self._slots: list[Slot] = []
        self._inputs: list[Plain] = []
        self._outputs: list[Plain] = []
        self._kept: list[object] = []
        self._plan = lru_cache(maxsize=8)(self._planned)

    # ---- building

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

    def enter(self, tensor: Plain, *, grid: int = 1, into: Map | None = None) -> Map:
        """Bring a plain (channels, height, width) tensor into the lane layout."""
        channels, height, width = self._three(tensor.shape)
        target = self._into(into, channels, Layout.of(height, width, grid), free=True)
        self._call("import", tensor, target)
        return target

    def leave(self, source: Map) -> Plain:
        """Take maps out of the lane layout."""
        layout = source.layout
        target = self._plain((source.channels, layout.height, layout.width))
        self._call("export", source, target)
        return target

    def relayout(self, source: Map, layout: Layout, *, into: Map | None = None) -> Map:
        """The same maps in another layout."""
        same = (layout.height, layout.width) == (source.layout.height, source.layout.width)
        if not same:
            raise BadInput(f"A relayout keeps the size of a map: {source.layout} is not {layout}.")
        target = self._into(into, source.channels, layout)
        self._call("relayout", source, target)
        return target

    def conv(
        self,
        source: Map,
        conv: Conv,
        *,
        clamp: Clamp = NO_CLAMP,
        pool: bool = False,
        panel: int = 0,
        into: Map | None = None,
    ) -> Map:
        """Convolve, clamp and, if asked to, take the maximum over 2 x 2 pixels."""
        if source.channels != conv.in_channels:
            raise BadInput(
                f"The convolution takes {conv.in_channels} channels, not {source.channels}."
            )
        if panel not in PANELS:
            raise BadInput(f"panel must be one of {PANELS}, not {panel!r}.")
        size = conv.size_after(source.layout.height, source.layout.width)
        stride = conv.stride
        if pool:
            if not conv.pools or min(size) < 2:
                unpooled = self.conv(source, conv, clamp=clamp, panel=panel)
                return self.max_pool(unpooled, (2, 2), stride=(2, 2), into=into)
            size, stride = (size[0] // 2, size[1] // 2), (2, 2)
        source, layout = self._fitted(source, size, stride)
        target = self._into(into, conv.out_channels, layout)
        self._call(
            "conv", source, target, clamp=clamp, pool=2 if pool else 1, panel=panel, weights=conv
        )
        return target

    def max_pool(
        self,
        source: Map,
        window: Pair,
        *,
        stride: Pair,
        padding: Pair = (0, 0),
        size: Pair | None = None,
        into: Map | None = None,
    ) -> Map:
        """The maximum over windows; `size` is that of the result where it is rounded up."""
        return self._pool("max_pool", source, window, stride, padding, size, into)

    def avg_pool(
        self,
        source: Map,
        window: Pair,
        *,
        stride: Pair,
        padding: Pair = (0, 0),
        count_padding: bool = True,
        into: Map | None = None,
    ) -> Map:
        """The mean over windows."""
        return self._pool(
            "avg_pool", source, window, stride, padding, None, into, count_padding=count_padding
        )

    def add(
        self, source: Map, other: Map, *, clamp: Clamp = NO_CLAMP, into: Map | None = None
    ) -> Map:
        """The sum of two maps, clamped."""
        if source.channels != other.channels:
            raise BadInput(f"Maps of {source.channels} and {other.channels} channels have no sum.")
        if source.layout != other.layout:
            other = self.relayout(other, source.layout)
        target = self._into(into, source.channels, source.layout)
        self._call("add", source, target, other=other, clamp=clamp)
        return target

    def affine(
        self,
        source: Map,
        scale: Tensor | None = None,
        shift: Tensor | None = None,
        *,
        clamp: Clamp = NO_CLAMP,
        into: Map | None = None,
    ) -> Map:
        """`scale` times the map plus `shift`, per channel, clamped; a plain copy without them."""
        target = self._into(into, source.channels, source.layout)
        for name, values in (("scale", scale), ("shift", shift)):
            if values is not None and values.shape != (source.channels,):
                raise BadInput(
                    f"{name} must have one value per channel ({source.channels}), "
                    f"not the shape {tuple(values.shape)}."
                )
        self._call("affine", source, target, clamp=clamp, scale=scale, shift=shift)
        return target

    def concat(self, sources: Sequence[Map]) -> Map:
        """The channels of all sources; see `buffer` for a concatenation without a copy."""
        target = self.buffer(sum(source.channels for source in sources), sources[0].layout)
        first = 0
        for source in sources:
            part = target.part(first, source.channels)
            if source.layout == target.layout:
                self.affine(source, into=part)
            else:
                self.relayout(source, target.layout, into=part)
            first += source.channels
        return target

    def mean(self, source: Map) -> Plain:
        """The mean of every channel's map: global average pooling."""
        target = self._plain((source.channels,))
        self._call("mean", source, target)
        return target

    def flatten(self, tensor: Plain) -> Plain:
        """The same tensor with one dimension beside the batch."""
        return Plain(tensor.slot, (prod(tensor.shape),))

    def linear(self, source: Plain, linear: Linear, *, clamp: Clamp = NO_CLAMP) -> Plain:
        """A linear layer on plain rows, clamped."""
        if source.shape != (linear.in_channels,):
            raise BadInput(
                f"The linear layer takes rows of {linear.in_channels}, not {source.shape}."
            )
        target = self._plain((linear.out_channels,))
        self._call("linear", source, target, clamp=clamp, weights=linear)
        return target

    # ---- running

    def run(self, inputs: Sequence[Tensor]) -> list[Tensor]:
        """The outputs for these inputs, group of images by group."""
        batch = self._checked(inputs)
        outputs = [torch.empty(batch, *tensor.shape) for tensor in self._outputs]
        for call in self._groups([*inputs, *outputs]):
            call(0, len(self._calls))
        return outputs

    def profile(
        self, inputs: Sequence[Tensor], *, clock: Callable[[], float] = time.perf_counter
    ) -> list[tuple[str, float]]:
        """The kind of each call and the seconds it took for these inputs."""
        batch = self._checked(inputs)
        outputs = [torch.empty(batch, *tensor.shape) for tensor in self._outputs]
        seconds = [0.0] * len(self._calls)
        for call in self._groups([*inputs, *outputs]):
            for index in range(len(self._calls)):
                began = clock()
                call(index, 1)
                seconds[index] += clock() - began
        return [(KINDS[c.kind], taken) for c, taken in zip(self._calls, seconds, strict=True)]

    def _groups(self, tensors: list[Tensor]) -> Iterator[Callable[[int, int], None]]:
        """For each group of images, what runs some of the calls on it."""
        try:
            place = self._places.pop()
        except IndexError:  # all are at work in other threads
            place = Place(Engine(self._threads, isa=self._isa))
        try:
            for begin in range(0, len(tensors[0]), self.group):
                yield self._bound(place, [t[begin : begin + self.group] for t in tensors])
        finally:
            self._places.append(place)

    def _bound(self, place: Place, tensors: list[Tensor]) -> Callable[[int, int], None]:
        """What runs some of the calls on these tensors."""
        batch = len(tensors[0])
        plan = self._plan(batch)
        arena = place.memory(plan.arena.floats + plan.workspace)
        pointers = (c_void_p * len(self._slots))(
            *(arena + 4 * offset for offset in plan.arena.offsets)
        )
        for plain, tensor in zip((*self._inputs, *self._outputs), tensors, strict=True):
            pointers[plain.slot] = tensor.data_ptr()
        engine, workspace = place.engine, arena + 4 * plan.arena.floats

        def call(first: int, count: int) -> None:
            calls = addressof(plan.calls) + first * sizeof(CCall)
            engine.library.sp_run(engine.handle, calls, count, pointers, batch, workspace)

        return call

    def _planned(self, batch: int) -> Plan:
        bound = {plain.slot for plain in (*self._inputs, *self._outputs)}
        calls = (CCall * len(self._calls))(*self._calls)
        floats = library().sp_workspace(addressof(calls), len(calls), batch, self._threads)
        return Plan(calls, Arena.of(self._slots, bound, batch), floats)

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
            if not tensor.is_contiguous():
                raise BadInput("An input must be contiguous; call .contiguous() on it.")
        return batch

    # ---- parts

    def _plain(self, shape: tuple[int, ...]) -> Plain:
        self._slots.append(Slot(lambda batch: batch * prod(shape)))
        return Plain(len(self._slots) - 1, shape)

    @staticmethod
    def _three(shape: tuple[int, ...]) -> tuple[int, int, int]:
        if len(shape) != 3 or 0 in shape:
            raise BadInput(f"Maps have the shape (channels, height, width), not {shape}.")
        return shape[0], shape[1], shape[2]

    def _into(self, into: Map | None, channels: int, layout: Layout, *, free: bool = False) -> Map:
        if into is None:
            return self.buffer(channels, layout)
        fits = (into.layout.height, into.layout.width) == (layout.height, layout.width)
        if into.channels != channels or not (fits if free else into.layout == layout):
            raise BadInput(f"{channels} channels in {layout} cannot be written into {into}.")
        return into

    def _fitted(self, source: Map, size: Pair, stride: Pair) -> tuple[Map, Layout]:
        """The source and the layout of the result; the source is laid out anew if it must be."""
        layout = source.layout.after(size, stride)
        if layout is None:
            source = self.relayout(source, source.layout.before(size, stride))
            layout = source.layout.after(size, stride)
        assert layout is not None
        return source, layout

    def _pool(
        self,
        kind: str,
        source: Map,
        window: Pair,
        stride: Pair,
        padding: Pair,
        size: Pair | None,
        into: Map | None,
        *,
        count_padding: bool = False,
    ) -> Map:
        layout = source.layout
        if size is None:
            size = (
                (layout.height + 2 * padding[0] - window[0]) // stride[0] + 1,
                (layout.width + 2 * padding[1] - window[1]) // stride[1] + 1,
            )
        if min(*window, *stride, *size) < 1 or any(
            2 * p > w or p < 0 for p, w in zip(padding, window, strict=True)
        ):
            raise BadInput(
                f"A window of {window} with stride {stride} and padding {padding} does not fit "
                f"a {layout.height} x {layout.width} map."
            )
        source, after = self._fitted(source, size, stride)
        target = self._into(into, source.channels, after)
        self._call(
            kind, source, target, window=window, stride=stride, padding=padding,
            count_padding=count_padding,
        )  # fmt: skip
        return target

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
        self._kept.append(weights)
        for tensor in (source, other, target):
            if tensor is not None:
                self._slots[tensor.slot].touch(len(self._calls))
        self._calls.append(call)
