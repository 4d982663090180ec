"""Which weights are zeroed together: a partition cuts a layer's weight into blocks."""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.modules.conv import _ConvNd, _ConvTransposeNd
from torch.nn.parameter import is_lazy

from sparsepath.errors import BadInput, checked_count

# A slab of this many weights stays in a core's cache between the passes of a prox.
SLAB = 1 << 19


def norms(view: Tensor, inside: tuple[int, ...]) -> Tensor:
    """||block|| over the axes `inside`, kept as axes of length one, in float32 or better."""
    dtype = _at_least_float32(view.dtype)
    if not inside:
        return view.abs().to(dtype)
    last = len(inside)
    if view.is_contiguous() and inside == tuple(range(view.dim() - last, view.dim())):
        # One long axis is reduced several times faster than the two short ones of a kernel.
        flat: Tensor = torch.linalg.vector_norm(view.flatten(-last), dim=-1, dtype=dtype)
        return flat.reshape(*flat.shape, *[1] * last)
    norm: Tensor = torch.linalg.vector_norm(view, dim=inside, keepdim=True, dtype=dtype)
    return norm


def _at_least_float32(dtype: torch.dtype) -> torch.dtype:
    return torch.promote_types(dtype, torch.float32)


@dataclass(frozen=True)
class Blocks:
    """A weight whose axes split into `parts`: the parts numbered in `inside` lie within a block."""

    parts: tuple[tuple[int, ...], ...]
    inside: tuple[int, ...]
    inputs: int | None = None  # the part that walks along the inputs, where blocks do: N:M needs it
    cost: float | Tensor = field(default=1.0, compare=False)  # multiplies a block's penalty

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the weight itself."""
        return tuple(math.prod(lengths) for lengths in self.parts)

    @property
    def view(self) -> tuple[int, ...]:
        """The shape in which every part is an axis of its own."""
        return tuple(length for lengths in self.parts for length in lengths)

    @property
    def grid(self) -> tuple[int, ...]:
        """The shape of one number per block; it broadcasts against the view."""
        return tuple(1 if axis in self.inside else n for axis, n in enumerate(self.view))

    @property
    def count(self) -> int:
        """How many blocks there are."""
        return math.prod(self.grid)

    @property
    def size(self) -> int:
        """How many weights one block holds."""
        return math.prod(self.view[axis] for axis in self.inside)

    def of(self, weight: Tensor) -> Tensor:
        """The weight seen part by part; a copy only where its memory order leaves no other way."""
        if tuple(weight.shape) != self.shape:
            raise BadInput(
                f"These blocks cut a weight of shape {self.shape}, not {tuple(weight.shape)}."
            )
        return weight.reshape(self.view)

    def norms(self, weight: Tensor) -> Tensor:
        """||block|| for each block, on the grid: broadcasts against `of(weight)` without a copy."""
        return norms(self.of(weight), self.inside)

    def alive(self, weight: Tensor) -> Tensor:
        """Which blocks hold a non-zero weight, on the grid; exact where a norm would underflow."""
        view = self.of(weight)
        return view.any(self.inside, keepdim=True) if self.inside else view != 0

    def mask(self, alive: Tensor) -> Tensor:
        """A boolean per block as a mask that broadcasts against the weight, as small as can be."""
        expanded: list[int] = []
        merged: list[int] = []
        grid = iter(self.grid)
        for lengths in self.parts:
            ones = [next(grid) for _ in lengths]
            constant = math.prod(ones) == 1
            expanded += ones if constant else lengths
            merged.append(1 if constant else math.prod(lengths))
        return alive.expand(expanded).reshape(merged)

    def slabs(self) -> Iterator[slice]:
        """Slices of the view's first axis, each of whole blocks and small enough for the cache."""
        rows = self.view[0]
        row = max(1, math.prod(self.view[1:]))
        height = rows if 0 in self.inside else max(1, SLAB // row)
        return (slice(start, start + height) for start in range(0, rows, height))


class Part(NamedTuple):
    """A part of one axis of a weight by name: group, out, in, tap, or tile (its inner part)."""

    name: str
    length: int


Axes = list[list[Part]]


def axes_of(layer: nn.Module) -> Axes | None:
    """The axes of a layer's weight by name, or None for a layer that is not cut into blocks."""
    weight = getattr(layer, "weight", None)
    if not isinstance(weight, Tensor) or not isinstance(layer, (nn.Linear, _ConvNd)):
        return None
    if is_lazy(weight):
        raise BadInput(f"{layer} has no weights yet: run it on an example first.")
    first, second, *taps = weight.shape
    if isinstance(layer, nn.Linear):
        return [[Part("out", first)], [Part("in", second)]]
    names = ("in", "out") if isinstance(layer, _ConvTransposeNd) else ("out", "in")
    axes = [[Part(names[0], first)], [Part(names[1], second)]]
    if layer.groups > 1:
        axes[0] = [Part("group", layer.groups), Part(names[0], first // layer.groups)]
    return axes + [[Part("tap", length)] for length in taps]


def cut(axes: Axes, inside: frozenset[str]) -> Blocks:
    """Blocks that hold the parts named `inside` together."""
    merged: Axes = []
    for parts in axes:
        sides = {part.name in inside for part in parts}
        # A grouped axis stays whole where it can, so that norms broadcast against the weight
        # itself; only inputs keep their group, since N:M must not straddle two of them.
        if len(sides) == 1 and (sides == {True} or parts[-1].name != "in"):
            merged.append([Part(parts[-1].name, math.prod(part.length for part in parts))])
        else:
            merged.append(parts)
    flat = [part for parts in merged for part in parts]
    walk = [axis for axis, part in enumerate(flat) if part.name == "in" and "in" not in inside]
    return Blocks(
        parts=tuple(tuple(part.length for part in parts) for parts in merged),
        inside=tuple(axis for axis, part in enumerate(flat) if part.name in inside),
        inputs=walk[0] if walk else None,
    )


Partition = Callable[[nn.Module], Blocks | None]


@dataclass(frozen=True)
class NamedPartition:
    """A partition that puts the named parts of every weight inside a block."""

    name: str
    inside: frozenset[str]
    linear: frozenset[str]

    def __call__(self, layer: nn.Module) -> Blocks | None:
        """The blocks of a layer, or None to leave it dense."""
        axes = axes_of(layer)
        if axes is None:
            return None
        return cut(axes, self.linear if isinstance(layer, nn.Linear) else self.inside)

    def __repr__(self) -> str:
        return self.name


def spoken(function: object) -> str:
    """A partition or a cost by its name: unlike a function's repr, alike in every process."""
    return getattr(function, "__qualname__", None) or repr(function)


def _named(name: str, *inside: str, linear: tuple[str, ...] | None = None) -> NamedPartition:
    return NamedPartition(name, frozenset(inside), frozenset(inside if linear is None else linear))


kernels = _named("kernels", "tap", linear=("in",))
"""The paper's blocks: the k x k kernel of each input-output pair; a row of a linear layer."""
outputs = _named("outputs", "in", "tap")
"""All weights of one output: a filter, a unit."""
inputs = _named("inputs", "out", "tap")
"""All weights that read one input channel or unit."""
positions = _named("positions", "in")
"""One spatial tap of one filter, over all its input channels."""
columns = _named("columns", "out")
"""One input channel and tap over all filters (of its group): SSL's filter shapes."""
elements = _named("elements")
"""Every weight by itself."""


@dataclass(frozen=True)
class tiles:
    """Tiles of r outputs x c inputs with the whole kernels inside."""

    r: int
    c: int

    def __post_init__(self) -> None:
        """Refuse a tile without a size."""
        checked_count("tiles' r", self.r)
        checked_count("tiles' c", self.c)

    def __call__(self, layer: nn.Module) -> Blocks | None:
        """The blocks of a layer, or None to leave it dense."""
        axes = axes_of(layer)
        if axes is None:
            return None
        heights = {"out": self.r, "in": self.c}
        for parts in axes:
            name, length = parts[-1]
            if name in heights:
                inner = heights[name]
                if length % inner:
                    raise BadInput(
                        f"{self} does not divide {layer}: its {length} {name}puts"
                        f"{' per group' if len(parts) > 1 else ''} are no multiple of {inner}."
                    )
                parts[-1:] = [Part(name, length // inner), Part("tile", inner)]
        return cut(axes, frozenset({"tile", "tap"}))


@dataclass(frozen=True)
class weighted:
    """The blocks of another partition, each block's penalty multiplied by its cost."""

    partition: Partition
    cost: Callable[[nn.Module, Blocks], float | Tensor]

    def __call__(self, layer: nn.Module) -> Blocks | None:
        """The blocks of a layer with their costs, or None to leave it dense."""
        blocks = self.partition(layer)
        if blocks is None:
            return None
        cost = self.cost(layer, blocks)
        values = torch.as_tensor(cost, dtype=torch.float64)
        if not bool((values > 0).all() and values.isfinite().all()):
            raise BadInput(
                f"The cost of a block of {layer} must be finite and above zero, not {cost}."
            )
        if values.dim() and tuple(values.shape) != blocks.grid:
            raise BadInput(
                f"The costs of {layer} have shape {tuple(values.shape)}; "
                f"give one number or one per block, shaped {blocks.grid}."
            )
        own = torch.as_tensor(cost) if values.dim() else float(values)
        return replace(blocks, cost=own * blocks.cost)

    def __repr__(self) -> str:
        return f"weighted({spoken(self.partition)}, {spoken(self.cost)})"


def sqrt_size(layer: nn.Module, blocks: Blocks) -> float:
    """The group lasso's usual cost: the square root of how many weights a block holds."""
    return math.sqrt(blocks.size)
