"""Files that are whole or absent: every write goes to a neighbour first and is then renamed."""

import json
import os
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save

from sparsepath.errors import BadInput


def write_atomically(path: Path, write: Callable[[Path], None]) -> None:
    """Let `write` fill a temporary neighbour of `path`, then put it in place in one move."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".part")
    except OSError as error:
        raise BadInput(
            f"{str(path)!r} cannot be written ({error.strerror}); choose another place."
        ) from error
    os.close(handle)
    neighbour = Path(name)
    try:
        write(neighbour)
        with neighbour.open("rb") as file:
            os.fsync(file.fileno())
        neighbour.chmod(0o666 & ~_umask())
        neighbour.replace(path)
    except (OSError, SafetensorError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise BadInput(
            f"{str(path)!r} cannot be written ({reason}), and what was there is kept: make room or "
            "choose another place."
        ) from error
    finally:
        neighbour.unlink(missing_ok=True)


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def write_text(path: Path, text: str) -> None:
    """Write a text file atomically."""

    def write(neighbour: Path) -> None:
        neighbour.write_text(text, encoding="utf-8")

    write_atomically(path, write)


def write_json(path: Path, content: object) -> None:
    """Write JSON atomically, readable and with a stable order of keys."""
    write_text(path, json.dumps(content, indent=2, allow_nan=False) + "\n")


def read_json(path: Path) -> dict[str, Any]:
    """Read a JSON object, or say which file is damaged."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise BadInput(
            f"{str(path)!r} cannot be read as JSON ({error}); restore or delete it."
        ) from error
    if not isinstance(content, dict):
        raise BadInput(f"{str(path)!r} should hold a JSON object, not {type(content).__name__}.")
    return content


def write_tensors(
    path: Path, tensors: Mapping[str, torch.Tensor], header: Mapping[str, str]
) -> None:
    """Write tensors and a text header atomically as safetensors."""
    # Cloned, because safetensors refuses tensors that share memory, such as tied weights.
    plain = {
        name: tensor.detach().cpu().clone(memory_format=torch.contiguous_format)
        for name, tensor in tensors.items()
    }

    def write(neighbour: Path) -> None:
        # As bytes: to a file the library writes by way of one of its own, which a kill would leave.
        neighbour.write_bytes(_in_order(save(plain, dict(header))))

    write_atomically(path, write)


def _in_order(file: bytes) -> bytes:
    """The same with the texts of its header in order: the library leaves them in a random one."""
    end = 8 + int.from_bytes(file[:8], "little")
    content = json.loads(file[8:end])
    if "__metadata__" in content:
        content["__metadata__"] = dict(sorted(content["__metadata__"].items()))
    text = json.dumps(content, separators=(",", ":"), ensure_ascii=False).encode()
    assert len(text) <= end - 8, "the same content in another order is no longer"
    return file[:8] + text.ljust(end - 8) + file[end:]


def read_tensors(path: Path) -> tuple[dict[str, torch.Tensor], dict[str, str]]:
    """Read tensors and the text header of a safetensors file, or say that it is not one."""
    try:
        with safe_open(path, framework="pt") as file:
            names = list(file.keys())
            return {name: file.get_tensor(name) for name in names}, file.metadata() or {}
    except (OSError, SafetensorError) as error:
        raise _unreadable(path, error) from error


def read_header(path: Path) -> dict[str, str]:
    """Read the text header of a safetensors file without its tensors, or say that it is not one."""
    if path.exists() and not path.is_file():
        raise BadInput(f"{str(path)!r} is no file.")
    try:
        with safe_open(path, framework="pt") as file:
            return file.metadata() or {}
    except (OSError, SafetensorError) as error:
        raise _unreadable(path, error) from error


def _unreadable(path: Path, error: Exception) -> BadInput:
    what = f"{str(path)!r} cannot be read as safetensors"
    if isinstance(error, SafetensorError) and "header too" in str(error):
        # Its first eight bytes are no length: the library speaks of a header that is not there.
        return BadInput(f"{what}: it is empty, cut off or a file of another kind.")
    return BadInput(f"{what} ({error}).")


def tensor_sizes(path: Path) -> dict[str, int]:
    """How many bytes each tensor of a safetensors file takes, from its header alone."""
    read_header(path)
    with path.open("rb") as file:
        header = json.loads(file.read(int.from_bytes(file.read(8), "little")))
    header.pop("__metadata__", None)
    return {
        name: about["data_offsets"][1] - about["data_offsets"][0] for name, about in header.items()
    }
