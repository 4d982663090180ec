"""Numbers so large that a sum of their products could overflow here and not in torch."""

from collections.abc import Sequence
from ctypes import c_float
from math import inf, prod

import torch
from torch import Tensor

from sparsepath.deploy.running.kernels import Conv, Linear
from sparsepath.deploy.running.library import CCall, CMap
from sparsepath.deploy.running.maps import LANES

SUMS = ("conv", "avg_pool", "mean", "linear")
# Half of what there is: bounds are rounded too.
LIMIT = torch.finfo(torch.float32).max / 2


class Extreme(Exception):
    """A call could overflow on the way, or what it reads is not finite."""


class Bounds:
    """How large the numbers in every buffer can be at most, as far as that is known.

    A bound grows from layer to layer; only where it grows too large the buffer is looked at.
    """

    def __init__(self) -> None:
        """Nothing is known of the inputs."""
        self._known: dict[int, float] = {}

    def check(
        self,
        kind: str,
        calls: Sequence[CCall],
        weights: Sequence[Conv | Linear | None],
        address: int,
        batch: int,
    ) -> None:
        """Raise Extreme if calls that run as one could overflow on the images at this address."""
        source = calls[0].source
        bound = self._known.get(source.slot, inf)
        if kind == "add":
            bound += self._known.get(calls[0].other.slot, inf)
        elif kind == "affine" and (calls[0].scale or calls[0].shift):
            bound = inf
        elif kind in SUMS:
            bound = _after(bound, calls, weights)
            if bound == inf:
                read = _read(source, address, batch)
                bound = _after(_largest(read), calls, weights)
                # What is large may stand in a lane beyond the image, where anything may.
                if bound == inf and source.layout.grid:
                    bound = _after(_largest(_inside(read, source, batch)), calls, weights)
            if bound == inf:
                raise Extreme
        target = calls[-1].target.slot
        self._known[target] = max(bound, self._known.get(target, 0.0))


def _after(
    largest: float, calls: Sequence[CCall], weights: Sequence[Conv | Linear | None]
) -> float:
    """How large the results can be, or infinity if a sum on the way could overflow."""
    for call, packed in zip(calls, weights, strict=True):
        # Without weights it sums a window or, as a mean, the whole map.
        area = max(prod(call.window), call.source.layout.height * call.source.layout.width)
        gain, shift = packed.reach if packed else (area, 0.0)
        for times, more in ((gain, shift), packed.before if packed else (0.0, 0.0)):
            if not largest * times + more <= LIMIT:  # nor is a NaN
                return inf
        largest = largest * gain + shift if packed else largest
    return largest


def _read(source: CMap, address: int, batch: int) -> Tensor:
    """The memory of some channels as (vectors or images, channels, numbers)."""
    layout = source.layout
    lanes = LANES if layout.grid else 1
    vectors = -(-batch * layout.grid**2 // LANES) if layout.grid else batch
    shape = (vectors, source.total, layout.tile_height * layout.tile_width * lanes)
    memory = (c_float * prod(shape)).from_address(address)
    whole = torch.frombuffer(memory, dtype=torch.float32).view(shape)
    return whole[:, source.first : source.first + source.channels]


def _inside(read: Tensor, source: CMap, batch: int) -> Tensor:
    """Maps out of the lanes, without what stands over the edge or behind the last image."""
    layout = source.layout
    tile, grid = (layout.tile_height, layout.tile_width), layout.grid
    lanes = read.reshape(len(read), -1, *tile, LANES // grid**2, grid, grid)
    images = lanes.permute(0, 4, 1, 5, 2, 6, 3).flatten(0, 1).flatten(2, 3).flatten(3, 4)
    return images[:batch, :, : layout.height, : layout.width]


def _largest(numbers: Tensor) -> float:
    least, most = torch.aminmax(numbers)
    return max(-least.item(), most.item())
