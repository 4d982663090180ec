"""An array on disk: its blocks that are not zero, and where they are, in the fewest bytes.

Where they are is written as a mask, one bit for each block, or as gaps: for each kept block the
number of dropped ones before it, in codes of 4 or 8 bits of which the largest says only that so
many more are dropped. What the kept weights are is written in one of the `codes`, and both may be
deflated. Every way is tried.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy
import torch
from numpy.typing import NDArray
from torch import Tensor

from sparsepath.deploy.bits.levels import levels_of
from sparsepath.deploy.files import codes
from sparsepath.deploy.files.codes import PLAIN, VALUES
from sparsepath.deploy.files.deflate import deflated, inflated
from sparsepath.errors import BadInput

DENSE, MASK = "dense", "mask"
GAPS = {"gaps4": 4, "gaps8": 8}
WAYS = (DENSE, MASK, *GAPS)
WHERE = "where"
KINDS = (VALUES, WHERE, codes.SCALES, codes.CODEBOOK)
# What a tensor takes beside its bytes: its name, type, place and checksum in the header.
HEADER = 160


@dataclass(frozen=True, eq=False)
class Packed:
    """An array as tensors of a file: kept blocks of `block` neighbours each, and where they are."""

    how: str
    block: int
    code: str
    parts: Mapping[str, Tensor]
    """by kind: values, where, scales, codebook"""
    deflated: Mapping[str, int] = field(default_factory=dict)
    """of the kinds that are deflated, the bytes they stand for"""
    axis: int = 0
    """of the channels that the scales of levels belong to"""

    @property
    def nbytes(self) -> int:
        """What its tensors take on disk."""
        return sum(part.nbytes for part in self.parts.values())

    @property
    def cost(self) -> int:
        """What it takes on disk with all that names it."""
        return self.nbytes + HEADER * len(self.parts)


def pack(array: Tensor) -> Packed:
    """The array in the way that takes the fewest bytes; every zero becomes +0."""
    array = array.detach().cpu().contiguous()
    if not array.is_floating_point() or array.numel() == 0:
        return _deflated(Packed(DENSE, 1, PLAIN, {VALUES: array}))
    plain = torch.where(array == 0, torch.zeros_like(array), array)
    return min(_ways(plain), key=lambda way: way.cost)


def _ways(plain: Tensor) -> Iterator[Packed]:
    """Every block, each with its smallest code and its smallest list of positions."""
    found = levels_of(plain)
    levels, scales = (found.levels.flatten(), found.scales) if found else (None, None)
    axes = {codes.LEVELS: found.axis} if found else {}
    for code, parts in codes.ways(plain.flatten(), levels, scales):
        shaped = {VALUES: plain} if code == PLAIN else parts
        yield _deflated(Packed(DENSE, 1, code, shaped, axis=axes.get(code, 0)))
    for block in sorted({math.prod(plain.shape[cut:]) for cut in range(plain.dim() + 1)}):
        rows = plain.reshape(-1, block)
        alive = (rows != 0).any(1)
        if bool(alive.all()):
            continue
        kept = None if levels is None else levels.reshape(-1, block)[alive].flatten()
        values = min(
            (
                _deflated(Packed(DENSE, block, code, parts))
                for code, parts in codes.ways(rows[alive].flatten(), kept, scales)
            ),
            key=lambda way: way.cost,
        )
        for how in (MASK, *GAPS):
            where = _deflated(Packed(how, block, values.code, {WHERE: _written(how, alive)}))
            yield Packed(
                how,
                block,
                values.code,
                {**values.parts, **where.parts},
                {**values.deflated, **where.deflated},
                axes.get(values.code, 0),
            )


def _deflated(packed: Packed) -> Packed:
    """The same with what is worth it deflated."""
    streams = {
        kind: stream
        for kind, part in packed.parts.items()
        if kind in (VALUES, WHERE) and (stream := deflated(part)) is not None
    }
    sizes = {kind: packed.parts[kind].nbytes for kind in streams}
    return replace(packed, parts={**packed.parts, **streams}, deflated=sizes)


def unpack(packed: Packed, shape: Sequence[int], dtype: torch.dtype) -> Tensor:
    """The array again, bit for bit, or a sentence why its parts do not fit together."""
    shape, count = tuple(shape), math.prod(shape)
    wanted = codes.kinds(packed.code) | ({WHERE} if packed.how != DENSE else set())
    if set(packed.parts) != wanted:
        raise BadInput(f"it has {_listed(packed.parts)} and not {_listed(wanted)}")
    parts = _inflated(packed, count * dtype.itemsize, dtype)
    values = parts[VALUES]
    whole = packed.how == DENSE and packed.code == PLAIN and VALUES not in packed.deflated
    if tuple(values.shape) != shape if whole else values.dim() != 1:
        raise BadInput(f"its shape is {tuple(values.shape)}, not {shape if whole else 'one axis'}")
    if packed.block < 1 or count % packed.block:
        raise BadInput(f"blocks of {packed.block} do not divide {count} weights")
    blocks = count // packed.block
    kept = (
        None if packed.how == DENSE else torch.from_numpy(_read(packed.how, parts[WHERE], blocks))
    )
    number = count if kept is None else len(kept) * packed.block
    told = codes.read(packed.code, parts, number, dtype)
    if kept is None:
        array = told.clone()
    else:
        array = torch.zeros(blocks, packed.block, dtype=told.dtype)
        array[kept] = told.reshape(-1, packed.block)
    array = array.reshape(shape)
    if packed.code != codes.LEVELS:
        return array
    if dtype != torch.float32:
        raise BadInput(f"its levels are of {dtype}, not of float32")
    return codes.scaled(array, parts[codes.SCALES], axis=packed.axis)


def _inflated(packed: Packed, most: int, dtype: torch.dtype) -> dict[str, Tensor]:
    """The parts as they were before they were deflated, none larger than the array itself."""
    types = {VALUES: codes.stored(packed.code, dtype), WHERE: torch.uint8}
    parts = dict(packed.parts)
    for kind, size in packed.deflated.items():
        if kind not in types or kind not in parts:
            raise BadInput(f"its {kind[:20]!r} cannot be deflated")
        if size > most or size % types[kind].itemsize:
            raise BadInput(f"its {kind} of {size} bytes do not fit an array of {most}")
        parts[kind] = inflated(parts[kind], size).view(types[kind])
    return parts


def _listed(kinds: Iterable[str]) -> str:
    return ", ".join(sorted(kinds))


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
    if where.dtype != torch.uint8 or where.dim() != 1:
        raise BadInput("its positions are no bytes")
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
