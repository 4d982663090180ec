"""What an array's kept weights are, on disk: plain numbers, levels of a scale, or a codebook."""

from collections.abc import Iterator, Mapping

import numpy
import torch
from torch import Tensor

from sparsepath.deploy.bits.levels import Levels
from sparsepath.errors import BadInput

PLAIN, LEVELS = "plain", "levels"
CODEBOOKS = {f"codebook{bits}": bits for bits in range(1, 9)}
CODES = (PLAIN, LEVELS, *CODEBOOKS)
VALUES, SCALES, CODEBOOK = "values", "scales", "codebook"
Parts = Mapping[str, Tensor]
# As many weights tell that there are more than 256 different ones, mostly.
GLANCE = 4096
# By size of a number; equal bits are equal numbers, whatever they are.
BITS = {2: torch.int16, 4: torch.int32, 8: torch.int64}


def ways(kept: Tensor, levels: Tensor | None, scales: Tensor | None) -> Iterator[tuple[str, Parts]]:
    """Every code that may be the smallest, with its tensors; levels only where given."""
    found = _distinct(kept)
    # Of many weights an index never takes more than the number itself.
    if found is None or len(kept) < GLANCE:
        yield PLAIN, {VALUES: kept}
    if levels is not None and scales is not None:
        yield LEVELS, {VALUES: levels, SCALES: scales}
    if found is not None:
        book, indices = found
        least = max(1, (len(book) - 1).bit_length())
        # Indices of a byte each may deflate to less than packed ones.
        for bits in sorted({least, 8}):
            yield f"codebook{bits}", {VALUES: packed_bits(indices, bits), CODEBOOK: book}


def _distinct(kept: Tensor) -> tuple[Tensor, Tensor] | None:
    """The different numbers among some, and which of them each one is, if a byte can tell."""
    patterns = kept.view(BITS[kept.element_size()])
    if not len(kept) or len(patterns[:GLANCE].unique()) > 256:
        return None
    book, indices = patterns.unique(return_inverse=True)
    return (book.view(kept.dtype), indices) if len(book) <= 256 else None


def packed_bits(indices: Tensor, bits: int) -> Tensor:
    """Whole numbers as a stream of so many bits each, the first in the lowest bits."""
    numbers = indices.numpy().astype(numpy.uint8)[:, None]
    if bits == 8:
        return torch.from_numpy(numbers[:, 0])
    each = numpy.unpackbits(numbers, axis=1, count=bits, bitorder="little")
    return torch.from_numpy(numpy.packbits(each, bitorder="little"))


def _unpacked_bits(stream: Tensor, bits: int, count: int) -> Tensor:
    flags = numpy.unpackbits(stream.numpy(), bitorder="little")
    if flags[count * bits :].any():
        raise BadInput("its codes have bits left over")
    each = flags[: count * bits].reshape(count, bits)
    return torch.from_numpy(numpy.packbits(each, axis=1, bitorder="little")[:, 0])


def kinds(code: str) -> set[str]:
    """The tensors of a code."""
    return {VALUES, *([SCALES] if code == LEVELS else [CODEBOOK] if code in CODEBOOKS else [])}


def stored(code: str, dtype: torch.dtype) -> torch.dtype:
    """The type of a code's `values`."""
    return {PLAIN: dtype, LEVELS: torch.int8}.get(code, torch.uint8)


def read(code: str, parts: Parts, count: int, dtype: torch.dtype) -> Tensor:
    """So many kept weights, or of "levels" the levels, once their tensors are known to fit."""
    values = parts[VALUES]
    if values.dtype != stored(code, dtype):
        raise BadInput(f"its values are {values.dtype}, not {stored(code, dtype)}")
    bits = CODEBOOKS.get(code)
    wanted = count if bits is None else -(-count * bits // 8)
    if values.numel() != wanted:
        raise BadInput(f"{values.numel()} values are not {wanted}, for {count} weights")
    if bits is None:
        return values.flatten()
    book = parts[CODEBOOK]
    if book.dtype != dtype or book.dim() != 1 or not 0 < len(book) <= 1 << bits:
        raise BadInput(f"its codebook is no list of up to {1 << bits} numbers of {dtype}")
    indices = _unpacked_bits(values, bits, count).long()
    if count and int(indices.max()) >= len(book):
        raise BadInput(f"it reads number {int(indices.max())} of a codebook of {len(book)}")
    return book[indices]


def scaled(levels: Tensor, scales: Tensor, *, axis: int) -> Tensor:
    """The weights of an array of levels, once its scales are known to fit."""
    if scales.dtype != torch.float32 or scales.dim() != 1 or levels.dim() <= axis:
        raise BadInput("its scales are no list of float32")
    channels = levels.shape[axis]
    groups = len(scales) // max(1, channels)
    if axis == 0 and len(scales) not in (1, channels):
        raise BadInput(f"{len(scales)} scales do not fit {channels} slices")
    if axis == 1 and (not groups or len(scales) % channels or len(levels) % groups):
        raise BadInput(f"{len(scales)} scales do not fit {channels} channels of groups")
    if not bool((scales.isfinite() & (scales > 0)).all()):
        raise BadInput("its scales are not all finite and above zero")
    return Levels(levels, scales, axis).values
