"""A network for other programs: ONNX, torch's own .pt2, or a plain file of weights, each run once.

ONNX is written from our own graph, with batch norm folded, wherever the graph's operations have a
translation. Every length is left open, or that of the batch alone where an adaptive pool needs the
others. Torch's dynamo exporter, which needs onnxscript and keeps more of torch's detail, serves the
rest.
"""

import importlib.util
import inspect
import io
import logging
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from sparsepath.deploy.capture.capture import capture
from sparsepath.deploy.files.onnx_file import runner, session
from sparsepath.deploy.files.target import free, named, writing
from sparsepath.deploy.graph.apart import difference
from sparsepath.deploy.graph.fold import folded
from sparsepath.deploy.graph.inputs import given_tensors
from sparsepath.errors import BadInput
from sparsepath.metrics import evaluating
from sparsepath.modules import checked_module
from sparsepath.storage import write_atomically, write_tensors

TOLERANCE = 1e-4
SUFFIXES = {".onnx": "onnx", ".pt2": "pt2", ".safetensors": "state-dict"}
Run = Callable[..., Any]
Write = Callable[[Path], None]


@dataclass(frozen=True)
class Exported:
    """A file that was written and run."""

    path: Path
    format: str
    difference: float
    """max |difference| / max |output| on the example and on another size of batch"""

    def __str__(self) -> str:
        size = self.path.stat().st_size
        return f"{self.path}: {self.format}, {size:,} bytes, max |difference| {self.difference:.1e}"


def export(
    model: nn.Module,
    example: Tensor | Sequence[Tensor],
    path: str | Path,
    *,
    format: str | None = None,
    force: bool = False,
) -> Exported:
    """Write the model in eval mode as "onnx", "pt2" or "state-dict", for any size of batch.

    The format is that of the path's suffix, .onnx, .pt2 or .safetensors, which a `format` given
    may not contradict.
    The file is read back and run on the example before it takes its name; one that differs by more
    than 1e-4 of the largest output is not written.
    """
    model = checked_module("export", model)
    inputs = given_tensors(example)
    if odd := [type(x).__name__ for x in inputs if not isinstance(x, Tensor) or not x.numel()]:
        raise BadInput(f"The example must hold tensors of at least one image, not {odd[0]}.")
    path = named(path)
    format = _chosen(format, path)
    path = free(path, force=force)
    with evaluating(model):
        content, run = FORMATS[format](model, inputs)
        apart = [_apart(*_both(model, run, batch)) for batch in (inputs, _larger(model, inputs))]
    if not all(x <= TOLERANCE for x in apart):
        raise BadInput(
            f"The exported {format} differs by {max(apart):.1e} of the largest output, more than "
            f"{TOLERANCE:.0e}: nothing was written."
        )
    with writing(path):
        content(path)
    return Exported(path, format, max(apart))


def _chosen(format: str | None, path: Path) -> str:
    if format is not None and format not in FORMATS:
        raise BadInput(f"There is no format {format!r}; choose one of {', '.join(FORMATS)}.")
    told = SUFFIXES.get(path.suffix.lower())
    if format is None and told is None:
        raise BadInput(
            f"{path.name!r} does not tell its format: end it in {', '.join(SUFFIXES)}, or give "
            f"format as one of {', '.join(FORMATS)}."
        )
    if format is not None and told not in (None, format):
        raise BadInput(
            f"{path.name!r} is named as {told} and format says {format!r}: "
            "change one of them, or leave format out."
        )
    return format or str(told)


Format = Callable[[nn.Module, Sequence[Tensor]], tuple[Write, Run]]


def _both(first: Run, second: Run, batch: Sequence[Tensor]) -> tuple[Any, Any]:
    """What both give for a batch that each of them may change."""
    wanted = first(*(x.clone() for x in batch))
    try:
        return wanted, second(*(x.clone() for x in batch))
    except Exception as error:  # of another program, about a file of a user's model
        raise BadInput(
            f"The exported file cannot be run on a batch of {len(batch[0])}: {_line(error)}. "
            "Nothing was written."
        ) from error


