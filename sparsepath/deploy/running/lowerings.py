"""From nodes of a graph to calls of native kernels, for maps of one size."""

from collections.abc import Mapping
from math import inf
from typing import Any

from sparsepath.deploy.graph.graph import Node
from sparsepath.deploy.graph.pools import alike
from sparsepath.deploy.running.kernels import Conv, Linear, Pair
from sparsepath.deploy.running.lower import Builder, Place, Unfit, lowers
from sparsepath.deploy.running.maps import Map, Plain
from sparsepath.deploy.running.memory import empty
from sparsepath.deploy.running.program import Clamp

CLAMPS: Mapping[str | None, Clamp] = {None: (-inf, inf), "relu": (0.0, inf), "relu6": (0.0, 6.0)}


def _clamp(node: Node) -> Clamp:
    activation = node.attributes.get("activation")
    assert activation is None or isinstance(activation, str)
    return CLAMPS[activation]


def _pair(x: Any) -> Pair:
    height, width = x
    return int(height), int(width)


def _size(place: Map) -> Pair:
    return place.layout.height, place.layout.width


@lowers("conv")
def _conv(builder: Builder, node: Node) -> Place:
    source = builder.map(node.inputs[0])
    conv = builder.weights(node, source.layout.vectors(builder.program.group))
    assert isinstance(conv, Conv)
    after = conv.size_after(*_size(source))
    pool = node.attributes.get("pool")
    clamp = _clamp(node)
    if not isinstance(pool, tuple):
        return builder.program.conv(source, conv, clamp=clamp, into=builder.into(node))
    odd = after[0] % 2 or after[1] % 2
    if not (odd and pool[1]) and min(after) >= 2:
        into = builder.into(node)
        return builder.program.conv(source, conv, clamp=clamp, pool=True, into=into)
    # Rounded up: the last windows stand over the edge.
    wide = builder.program.conv(source, conv, clamp=clamp)
    return _max_pool(builder, node, wide, (2, 2), (2, 2), (0, 0), ceil_mode=bool(pool[1]))


