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

from collections.abc import Sequence
from math import prod

from torch import Tensor

from sparsepath.deploy.running.calls import Calls, Clamp
from sparsepath.deploy.running.kernels import NO_CLAMP, PANELS, Conv, Linear, Pair
from sparsepath.deploy.running.maps import Layout, Map, Plain
from sparsepath.errors import BadInput

__all__ = ["Clamp", "Program"]


class Program(Calls):
    """Calls of native kernels, built once and run on any batch, from any number of threads."""

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
            if not conv.pools or min(size) < 2 or self._wasteful(source, conv, size):
                unpooled = self.conv(source, conv, clamp=clamp, panel=panel)
                return self.max_pool(unpooled, (2, 2), stride=(2, 2), into=into)
            size, stride = (size[0] // 2, size[1] // 2), (2 * stride[0], 2 * stride[1])
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
        room = self._room(source.layout, size, stride)
        if room != source.layout:
            source = self.relayout(source, room)
        layout = room.after(size, stride)
        assert layout is not None
        return source, layout

    def _wasteful(self, source: Map, conv: Conv, size: Pair) -> bool:
        """Whether a direct convolution in squares of pixels to be pooled leaves more lanes empty.

        On a map of 4 x 4 it would take four vectors of squares in place of one of pixels.
        """
        if conv.method != "direct" or source.layout.after(size, conv.stride) is None:
            return False
        stride = (2 * conv.stride[0], 2 * conv.stride[1])
        pooled = self._room(source.layout, (size[0] // 2, size[1] // 2), stride)
        return pooled.vectors(self.group) > source.layout.vectors(self.group)

    def _room(self, layout: Layout, size: Pair, stride: Pair) -> Layout:
        """The same map so laid out that the result of this size and stride fits lane by lane."""
        if layout.after(size, stride) is not None:
            return layout
        tiles = layout.before(size, stride)
        # Tiles as large as a large stride are mostly empty: one tile an image is smaller then.
        whole = Layout.of(tiles.height, tiles.width, 1)
        return min(tiles, whole, key=lambda way: way.vectors(self.group))

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
