"""An array on disk: its blocks that are not zero, and where they are, in the fewest bytes.

Where they are is written as a mask, one bit for each block, or as gaps: for each kept block the
number of dropped ones before it, in codes of 4 or 8 bits of which the largest says only that so
many more are dropped. At 90 % sparsity gaps take half a bit for each block.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy
import torch
from numpy.typing import NDArray
from torch import Tensor

from sparsepath.errors import BadInput

DENSE, MASK = "dense", "mask"
GAPS = {"gaps4": 4, "gaps8": 8}
WAYS = (DENSE, MASK, *GAPS)


@dataclass(frozen=True, eq=False)
class Packed:
    """An array's kept blocks of `block` neighbours each, and where they are."""

    how: str
    block: int
    values: Tensor
    where: Tensor | None = None

    @property
    def nbytes(self) -> int:
        """What it takes on disk."""
        return self.values.nbytes + (0 if self.where is None else self.where.nbytes)


def pack(array: Tensor) -> Packed:
    """The array in the way that takes the fewest bytes; every zero becomes +0."""
    array = array.detach().cpu().contiguous()
    if not array.is_floating_point() or array.numel() == 0:
        return Packed(DENSE, 1, array)
    plain = torch.where(array == 0, torch.zeros_like(array), array)
    best = Packed(DENSE, 1, plain)
    for block in sorted({math.prod(array.shape[cut:]) for cut in range(array.dim() + 1)}):
        rows = plain.reshape(-1, block)
        alive = (rows != 0).any(1)
        values = rows[alive].flatten()
        if values.nbytes < best.nbytes:
            ways = [Packed(how, block, values, _written(how, alive)) for how in (MASK, *GAPS)]
            best = min((best, *ways), key=lambda way: way.nbytes)
    return best


def unpack(packed: Packed, shape: Sequence[int], dtype: torch.dtype) -> Tensor:
    """The array again, bit for bit, or a sentence why its parts do not fit together."""
    values, where = packed.values, packed.where
    if values.dtype != dtype:
        raise BadInput(f"its values are {values.dtype}, not {dtype}")
    count = math.prod(shape)
    if packed.how == DENSE:
        if tuple(values.shape) != tuple(shape):
            raise BadInput(f"its shape is {tuple(values.shape)}, not {tuple(shape)}")
        return values.clone()
    if where is None or where.dtype != torch.uint8 or where.dim() != 1 or values.dim() != 1:
        raise BadInput("its positions are missing")
    if packed.block < 1 or count % packed.block:
        raise BadInput(f"blocks of {packed.block} do not divide {count} weights")
    kept = _read(packed.how, where, count // packed.block)
    if len(kept) * packed.block != len(values):
        raise BadInput(f"{len(kept)} blocks of {packed.block} are not {len(values)} values")
    rows = torch.zeros(count // packed.block, packed.block, dtype=dtype)
    rows[torch.from_numpy(kept)] = values.reshape(-1, packed.block)
    return rows.reshape(tuple(shape))


def bits(mask: Tensor) -> Tensor:
    """Booleans as bytes, the first in the lowest bit."""
    return torch.from_numpy(numpy.packbits(mask.flatten().cpu().numpy(), bitorder="little"))


def booleans(where: Tensor, count: int) -> Tensor:
    """The first `count` bits of bytes; all others must be zero."""
    flags = numpy.unpackbits(where.numpy(), bitorder="little")
    if len(where) != -(-count // 8) or flags[count:].any():
        raise BadInput(f"its mask has {len(where)} bytes, which are not {count} bits")
    return torch.from_numpy(flags[:count].astype(bool))


def _written(how: str, alive: Tensor) -> Tensor:
    if how == MASK:
        return bits(alive)
    more = (1 << GAPS[how]) - 1
    gaps = numpy.diff(numpy.flatnonzero(alive.numpy()), prepend=-1) - 1
    ends = numpy.cumsum(gaps // more + 1)
    codes = numpy.full(int(ends[-1]) if len(ends) else 0, more, numpy.uint8)
    codes[ends - 1] = gaps % more
    if GAPS[how] == 4:
        even = numpy.append(codes, numpy.full(len(codes) % 2, more, numpy.uint8))
        return torch.from_numpy(even[::2] | (even[1::2] << numpy.uint8(4)))
    return torch.from_numpy(codes)


def _read(how: str, where: Tensor, count: int) -> NDArray[numpy.int64]:
    """The numbers of the kept blocks among `count`."""
    if how == MASK:
        return numpy.flatnonzero(booleans(where, count).numpy())
    more = (1 << GAPS[how]) - 1
    codes = where.numpy().astype(numpy.int64)
    if GAPS[how] == 4:
        codes = numpy.stack((codes & more, codes >> 4), 1).flatten()
    kept = numpy.cumsum(codes + (codes < more))[codes < more] - 1
    if len(kept) and kept[-1] >= count:
        raise BadInput(f"it keeps block {kept[-1]} of {count}")
    return kept
