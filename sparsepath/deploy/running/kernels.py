"""The native kernels, where the install could build them: packed weights and engines.

`native/sparsepath.h` is the interface; `program.py` builds the calls.
"""

import ctypes
import math
import os
from collections.abc import Sequence
from ctypes import c_int32
from typing import Literal, get_args

import torch
from torch import Tensor

from sparsepath.deploy.running.library import (
    ISA,
    CConvSpec,
    available,
    isas,
    library,
    load,
    why_missing,
)
from sparsepath.errors import BadInput, checked_count

__all__ = [
    "ISA", "NO_CLAMP", "PANELS", "RELU", "RELU6", "Conv", "Engine", "Linear", "Method", "Pair",
    "available", "isas", "library", "why_missing",
]  # fmt: skip

WEAVES = (0, 2, 4)
Method = Literal["direct", "winograd2", "winograd4", "depthwise", "rows"]
Pair = tuple[int, int]
PANELS = (0, 1, 2, 3, 4)  # 0 lets the kernel choose
MOST_THREADS = 1024
# Winograd takes all channels at once and names each in 16 bits (native/pack.h).
MOST_CHANNELS = 65535
# Forces the instruction set of every engine that does not ask for one itself.
ISA_VARIABLE = "SPARSEPATH_ISA"
NO_CLAMP = (-math.inf, math.inf)
RELU = (0.0, math.inf)
RELU6 = (0.0, 6.0)


def usual_isa() -> str:
    """The instruction set of engines that are not told otherwise."""
    return os.environ.get(ISA_VARIABLE) or isas()[0]


class Engine:
    """Threads and an instruction set; it runs one program at a time."""

    def __init__(self, threads: int = 1, *, isa: ISA | None = None) -> None:
        """Start the threads; without `isa` it is the best one here."""
        self._handle: int | None = None
        if checked_count("threads", threads) > MOST_THREADS:
            raise BadInput(f"threads must be at most {MOST_THREADS}, not {threads}.")
        library()
        wanted = isa or usual_isa()
        if wanted not in isas():
            raise BadInput(
                f"This machine does not run the instruction set {wanted!r}; it runs {isas()}."
            )
        loaded, _ = load(wanted)
        assert loaded is not None
        self.library = loaded
        self._handle = loaded.sp_engine_create(threads)
        if not self._handle:
            raise BadInput(f"The system does not give {threads} threads; ask for fewer.")
        self.threads, self.isa = threads, wanted

    @property
    def handle(self) -> int:
        """The engine on the native side."""
        assert self._handle is not None
        return self._handle

    def __del__(self) -> None:
        if getattr(self, "_handle", None):
            self.library.sp_engine_free(self._handle)


class _Packed:
    """Weights in the form that the kernels read; immutable, shared by any number of engines."""

    reach: tuple[float, float]
    """how much larger than its inputs an output can be: so many times, and so much more"""
    before: tuple[float, float] = (0.0, 0.0)
    """the same of sums that the model makes and the kernels do not (graph.py)"""

    def __init__(self, weight: Tensor) -> None:
        self._handle: int | None = None
        self._library = library()
        self.kept = int(weight.count_nonzero())

    @property
    def handle(self) -> int:
        """The packed weights on the native side."""
        assert self._handle is not None
        return self._handle

    def _keep(self, handle: int | None) -> None:
        if not handle:
            raise BadInput(f"There is not enough memory to pack {self.kept} weights.")
        self._handle = handle

    @property
    def bytes(self) -> int:
        """How much memory the packed form takes."""
        return int(self._library.sp_weights_bytes(self._handle))

    def __del__(self) -> None:
        if getattr(self, "_handle", None):
            self._library.sp_weights_free(self._handle)