def _larger(model: nn.Module, inputs: Sequence[Tensor]) -> Sequence[Tensor]:
    """A batch of one image more, or of twice as many if the model takes no other."""
    for more in (1, len(inputs[0])):
        batch = tuple(torch.cat((x, x[:more])) for x in inputs)
        try:
            model(*(x.clone() for x in batch))
        except Exception as error:  # whatever a user's model has against it
            refusal = error
        else:
            return batch
    raise BadInput(
        f"The model takes this example of {len(inputs[0])}, but neither one image more nor twice "
        f"as many ({_line(refusal)}): an exported file is for any size of batch."
    )


def _line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0].rstrip(".")


def _apart(wanted: Any, given: Any) -> float:
    """max |difference| / max |wanted|."""
    apart, largest = difference(wanted, given)
    return apart / (largest or 1.0)


def _bytes(content: bytes) -> Write:
    def write(neighbour: Path) -> None:
        neighbour.write_bytes(content)

    return lambda path: write_atomically(path, write)


def _onnx(model: nn.Module, inputs: Sequence[Tensor]) -> tuple[Write, Run]:
    try:
        import onnxruntime  # noqa: F401

        from sparsepath.deploy.files.onnx_graph import Inexpressible, onnx_for
    except ImportError as error:
        raise BadInput(
            f"Exporting to ONNX needs {error.name}: pip install 'sparsepath[onnx]'."
        ) from error
    for given in inputs:
        if given.is_floating_point() and given.dtype != torch.float32:
            raise BadInput(f"ONNX is exported in float32, not {given.dtype}: call float() first.")
    try:
        if odd := [x.dtype for x in inputs if not x.is_floating_point()]:
            raise Inexpressible(f"An input of {odd[0]} has no translation to ONNX")
        content = onnx_for(folded(capture(model, example=inputs)), inputs)
    except Inexpressible as error:
        content = _by_dynamo(model, inputs, str(error))
    try:
        return _bytes(content), runner(session(content))
    except BadInput:
        raise
    except Exception as error:  # whatever onnxruntime finds in a user's model
        raise BadInput(f"onnxruntime refuses the exported model: {_line(error)}.") from error


def _by_dynamo(model: nn.Module, inputs: Sequence[Tensor], why: str) -> bytes:
    if importlib.util.find_spec("onnxscript") is None:
        raise BadInput(
            f"{why}: install onnxscript, whose exporter may know one, by "
            "pip install 'sparsepath[onnx]'."
        )
    try:
        with quiet():
            made = torch.onnx.export(
                model,
                tuple(inputs),
                dynamo=True,
                dynamic_shapes=_open_batch(model, inputs),
                verbose=False,
            )
    except Exception as error:  # whatever torch.export finds in a user's model
        raise BadInput(f"{why}, and torch's own exporter cannot take it either.") from error
    assert made is not None
    return bytes(made.model_proto.SerializeToString())


@contextmanager
def quiet() -> Iterator[None]:
    """Without advice of other packages about what a user cannot change."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)


def _open_batch(model: nn.Module, inputs: Sequence[Tensor]) -> Any:
    batch = torch.export.Dim("batch")
    shapes = tuple({0: batch} for _ in inputs)
    # A network of ours takes its inputs as *inputs, which torch counts as one argument.
    kinds = [x.kind for x in inspect.signature(model.forward).parameters.values()]
    return (shapes,) if inspect.Parameter.VAR_POSITIONAL in kinds[:1] else shapes


def _pt2(model: nn.Module, inputs: Sequence[Tensor]) -> tuple[Write, Run]:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            # A batch of one would be taken for a length that never changes.
            several = tuple(torch.cat((x, x)) if len(x) == 1 else x for x in inputs)
            shapes = _open_batch(model, inputs)
            program = torch.export.export(model, several, dynamic_shapes=shapes)
            buffer = io.BytesIO()
            torch.export.save(program, buffer)
            loaded = torch.export.load(io.BytesIO(buffer.getvalue()))
    except Exception as error:  # whatever torch.export finds in a user's model
        raise BadInput(
            f"torch.export cannot take this {type(model).__name__}: {_line(error)}."
        ) from error
    return _bytes(buffer.getvalue()), loaded.module()


def _state_dict(model: nn.Module, inputs: Sequence[Tensor]) -> tuple[Write, Run]:
    weights = dict(model.state_dict())
    return lambda path: write_tensors(path, weights, {"format": "pt"}), model


FORMATS: dict[str, Format] = {"onnx": _onnx, "pt2": _pt2, "state-dict": _state_dict}
