"""The core's one compiled kernel, where the install could build it: a fused block threshold."""

import ctypes
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import torch
from torch import Tensor

from sparsepath.blocks import Blocks

# Below this many weights a thread of its own costs more than it saves.
GRAIN = 1 << 20


def _load() -> ctypes.CDLL | None:
    path = Path(__file__).with_name("_native.so")
    try:
        library = ctypes.CDLL(str(path))
    except OSError:  # not built, or for another machine: torch's own operations do the same
        return None
    pointer, number = ctypes.c_void_p, ctypes.c_int64
    library.threshold_blocks.argtypes = [
        pointer,
        pointer,
        number,
        number,
        ctypes.c_float,
        ctypes.c_int,
    ]
    library.threshold_blocks.restype = None
    return library


_LIBRARY = _load()


def available() -> bool:
    """Whether the kernel was built and can run here."""
    return _LIBRARY is not None


def threshold_blocks(V: Tensor, F: Tensor, blocks: Blocks, *, threshold: float, soft: bool) -> bool:
    """Write the hard or soft threshold of V into F; False if these tensors are not for the kernel.

    It takes float32 on the CPU, in blocks that lie in one piece.
    """
    first = len(blocks.view) - len(blocks.inside)
    in_one_piece = blocks.inside == tuple(range(first, len(blocks.view)))
    plain = all(
        tensor.device.type == "cpu" and tensor.dtype == torch.float32 and tensor.is_contiguous()
        for tensor in (V, F)
    )
    if _LIBRARY is None or not plain or not in_one_piece:
        return False
    kernel, count, size = _LIBRARY.threshold_blocks, blocks.count, blocks.size
    parts = max(1, min(torch.get_num_threads(), count, count * size // GRAIN))
    edges = [count * part // parts for part in range(parts + 1)]

    def run(part: int) -> None:
        begin, end = edges[part], edges[part + 1]
        offset = begin * size * V.element_size()
        kernel(V.data_ptr() + offset, F.data_ptr() + offset, end - begin, size, threshold, soft)

    if parts == 1:
        run(0)
    else:
        with ThreadPoolExecutor(parts) as pool:
            list(pool.map(run, range(parts)))
    return True