class Conv(_Packed):
    """The packed weights of a convolution, and the arithmetic that runs it."""

    def __init__(
        self,
        weight: Tensor,
        bias: Tensor | None = None,
        *,
        stride: Pair = (1, 1),
        padding: Pair = (0, 0),
        dilation: Pair = (1, 1),
        groups: int = 1,
        method: Method = "direct",
        columns: int = 0,
        woven: int = 0,
    ) -> None:
        """Pack weights of the shape (out, in / groups, height, width).

        A direct convolution takes `columns` (channel and tap) at a time, or as many as it likes.
        Winograd of 3 x 3 kernels takes 4 `woven` slices of one vector of tiles at a time, 2 of
        two, or one of more.
        """
        super().__init__(weight)
        weight, bias = _plain("weight", weight, 4), _plain_bias(bias, len(weight))
        self.out_channels, self.in_channels = len(weight), weight.shape[1] * groups
        self.kernel: Pair = (weight.shape[2], weight.shape[3])
        self.stride, self.padding, self.dilation, self.groups = stride, padding, dilation, groups
        self.method: Method = method
        if woven not in WEAVES:
            raise BadInput(f"woven must be one of {WEAVES}, not {woven!r}.")
        self._check()
        spec = CConvSpec(self.in_channels, self.out_channels, groups)
        for name in ("kernel", "stride", "padding", "dilation"):
            setattr(spec, name, (c_int32 * 2)(*getattr(self, name)))
        spec.method, spec.columns = get_args(Method).index(method), columns
        spec.woven = woven
        self.reach = _reach(weight, bias)
        self._keep(
            self._library.sp_pack_conv(ctypes.byref(spec), weight.data_ptr(), bias.data_ptr())
        )

    def _check(self) -> None:
        if self.groups < 1 or self.out_channels % self.groups:
            raise BadInput(f"{self.out_channels} filters do not divide into {self.groups} groups.")
        if min(*self.stride, *self.dilation) < 1 or min(self.padding) < 0:
            raise BadInput(
                f"stride and dilation must be at least 1 and padding 0, not "
                f"{self.stride}, {self.dilation} and {self.padding}."
            )
        if self.method not in self.methods(self.kernel, self.stride, self.dilation, self.shape):
            raise BadInput(
                f"{self.method!r} does not fit a {self.kernel} kernel of stride {self.stride}, "
                f"dilation {self.dilation} and {self.groups} groups; use 'direct'."
            )

    @property
    def shape(self) -> tuple[int, int, int]:
        """Input channels, output channels and groups."""
        return self.in_channels, self.out_channels, self.groups

    @property
    def pools(self) -> bool:
        """Whether the kernel can take the maximum over 2 x 2 pixels on its way out."""
        if self.method in ("depthwise", "rows"):
            return False
        return self.method == "direct" or self.kernel == (3, 3)

    @property
    def pointwise(self) -> bool:
        """Whether each pixel is made of the pixel at its own place."""
        return (self.kernel, self.stride, self.padding) == ((1, 1), (1, 1), (0, 0))

    @staticmethod
    def methods(
        kernel: Pair, stride: Pair, dilation: Pair, shape: tuple[int, int, int]
    ) -> tuple[Method, ...]:
        """The methods that fit such a layer; `shape` is input channels, output channels, groups."""
        in_channels, _, groups = shape
        if groups > 1:
            return ("depthwise", "direct") if groups == in_channels else ("direct",)
        if stride == dilation == (1, 1) and in_channels <= MOST_CHANNELS:
            if kernel == (3, 3):
                return ("winograd4", "winograd2", "direct", "rows")
            if kernel in ((1, 3), (3, 1)):
                return ("winograd4", "direct", "rows")
        return ("direct", "rows")

    def size_after(self, height: int, width: int) -> Pair:
        """The height and width of the result."""
        after = lengths_after(
            (height, width), self.kernel, self.stride, self.padding, self.dilation
        )
        if min(after) < 1:
            raise BadInput(
                f"A {self.kernel} kernel does not fit into a {height} x {width} map "
                f"padded by {self.padding}."
            )
        return after[0], after[1]


class Linear(_Packed):
    """The packed weights of a linear layer."""

    def __init__(self, weight: Tensor, bias: Tensor | None = None, *, few: bool = False) -> None:
        """Pack weights of the shape (out, in), for batches or for `few` images at a time."""
        super().__init__(weight)
        weight, bias = _plain("weight", weight, 2), _plain_bias(bias, len(weight))
        self.out_channels, self.in_channels = weight.shape
        self.reach = _reach(weight, bias)
        method = get_args(Method).index("rows" if few else "direct")
        self._keep(
            self._library.sp_pack_linear(*weight.shape, weight.data_ptr(), bias.data_ptr(), method)
        )


def lengths_after(
    lengths: Sequence[int],
    kernel: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
) -> tuple[int, ...]:
    """What a convolution leaves of each axis."""
    return tuple(
        (length + 2 * pad - reach * (taps - 1) - 1) // step + 1
        for length, taps, step, pad, reach in zip(
            lengths, kernel, stride, padding, dilation, strict=True
        )
    )


def _plain(name: str, tensor: Tensor, dimensions: int) -> Tensor:
    """`tensor` as contiguous float32 on the CPU."""
    if tensor.ndim != dimensions or 0 in tensor.shape:
        raise BadInput(
            f"{name} must have {dimensions} dimensions, none of them empty, "
            f"not the shape {tuple(tensor.shape)}."
        )
    return tensor.detach().to("cpu", torch.float32).contiguous()


def _reach(weight: Tensor, bias: Tensor) -> tuple[float, float]:
    gain = torch.linalg.vector_norm(weight.flatten(1), 1, dim=1).max().item()
    return gain, bias.abs().max().item()


def _plain_bias(bias: Tensor | None, length: int) -> Tensor:
    if bias is None:
        return torch.zeros(length, dtype=torch.float32, device="cpu")
    bias = _plain("bias", bias, 1)
    if len(bias) != length:
        raise BadInput(f"bias must have one value per filter ({length}), not {len(bias)}.")
    return bias
