"""The cases that every test of the core runs over, with brute-force definitions beside them."""

import itertools
from collections.abc import Callable, Hashable
from typing import NamedTuple

import numpy as np
import torch
from hypothesis import Phase, settings
from torch import Tensor, nn
from torch.nn.modules.conv import _ConvTransposeNd

from sparsepath import (
    L0,
    L1,
    L12,
    MCP,
    SCAD,
    LogSum,
    columns,
    elements,
    inputs,
    kernels,
    outputs,
    positions,
    tiles,
)
from sparsepath.blocks import Blocks, Partition
from sparsepath.penalties import Radial

PROPERTY = settings(
    derandomize=True,
    database=None,
    deadline=None,
    max_examples=15,
    phases=(Phase.explicit, Phase.generate),  # a smaller seed is no simpler tensor
)

LAYERS: dict[str, Callable[[], nn.Module]] = {
    "conv1d": lambda: nn.Conv1d(4, 6, 3),
    "conv2d": lambda: nn.Conv2d(4, 6, (2, 3)),
    "conv3d": lambda: nn.Conv3d(2, 4, 2),
    "pointwise": lambda: nn.Conv2d(4, 6, 1),
    "transposed1d": lambda: nn.ConvTranspose1d(4, 6, 3),
    "transposed2d": lambda: nn.ConvTranspose2d(4, 6, (2, 3)),
    "transposed3d": lambda: nn.ConvTranspose3d(2, 4, 2),
    "grouped": lambda: nn.Conv2d(8, 12, 2, groups=2),
    "grouped transposed": lambda: nn.ConvTranspose2d(8, 12, 2, groups=2),
    "depthwise": lambda: nn.Conv2d(4, 4, 3, groups=4),
    "depthwise doubled": lambda: nn.Conv2d(4, 8, 3, groups=4),
    "linear": lambda: nn.Linear(4, 6),
}


class Place(NamedTuple):
    """Where a weight sits; outputs and inputs numbered as the layer's own channels."""

    group: int
    out: int
    inp: int
    tap: tuple[int, ...]


def place(layer: nn.Module, index: tuple[int, ...]) -> Place:
    """The place of one weight by its index, from torch's documentation of the weight's shape."""
    first, second, *tap = index
    if isinstance(layer, nn.Linear):
        return Place(0, first, second, ())
    ins, outs = layer.in_channels // layer.groups, layer.out_channels // layer.groups
    if isinstance(layer, _ConvTransposeNd):
        group = first // ins
        return Place(group, group * outs + second, first, tuple(tap))
    group = first // outs
    return Place(group, first, group * ins + second, tuple(tap))


Rule = Callable[[Place], Hashable]
# A row of a linear layer has no taps and is the paper's block there: see `labels`.
PARTITIONS: dict[str, tuple[Partition, Rule]] = {
    "kernels": (kernels, lambda w: (w.out, w.inp)),
    "outputs": (outputs, lambda w: w.out),
    "inputs": (inputs, lambda w: w.inp),
    "positions": (positions, lambda w: (w.out, w.tap)),
    "columns": (columns, lambda w: (w.group, w.inp, w.tap)),
    "elements": (elements, lambda w: w),
    "tiles(1, 1)": (tiles(1, 1), lambda w: (w.out, w.inp)),
    "tiles(2, 2)": (tiles(2, 2), lambda w: (w.out // 2, w.inp // 2)),
}
UNDIVIDED = {("depthwise", "tiles(2, 2)"), ("depthwise doubled", "tiles(2, 2)")}
CUTS = [pair for pair in itertools.product(LAYERS, PARTITIONS) if pair not in UNDIVIDED]


def labels(layer: nn.Module, partition: str) -> dict[tuple[int, ...], Hashable]:
    """The block of every weight, by the issue's words and a plain loop."""
    rule = PARTITIONS[partition][1]
    if isinstance(layer, nn.Linear) and partition == "kernels":
        rule = PARTITIONS["outputs"][1]
    return {index: rule(place(layer, index)) for index in np.ndindex(*layer.weight.shape)}


def members(layer: nn.Module, partition: str) -> list[list[tuple[int, ...]]]:
    """The indices in each block."""
    blocks: dict[Hashable, list[tuple[int, ...]]] = {}
    for index, label in labels(layer, partition).items():
        blocks.setdefault(label, []).append(index)
    return list(blocks.values())


def cut(layer: nn.Module, partition: str) -> Blocks:
    """The blocks by the code under test."""
    blocks = PARTITIONS[partition][0](layer)
    assert blocks is not None
    return blocks


def per_weight(blocks: Blocks, grid: Tensor) -> Tensor:
    """One number per block, spread over the weights."""
    return grid.expand(blocks.view).reshape(blocks.shape)


def drawn(layer: nn.Module, seed: int, dtype: torch.dtype = torch.float64) -> Tensor:
    """A random tensor shaped like the layer's weight, its blocks of many sizes."""
    generator = torch.Generator().manual_seed(seed)
    V = torch.randn(layer.weight.shape, generator=generator, dtype=torch.float64)
    return (V * torch.rand(V.shape, generator=generator, dtype=torch.float64) ** 3).to(dtype)


def _scad(t: np.ndarray, theta: float, a: float) -> np.ndarray:
    """Fan and Li (2001), divided by their lambda."""
    middle = (2 * a * theta * t - t**2 - theta**2) / (2 * (a - 1) * theta)
    return np.where(t <= theta, t, np.where(t <= a * theta, middle, theta * (a + 1) / 2))


class Case(NamedTuple):
    """A penalty of shape theta, and the textbook's formula for one block of norm t."""

    penalty: Callable[[float], Radial]
    phi: Callable[[np.ndarray, float], np.ndarray]


PENALTIES = {
    "L1": Case(lambda theta: L1(), lambda t, theta: t),
    "L0": Case(lambda theta: L0(), lambda t, theta: np.where(t > 0, 1.0, 0.0)),
    "L12": Case(lambda theta: L12(), lambda t, theta: np.sqrt(t)),
    "MCP": Case(MCP, lambda t, theta: np.where(t < theta, t - t**2 / (2 * theta), theta / 2)),
    "SCAD": Case(SCAD, lambda t, theta: _scad(t, theta, 3.7)),
    "SCAD, steep": Case(lambda theta: SCAD(theta, 1.2), lambda t, theta: _scad(t, theta, 1.2)),
    "LogSum": Case(LogSum, lambda t, theta: np.log((theta + t) / theta)),
}
