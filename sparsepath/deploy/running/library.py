"""The native libraries, one per instruction set, and the records that they take."""

import ctypes
from ctypes import POINTER, Structure, c_char_p, c_float, c_int32, c_size_t, c_void_p
from functools import cache
from pathlib import Path
from typing import Literal, get_args

from sparsepath.errors import BadInput

ISA = Literal["avx512", "avx2", "portable"]
VERSION = 5


class CLayout(Structure):
    """sp_layout."""

    _fields_ = [(n, c_int32) for n in ("height", "width", "grid", "tile_height", "tile_width")]


class CMap(Structure):
    """sp_map."""

    _fields_ = [
        *((name, c_int32) for name in ("slot", "first", "channels", "total")),
        ("layout", CLayout),
    ]


class CCall(Structure):
    """sp_call."""

    _fields_ = [
        *((name, c_int32) for name in ("kind", "pool", "panel", "tails")),
        *((name, CMap) for name in ("source", "other", "target")),
        *((name, c_int32 * 2) for name in ("window", "stride", "padding")),
        ("count_padding", c_int32),
        *((name, c_float) for name in ("lower", "upper")),
        *((name, c_void_p) for name in ("weights", "scale", "shift")),
    ]


class CConvSpec(Structure):
    """sp_conv_spec."""

    _fields_ = [
        *((name, c_int32) for name in ("in_channels", "out_channels", "groups")),
        *((name, c_int32 * 2) for name in ("kernel", "stride", "padding", "dilation")),
        *((name, c_int32) for name in ("method", "columns", "woven")),
    ]


def load(isa: str) -> tuple[ctypes.CDLL | None, str]:
    """The library of one instruction set, or why there is none."""
    path = Path(__file__).parents[1] / f"_kernels_{isa}.so"
    if not path.exists():
        return None, "the install found no C++ compiler to build them with"
    try:
        library = ctypes.CDLL(str(path))
    except OSError as error:
        return None, f"{path.name} does not load here: {error}"
    signatures = {
        "sp_version": (c_int32, []),
        "sp_best_isa": (c_char_p, []),
        "sp_pack_conv": (c_void_p, [POINTER(CConvSpec), c_void_p, c_void_p]),
        "sp_pack_linear": (c_void_p, [c_int32, c_int32, c_void_p, c_void_p, c_int32]),
        "sp_weights_free": (None, [c_void_p]),
        "sp_weights_bytes": (c_size_t, [c_void_p]),
        "sp_engine_create": (c_void_p, [c_int32]),
        "sp_engine_free": (None, [c_void_p]),
        "sp_workspace": (c_size_t, [c_void_p, c_int32, c_int32, c_int32]),
        "sp_run": (
            c_int32,
            [c_void_p, c_void_p, c_int32, POINTER(c_void_p), c_int32, c_void_p],
        ),
    }
    for name, (result, arguments) in signatures.items():
        function = getattr(library, name)
        function.restype, function.argtypes = result, arguments
    if library.sp_version() != VERSION:
        return None, f"{path.name} was built from other sources; install sparsepath again"
    return library, ""


# The portable library runs everywhere: it packs the weights and knows what this machine can run.
_LIBRARY, _MISSING = load("portable")


def why_missing() -> str | None:
    """Why the kernels cannot run here, or None if they can."""
    return _MISSING or None


def available() -> bool:
    """Whether the kernels were built and can run here."""
    return _LIBRARY is not None


def library() -> ctypes.CDLL:
    """The portable library; BadInput says why there is none."""
    if _LIBRARY is None:
        raise BadInput(f"The native kernels are not available: {_MISSING}.")
    return _LIBRARY


@cache
def isas() -> tuple[ISA, ...]:
    """The instruction sets that run on this machine, best first."""
    known: tuple[ISA, ...] = get_args(ISA)
    if _LIBRARY is None:
        return ()
    best = _LIBRARY.sp_best_isa().decode()
    return tuple(isa for isa in known[known.index(best) :] if load(isa)[0] is not None)
