"""The file that a network is written to: never over another by accident, and told if it fails."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from safetensors import SafetensorError

from sparsepath.errors import BadInput


def named(path: object) -> Path:
    """A path that was given as one."""
    if not isinstance(path, str | Path):
        raise BadInput(f"A file is named by a text or a path, not by {path!r}.")
    return Path(path)


def replaceable(path: Path) -> Path:
    """The path, unless a link, a pipe or a device is there: a rename would put a file instead."""
    if path.is_dir():
        raise BadInput(f"{str(path)!r} is a folder: give the name of a file.")
    if path.is_symlink():
        raise BadInput(
            f"{str(path)!r} is a link to {os.readlink(path)!r}, and stays: name the file itself."
        )
    if os.path.lexists(path) and not path.is_file():
        raise BadInput(f"{str(path)!r} is no regular file, and stays: choose another name.")
    return path


def free(path: str | Path, *, force: bool) -> Path:
    """The path, if nothing is there that would be lost."""
    path = replaceable(named(path))
    if path.exists() and not force:
        raise BadInput(f"{str(path)!r} exists: choose another name, or force=True to replace it.")
    return path


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """A full disk or a place without permission as one sentence."""
    try:
        yield
    except (OSError, SafetensorError) as error:
        raise BadInput(
            f"{str(path)!r} cannot be written ({error}); make room or choose another place."
        ) from error
