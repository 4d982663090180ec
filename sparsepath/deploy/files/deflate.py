"""Bytes in what their entropy asks for: raw deflate, and back to a size that is known before."""

import zlib

import numpy
import torch
from torch import Tensor

from sparsepath.errors import BadInput

# Naming the size in the manifest takes some bytes of its own.
WORTH = 24
# More effort takes many times as long and finds 1 % at best.
LEVEL = 6
# Codes of weights repeat by chance only: often their frequencies alone say more. Quick ones first.
STRATEGIES = (zlib.Z_HUFFMAN_ONLY, zlib.Z_RLE, zlib.Z_DEFAULT_STRATEGY)
# What is longer is judged by so many pieces of such a length: looking for repeats takes long.
PIECES, PIECE = 4, 1 << 14


def deflated(tensor: Tensor) -> Tensor | None:
    """A tensor's bytes as the smallest raw deflate stream, or None where that does not pay."""
    content = tensor.contiguous().flatten().view(torch.uint8).numpy().tobytes()
    strategies = list(STRATEGIES)
    if len(content) > 2 * PIECES * PIECE:
        sample = _sample(content)
        strategies = [min(STRATEGIES, key=lambda each: len(_stream(sample, each)))]
    best = min((_stream(content, strategy) for strategy in strategies), key=len)
    if len(best) + WORTH >= len(content):
        return None
    return torch.from_numpy(numpy.frombuffer(best, numpy.uint8).copy())


def _sample(content: bytes) -> bytes:
    """Pieces from all over it."""
    last = len(content) - PIECE
    starts = (last * number // (PIECES - 1) for number in range(PIECES))
    return b"".join(content[start : start + PIECE] for start in starts)


def _stream(content: bytes, strategy: int) -> bytes:
    coder = zlib.compressobj(LEVEL, zlib.DEFLATED, -zlib.MAX_WBITS, 9, strategy)
    return coder.compress(content) + coder.flush()


def inflated(stream: Tensor, size: int) -> Tensor:
    """The `size` bytes of a stream: no more are ever made, and a stream of others is refused."""
    if stream.dtype != torch.uint8 or stream.dim() != 1:
        raise BadInput("its deflated bytes are no bytes")
    decoder = zlib.decompressobj(-zlib.MAX_WBITS)
    try:
        # One more than wanted, never 0, which would mean without end.
        content = decoder.decompress(stream.numpy().tobytes(), size + 1)
    except zlib.error as error:
        raise BadInput(f"its deflated bytes are damaged ({error})") from error
    if len(content) != size or not decoder.eof or decoder.unused_data:
        raise BadInput(f"its deflated bytes are not {size} bytes")
    return torch.from_numpy(numpy.frombuffer(bytearray(content), numpy.uint8))
