"""An ONNX file: run by onnxruntime, and with a network's figures in its header."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from sparsepath.errors import BadInput
from sparsepath.storage import write_atomically

KEY = "sparsepath"
Run = Callable[..., Any]


def session(content: bytes, *, threads: int = 1) -> Any:
    """The model in onnxruntime on the CPU, quiet."""
    try:
        import onnxruntime
    except ImportError as error:
        raise BadInput(
            "An ONNX model needs onnxruntime: pip install 'sparsepath[onnx]'."
        ) from error
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
    options.log_severity_level = 4
    return onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])


def runner(opened: Any) -> Run:
    """A session as a function of tensors; it gives one tensor, or a list of several."""
    names = [given.name for given in opened.get_inputs()]

    def run(*batch: Tensor) -> Any:
        arrays = {name: x.contiguous().numpy() for name, x in zip(names, batch, strict=True)}
        results = [torch.from_numpy(x) for x in opened.run(None, arrays)]
        return results[0] if len(results) == 1 else results

    return run


def label(path: Path, figures: Mapping[str, Any]) -> None:
    """Put figures into the file's metadata, where any reader of ONNX finds them."""
    import onnx

    model = onnx.load_from_string(path.read_bytes())
    entry = model.metadata_props.add()
    entry.key, entry.value = KEY, json.dumps(dict(figures), allow_nan=False)
    content = model.SerializeToString()

    def write(neighbour: Path) -> None:
        neighbour.write_bytes(content)

    write_atomically(path, write)


def figures_in(opened: Any) -> dict[str, Any]:
    """The figures of a session's file; none where it has none of ours."""
    try:
        found = json.loads(opened.get_modelmeta().custom_metadata_map.get(KEY, "{}"))
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def count_weights(content: bytes) -> int | None:
    """How many of its weights and biases are not zero; None without the onnx package."""
    try:
        import onnx
        from onnx import numpy_helper
    except ImportError:
        return None
    arrays = {
        array.name: numpy_helper.to_array(array)
        for array in onnx.load_from_string(content).graph.initializer
        if not array.name.endswith(("_scale", "_zero_point"))  # of a file in int8
    }
    # Shapes and axes are int64.
    counted = [x for x in arrays.values() if x.ndim and x.dtype.kind in "fi" and x.dtype != "int64"]
    return sum(int((x != 0).sum()) for x in counted)
