"""A reader of CIFAR's pickled batches that can build plain values and 8-bit arrays alone."""

import io
import pickle

import numpy as np
from numpy.typing import NDArray


class _Pixels:
    """Stands in for numpy's array: numpy's own would let a pickle forge types and memory."""

    array: NDArray[np.uint8]

    def __init__(self, *placeholders: object) -> None:
        pass  # shape and bytes follow as the state

    def __setstate__(self, state: tuple[int, tuple[int, ...], "_Byte", bool, str | bytes]) -> None:
        _, shape, _, by_columns, content = state
        raw = content.encode("latin1") if isinstance(content, str) else content
        self.array = np.frombuffer(raw, np.uint8).reshape(shape, order="F" if by_columns else "C")


class _Byte:
    """Stands in for numpy's dtype and is only ever the 8-bit one."""

    def __init__(self, code: str | bytes, *flags: object) -> None:
        if code not in ("u1", b"u1"):
            raise pickle.UnpicklingError(f"it holds numbers of type {code!r}, not 8-bit pixels")

    def __setstate__(self, state: object) -> None:
        pass  # one byte has no byte order


def _encode(text: str, encoding: str | bytes) -> bytes:
    if encoding not in ("latin1", b"latin1"):
        raise pickle.UnpicklingError(f"it holds text in the encoding {encoding!r}")
    return text.encode("latin1")


_ALLOWED = {
    ("numpy", "ndarray"): _Pixels,
    ("numpy", "dtype"): _Byte,
    ("numpy.core.multiarray", "_reconstruct"): _Pixels,
    ("numpy._core.multiarray", "_reconstruct"): _Pixels,
    ("_codecs", "encode"): _encode,
}


class _Unpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> object:
        """The stand-in for one of the few names a batch may use."""
        if (module, name) not in _ALLOWED:
            raise pickle.UnpicklingError(f"it asks for {module}.{name}, which no image needs")
        return _ALLOWED[module, name]


def read_batch(raw: bytes) -> dict[str, object]:
    """The entries of one pickled CIFAR batch, its array as numpy's; damage can raise anything."""
    content = _Unpickler(io.BytesIO(raw), encoding="latin1").load()
    return {
        key.decode() if isinstance(key, bytes) else key: getattr(value, "array", value)
        for key, value in content.items()
    }