def _max_pool(
    builder: Builder,
    node: Node,
    source: Map,
    window: Pair,
    stride: Pair,
    padding: Pair,
    *,
    ceil_mode: bool,
) -> Map:
    size = []
    for axis, length in enumerate(_size(source)):
        room = length + 2 * padding[axis] - window[axis]
        count = (-(-room // stride[axis]) if ceil_mode else room // stride[axis]) + 1
        # No window may begin beyond the image: torch's rule.
        if ceil_mode and (count - 1) * stride[axis] >= length + padding[axis]:
            count -= 1
        size.append(count)
    if min(size) < 1:
        raise Unfit("its window is larger than the map")
    return builder.program.max_pool(
        source, window, stride=stride, padding=padding, size=_pair(size), into=builder.into(node)
    )


@lowers("max_pool")
def _lower_max_pool(builder: Builder, node: Node) -> Place:
    attributes = node.attributes
    if attributes["dilation"] != (1, 1):
        raise Unfit("its window is dilated")
    window, stride, padding = (_pair(attributes[k]) for k in ("kernel_size", "stride", "padding"))
    source = builder.map(node.inputs[0])
    ceil_mode = bool(attributes["ceil_mode"])
    return _max_pool(builder, node, source, window, stride, padding, ceil_mode=ceil_mode)


@lowers("avg_pool")
def _avg_pool(builder: Builder, node: Node) -> Place:
    attributes = node.attributes
    if attributes["ceil_mode"] or attributes["divisor_override"] is not None:
        raise Unfit("it averages in an unusual way")
    return builder.program.avg_pool(
        builder.map(node.inputs[0]),
        _pair(attributes["kernel_size"]),
        stride=_pair(attributes["stride"]),
        padding=_pair(attributes["padding"]),
        count_padding=bool(attributes["count_include_pad"]),
        into=builder.into(node),
    )


@lowers("adaptive_avg_pool", "adaptive_max_pool")
def _adaptive_pool(builder: Builder, node: Node) -> Place:
    source = builder.map(node.inputs[0])
    wanted = node.attributes["output_size"]
    assert isinstance(wanted, tuple)
    size = [now if n is None else int(str(n)) for n, now in zip(wanted, _size(source), strict=True)]
    if size == [1, 1] and node.op == "adaptive_avg_pool":
        return Plain(builder.program.mean(source).slot, (source.channels, 1, 1))
    found = [alike(now, n) for n, now in zip(size, _size(source), strict=True)]
    known = [pair for pair in found if pair is not None]
    if len(known) < len(found):
        raise Unfit("it has no windows, or they differ")
    window, stride = (_pair(numbers) for numbers in zip(*known, strict=True))
    if node.op == "adaptive_max_pool":
        return builder.program.max_pool(source, window, stride=stride, into=builder.into(node))
    return builder.program.avg_pool(source, window, stride=stride, into=builder.into(node))


@lowers("mean")
def _mean(builder: Builder, node: Node) -> Place:
    dims = node.attributes["dim"]
    assert isinstance(dims, tuple)
    if {int(str(d)) % 4 for d in dims} != {2, 3}:
        raise Unfit("it takes the mean along other axes")
    source = builder.map(node.inputs[0])
    mean = builder.program.mean(source)
    return Plain(mean.slot, (source.channels, 1, 1)) if node.attributes["keepdim"] else mean


@lowers("add")
def _add(builder: Builder, node: Node) -> Place:
    if len(node.inputs) != 2:
        raise Unfit("it adds a number")
    first, second = (builder.map(name) for name in node.inputs)
    if (first.channels, _size(first)) != (second.channels, _size(second)):
        raise Unfit("it broadcasts")
    return builder.program.add(first, second, clamp=_clamp(node), into=builder.into(node))


@lowers("affine")
def _affine(builder: Builder, node: Node) -> Place:
    scale, shift = node.arrays["scale"], node.arrays["shift"]
    source = builder.map(node.inputs[0])
    return builder.program.affine(source, scale, shift, clamp=_clamp(node), into=builder.into(node))


@lowers("relu", "relu6")
def _relu(builder: Builder, node: Node) -> Place:
    source = builder.map(node.inputs[0])
    return builder.program.affine(source, clamp=CLAMPS[node.op], into=builder.into(node))


@lowers("cat")
def _cat(builder: Builder, node: Node) -> Place:
    maps = [builder.map(name) for name in node.inputs]
    if node.attributes["dim"] not in (1, -3) or len({_size(x) for x in maps}) != 1:
        raise Unfit("it joins along another axis")
    target = builder.into(node)
    if target is None:
        return builder.program.concat(maps)
    first = 0
    for source in maps:
        part = target.part(first, source.channels)
        if source.layout != part.layout:
            builder.program.relayout(source, part.layout, into=part)
        elif source != part:  # else it was written there to begin with
            builder.program.affine(source, into=part)
        first += source.channels
    return target


@lowers("index")
def _index(builder: Builder, node: Node) -> Place:
    slices = node.attributes["slices"]
    assert isinstance(slices, tuple)
    starts = {part[:2] for part in slices if isinstance(part, tuple)}
    steps = [part[2] or 1 for part in slices if isinstance(part, tuple)]
    if len(slices) > 4 or starts != {(None, None)} or steps[:2] not in ([1, 1], [1]):
        raise Unfit("it takes other parts than every so-manieth pixel")
    source = builder.map(node.inputs[0])
    stride = _pair([*steps[2:], 1, 1][:2])
    size = _pair([-(-now // n) for n, now in zip(stride, _size(source), strict=True)])
    # Every so-manieth pixel is the largest of a window of one.
    into = builder.into(node)
    return builder.program.max_pool(source, (1, 1), stride=stride, size=size, into=into)


@lowers("pad")
def _pad(builder: Builder, node: Node) -> Place:
    room = [int(str(n)) for n in node.attributes["pad"]]  # type: ignore[union-attr]
    value = node.attributes["value"]
    if node.attributes["mode"] != "constant" or value not in (None, 0) or len(room) != 6:
        raise Unfit("it pads something else than channels by zeros")
    if any(room[:4]) or min(room) < 0:
        raise Unfit("it pads something else than channels by zeros")
    source = builder.map(node.inputs[0])
    before, after = room[4:]
    target = builder.into(node) or builder.program.buffer(
        before + source.channels + after, source.layout
    )
    builder.program.affine(source, into=target.part(before, source.channels))
    for first, count in ((0, before), (before + source.channels, after)):
        if count:  # a convolution without weights gives zeros, whatever it reads
            zeros = Conv(empty(count, source.channels, 1, 1).zero_())
            builder.program.conv(source, zeros, into=target.part(first, count))
    return target


@lowers("flatten", "reshape")
def _flatten(builder: Builder, node: Node) -> Place:
    rows = {"start_dim": 1, "end_dim": -1}
    if node.attributes != rows and node.attributes.get("shape") != (0, -1):
        raise Unfit("it does not make rows")
    return builder.program.flatten(builder.plain(node.inputs[0]))


@lowers("linear")
def _linear(builder: Builder, node: Node) -> Place:
    source, linear = builder.plain(node.inputs[0]), builder.weights(node, 1)
    assert isinstance(linear, Linear)
    if source.shape != (linear.in_channels,):
        raise Unfit("its input is no row")
    return builder.program.linear(source, linear, clamp=_clamp(node))
