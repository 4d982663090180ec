"""The kernels that a CPU trains by, where the install could build them, by torch's own threads."""

import ctypes
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from sparsepath.blocks import Blocks

# Below this many numbers a part of its own costs more than it saves.
GRAIN = 1 << 15


_POINTER, _NUMBER, _WORD = ctypes.c_void_p, ctypes.c_int64, ctypes.c_uint32
_POOL = [_POINTER] * 3 + [_NUMBER] * 4
_DROP = [_POINTER] * 2 + [_NUMBER] + [_WORD] * 3 + [ctypes.c_float, _NUMBER]
_ARGUMENTS: dict[str, Sequence[type]] = {
    "set_team": [_POINTER],
    "threshold_blocks": [_POINTER] * 2 + [_NUMBER] * 2 + [ctypes.c_float, ctypes.c_int, _NUMBER],
    **{f"relu_pool{way}_{bits}": _POOL for way in ("", "_back") for bits in (16, 32)},
    **{f"drop_{bits}": _DROP for bits in (16, 32)},
}
_BITS = {torch.bfloat16: 16, torch.float32: 32}


def _load() -> ctypes.CDLL | None:
    path = Path(__file__).with_name("_native.so")
    try:
        library = ctypes.CDLL(str(path))
        for name, kinds in _ARGUMENTS.items():
            kernel = getattr(library, name)
            kernel.argtypes, kernel.restype = kinds, None
        team = _teams_of_torch()
    except (OSError, AttributeError):
        # Not built, for another machine, of older sources, or torch has threads of another kind:
        # its own operations do the same.
        return None
    library.set_team(ctypes.cast(team, _POINTER))
    return library


def _teams_of_torch() -> Any:
    """What runs torch's own operations by many threads, whatever library that comes from.

    Where all libraries share one namespace the first with this name serves torch too, as Intel's
    does when it is loaded before; elsewhere it is looked for in what torch is linked with.
    """
    if sys.platform == "linux":
        try:
            return ctypes.CDLL(None).GOMP_parallel
        except AttributeError:
            pass
    return ctypes.CDLL(torch._C.__file__).GOMP_parallel


_LIBRARY = _load()
_alone = False


def _stay_alone() -> None:
    global _alone
    _alone = True


# A forked process has none of the threads that OpenMP takes to be there: it would wait for them.
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_stay_alone)


def available() -> bool:
    """Whether the kernel was built and can run here."""
    return _LIBRARY is not None


def by_address(values: Tensor) -> bool:
    """Whether a kernel may work on these: a CPU's own numbers, and nobody but autograd looks on.

    Subclasses need have no numbers of their own; what traces or transforms operations, or
    differentiates forwards, would not see what a kernel does.
    """
    return (
        _LIBRARY is not None
        and not torch.compiler.is_compiling()
        and not torch._C._is_tracing()
        and type(values) in (Tensor, torch.nn.Parameter)
        and values.device.type == "cpu"
        and not values.is_neg()
        and not values._is_zerotensor()
        and not torch._C._len_torch_dispatch_stack()
        and torch._C._functorch.peek_interpreter_stack() is None
        and not torch._C._functorch.is_legacy_batchedtensor(values)
        and torch.autograd.forward_ad._current_level < 0
    )


def threshold_blocks(V: Tensor, F: Tensor, blocks: Blocks, *, threshold: float, soft: bool) -> bool:
    """Write the hard or soft threshold of V into F; False if these tensors are not for the kernel.

    It takes float32 on the CPU, in blocks that lie in one piece.
    """
    first = len(blocks.view) - len(blocks.inside)
    in_one_piece = blocks.inside == tuple(range(first, len(blocks.view)))
    plain = all(
        by_address(tensor) and tensor.dtype == torch.float32 and tensor.is_contiguous()
        for tensor in (V, F)
    )
    if _LIBRARY is None or not plain or not in_one_piece:
        return False
    parts = _parts(blocks.count, blocks.size)
    _LIBRARY.threshold_blocks(
        V.data_ptr(), F.data_ptr(), blocks.count, blocks.size, threshold, soft, parts
    )
    return True


def takes(values: Tensor) -> bool:
    """Whether the kernels below can work on such values: rows, or maps pixel after pixel."""
    if not by_address(values) or values.dtype not in _BITS:  # some cannot be asked for their order
        return False
    if values.dim() == 4:
        return values.is_contiguous(memory_format=torch.channels_last)
    return values.dim() < 3 and values.is_contiguous()


def relu_pool(images: Tensor, pooled: Tensor, places: Tensor, *, back: bool = False) -> None:
    """Write the largest of each 2 x 2 pixels, or zero, into `pooled`, its place into `places`.

    Going `back`, `pooled` holds gradients, which are written into `images` where they belong. All
    of them are as `takes` says, places of uint8, and the sizes of images even.
    """
    count, maps, height, width = images.shape
    kernel = getattr(_LIBRARY, f"relu_pool{'_back' * back}_{_BITS[images.dtype]}")
    rows, pointers = count * height // 2, [each.data_ptr() for each in (images, pooled, places)]
    kernel(*pointers, rows, width, maps, _parts(rows, 2 * width * maps))


def drop(values: Tensor, living: Tensor, *, words: tuple[int, int], least: int, p: float) -> None:
    """Write the values that live through dropout by these two words of its key into `living`."""
    kernel, count = getattr(_LIBRARY, f"drop_{_BITS[values.dtype]}"), values.numel()
    kernel(values.data_ptr(), living.data_ptr(), count, *words, least, 1 - p, _parts(count, 1))


def _parts(count: int, size: int) -> int:
    """Into how many parts work on `count` things of `size` numbers each is worth dividing.

    More than there are threads, since some come later than others; one where there is but one.
    """
    threads = torch.get_num_threads()
    if _alone or threads == 1:
        return 1
    return max(1, min(4 * threads, count, count * size // GRAIN))
