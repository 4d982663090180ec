"""Weights of 8 bits: as levels for our own file, or with the activations too, for onnxruntime.

Both are symmetric, with a scale for each channel, so that level 0 is exactly zero: what was pruned
stays pruned.
"""

import copy
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy
import torch
from torch import Tensor, nn
from torch.nn.modules.conv import _ConvTransposeNd

from sparsepath.deploy.bits.levels import HIGHEST, Levels, by_output, spread
from sparsepath.deploy.bits.weights import refuse_computed, weights_of
from sparsepath.deploy.capture.capture import capture
from sparsepath.deploy.files.export import Exported, export, quiet
from sparsepath.deploy.files.target import free, writing
from sparsepath.errors import BadInput
from sparsepath.metrics import evaluating
from sparsepath.modules import uncompiled
from sparsepath.storage import write_atomically


def int8_weights(model: nn.Module) -> nn.Module:
    """A copy of the model whose weights are levels of -127 to 127 times a scale, in float32.

    Each output channel has its own scale. `save` finds the levels by itself and stores a byte for
    each, or less.
    """
    for name, weight in weights_of(model).items():
        if weight.dtype != torch.float32:
            raise BadInput(f"{name!r} is {weight.dtype}: int8 stands for float32, call float().")
    model = uncompiled(model)
    refuse_computed(model)
    made = copy.deepcopy(model)
    groups = _transposed(made)
    with torch.no_grad():
        for weight in weights_of(made).values():
            weight.copy_(levelled(weight.detach(), transposed=groups.get(weight, 0)).values)
    return made


def _transposed(model: nn.Module) -> dict[Tensor, int]:
    """The weights of transposed convolutions, whose output channels lie elsewhere: their groups."""
    found: dict[Tensor, int] = {
        module.weight: module.groups
        for module in model.modules()
        if isinstance(module, _ConvTransposeNd)
    }
    for node in capture(model):  # a graph's own, and calls of functions
        if node.op == "conv_transpose":
            for weight in model.parameters():
                if torch.equal(weight, node.arrays["weight"]):
                    found.setdefault(weight, int(str(node.attributes["groups"])))
    return found


def levelled(weight: Tensor, *, transposed: int = 0) -> Levels:
    """The nearest levels of a weight, by the largest number of each output channel.

    That of a transposed convolution has so many groups.
    """
    axis = 1 if transposed else 0
    scales = by_output(weight, axis=axis, groups=transposed).abs().amax(1) / HIGHEST
    # A slice of zeros, or of numbers too small to divide, has level 0 at any scale.
    scales = torch.where(scales > 0, scales, torch.ones_like(scales))
    steps = weight / spread(scales, weight.shape, axis=axis)
    levels = steps.round().clamp(-HIGHEST, HIGHEST).to(torch.int8)
    return Levels(levels, scales, axis)


def int8_onnx(
    model: nn.Module,
    calibration: Tensor | Sequence[Tensor],
    path: str | Path,
    *,
    force: bool = False,
) -> Exported:
    """Write the model for onnxruntime in int8, its activations' ranges taken from these batches.

    The batches should be none of the images it is judged by. The file is run on the first of them
    before it takes its name: `difference` says how far it is from the model.
    """
    path = free(path, force=force)
    weights_of(model)
    model = uncompiled(model)
    batches = _checked(model, calibration)
    try:
        import onnx
        import onnxruntime
        from onnxruntime import quantization
    except ImportError as error:
        raise BadInput(
            f"An int8 file for onnxruntime needs {error.name}: pip install 'sparsepath[onnx]'."
        ) from error
    with tempfile.TemporaryDirectory() as folder, evaluating(model):
        plain, small = Path(folder, "float32.onnx"), Path(folder, "int8.onnx")
        export(model, batches[0], plain)
        name = onnx.load(plain).graph.input[0].name
        with quiet():
            quantization.quantize_static(
                plain,
                small,
                _Reader(name, batches),
                quant_format=quantization.QuantFormat.QDQ,
                per_channel=True,
                weight_type=quantization.QuantType.QInt8,
                activation_type=quantization.QuantType.QUInt8,
                extra_options={"WeightSymmetric": True},
            )
        _check_zeros(_arrays(onnx, plain), _arrays(onnx, small))
        content = small.read_bytes()
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 3
        session = onnxruntime.InferenceSession(content, options, ["CPUExecutionProvider"])
        given = session.run(None, {name: batches[0].numpy()})[0]
        wanted = model(batches[0].clone()).numpy()
    difference = float(abs(given - wanted).max() / (abs(wanted).max() or 1.0))
    if not numpy.isfinite(difference):
        raise BadInput("The int8 network gives numbers that are not finite: nothing was written.")

    def write(neighbour: Path) -> None:
        neighbour.write_bytes(content)

    with writing(path):
        write_atomically(path, write)
    return Exported(path, "onnx in int8", difference)


def _checked(model: nn.Module, calibration: Tensor | Sequence[Tensor]) -> list[Tensor]:
    """The batches, once the model has run each shape of them."""
    if not isinstance(calibration, Tensor | Sequence):
        raise BadInput(f"Calibration needs batches as tensors, not {type(calibration).__name__}.")
    batches = [calibration] if isinstance(calibration, Tensor) else list(calibration)
    images = [batch for batch in batches if isinstance(batch, Tensor) and batch.dim()]
    if len(images) != len(batches) or not sum(len(batch) for batch in images):
        raise BadInput(
            "Calibration needs batches of at least one image in all, as tensors: "
            f"{len(batches)} batches were given, {len(images)} of them tensors."
        )
    batches = [batch.detach().cpu() for batch in images if len(batch)]
    for number, batch in enumerate(batches):
        if not bool(batch.isfinite().all()):
            raise BadInput(
                f"Calibration batch {number} holds numbers that are not finite: leave them out."
            )
    shapes = {tuple(batch.shape[1:]): batch for batch in batches}
    for shape, batch in shapes.items():
        try:
            with evaluating(model):
                model(batch[:1].clone())
        except Exception as error:  # whatever a user's model has against it
            line = (str(error).splitlines() or [type(error).__name__])[0]
            raise BadInput(
                f"This {type(model).__name__} cannot run calibration images of shape {shape}: "
                f"{line}"
            ) from error
    return batches


class _Reader:
    """The batches as onnxruntime asks for them."""

    def __init__(self, name: str, batches: Sequence[Tensor]) -> None:
        self._left = [{name: batch.numpy()} for batch in reversed(batches)]

    def get_next(self) -> dict[str, Any] | None:
        """The next batch, or None after the last."""
        return self._left.pop() if self._left else None


def _arrays(onnx: Any, path: Path) -> dict[str, Any]:
    graph = onnx.load(path).graph
    return {array.name: onnx.numpy_helper.to_array(array) for array in graph.initializer}


def _check_zeros(plain: dict[str, Any], small: dict[str, Any]) -> None:
    """Every zero weight must be the level that stands for exactly zero."""
    for name, array in plain.items():
        if array.ndim < 2 or name in small:  # one that stays in float32 stays as it is
            continue
        levels, point = small.get(f"{name}_quantized"), small.get(f"{name}_zero_point")
        if levels is None or numpy.any(point) or levels[array == 0].any():
            raise BadInput(f"onnxruntime moved zeros of {name!r}: nothing was written.")
