"""A network's file, opened to be run: an artifact of ours or an ONNX model."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from sparsepath.deploy.files.artifact import load
from sparsepath.deploy.files.manifest import read_manifest
from sparsepath.deploy.files.onnx_file import count_weights, figures_in, runner, session
from sparsepath.deploy.measuring.runtimes import Run, runtimes
from sparsepath.errors import BadInput

# What onnxruntime says of a file may be long, and the file may have chosen the words.
SHOWN = 200
ZIP = b"PK\x03\x04"


@dataclass(frozen=True)
class Opened:
    """What a file holds, and its function in each runtime, made when it is asked for."""

    model: nn.Module | None
    """the network, to count by; None where only another runtime knows it"""
    weights: int | None
    """how many numbers of it are not zero"""
    figures: Mapping[str, Any]
    runs: Callable[..., Mapping[str, Run | str]]
    """from images and names, threads and tune, as `runtimes` has them"""


def opened(path: Path) -> Opened:
    """The network in a file, every byte checked as far as its format allows."""
    check_file(path)
    if path.suffix == ".onnx" or looks_like_onnx(path):
        return _onnx(path)
    artifact = load(path)
    _check_inputs(path, len(read_manifest(path).graph["inputs"]))
    return of_model(artifact.model, artifact.figures)


def check_file(path: Path) -> None:
    """Refuse what is no file, or a file that neither an artifact nor an ONNX model can be."""
    if path.is_dir():
        raise BadInput(f"{str(path)!r} is a folder: give the file of a network.")
    if not path.exists():
        raise BadInput(f"There is no file {str(path)!r}.")
    if not path.is_file():
        raise BadInput(f"{str(path)!r} is no regular file: give the file of a network.")
    if _start(path).startswith(ZIP):
        raise BadInput(
            f"{str(path)!r} is a zip file, as .pt2 and .pt are: give an artifact or ONNX model."
        )


def _check_inputs(path: Path, count: int) -> None:
    if count != 1:
        raise BadInput(
            f"{str(path)!r} takes {count} inputs, and only networks of one are measured."
        )


def of_model(model: nn.Module, figures: Mapping[str, Any] | None = None) -> Opened:
    """A network that torch has already."""

    def runs(images: Tensor, **choices: Any) -> Mapping[str, Run | str]:
        return runtimes(model, images, **choices)

    return Opened(model, living(model), figures or {}, runs)


def living(model: nn.Module) -> int:
    """How many of a model's parameters are not zero."""
    return sum(int((weight != 0).sum()) for weight in model.parameters())


def looks_like_onnx(path: Path) -> bool:
    """Whether it begins as a model of ONNX does, and not with the header of safetensors."""
    start = _start(path)
    return start[:1] == b"\x08" and start[8:] != b"{"


def _start(path: Path) -> bytes:
    """As many bytes as tell formats apart; none of a file that cannot be read."""
    try:
        with path.open("rb") as file:
            return file.read(9)
    except OSError:
        return b""


def _onnx(path: Path) -> Opened:
    try:
        content = path.read_bytes()
    except OSError as error:
        raise BadInput(f"{str(path)!r} cannot be read ({error.strerror}).") from error
    try:
        read = session(content)
    except BadInput:
        raise
    except Exception as error:  # whatever a damaged or foreign file makes the parser say
        line = (str(error).splitlines() or [""])[0][:SHOWN]
        raise BadInput(f"{str(path)!r} is no ONNX model that runs here: {line}") from error

    _check_inputs(path, len(read.get_inputs()))

    def runs(images: Tensor, *, threads: int = 1, **_: Any) -> Mapping[str, Run | str]:
        # The file is no graph of ours: its own runtime alone knows it.
        return {"onnxruntime": runner(session(content, threads=threads))}

    return Opened(None, count_weights(content), figures_in(read), runs)
