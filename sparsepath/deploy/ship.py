"""A sparse network on its way to others: made smaller, written to one file, and read back."""

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib import import_module
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from sparsepath.deploy.files.artifact import save
from sparsepath.deploy.files.export import export
from sparsepath.deploy.files.onnx_file import label
from sparsepath.deploy.files.opened import Opened, of_model, opened
from sparsepath.deploy.files.target import free, writing
from sparsepath.deploy.measuring.runtimes import Run
from sparsepath.deploy.measuring.sides import macs
from sparsepath.deploy.shrinking.compact import compact
from sparsepath.errors import BadInput
from sparsepath.storage import read_tensors

ENDINGS: Mapping[str, str] = {
    "artifact": ".sparsepath",
    "onnx": ".onnx",
    "pt2": ".pt2",
    "state-dict": ".safetensors",
}
"""Every format, and how the names of its files end."""
MOST_BITS = 8
Train = Callable[[nn.Module], object]


@dataclass(frozen=True)
class Form:
    """In which form a network is written."""

    format: str = "artifact"
    int8: bool = False
    share: int | None = None
    """bits of the number that stands for a weight, where a layer has few different ones"""

    def __post_init__(self) -> None:
        """Refuse what no file can be."""
        if self.format not in ENDINGS:
            known = ", ".join(ENDINGS)
            raise BadInput(f"There is no format {self.format!r}; choose one of {known}.")
        if self.int8 and self.share is not None:
            raise BadInput(
                f"--int8 and --share {self.share} are two ways to store a weight: choose one."
            )
        if self.int8 and self.format not in ("artifact", "onnx"):
            raise BadInput(
                f"{self.format} holds no int8 weights: choose --format artifact or onnx, or leave "
                "--int8 out."
            )
        if self.share is not None and not 1 <= self.share <= MOST_BITS:
            raise BadInput(f"--share takes 1 to {MOST_BITS} bits a weight, not {self.share}.")

    @property
    def ending(self) -> str:
        """How the name of such a file ends."""
        kind = "-int8" if self.int8 else "" if self.share is None else f"-share{self.share}"
        return f"{kind}{ENDINGS[self.format]}"

    def check_name(self, path: Path) -> None:
        """Refuse a name that promises another format."""
        promised = {ending: kind for kind, ending in ENDINGS.items()}.get(path.suffix.lower())
        if promised not in (None, self.format):
            raise BadInput(
                f"{str(path)!r} ends in {path.suffix.lower()}, and {self.format} was asked for: "
                f"give --format {promised}, or a name in {ENDINGS[self.format]}."
            )


@dataclass(frozen=True)
class Shipped:
    """A file that was written and read back."""

    path: Path
    opened: Opened = field(repr=False)
    """the network in the file"""
    notes: tuple[str, ...]
    """what whoever uses the file should know"""


def ship(
    model: nn.Module,
    example: Tensor,
    path: str | Path,
    *,
    form: Form | None = None,
    calibration: Sequence[Tensor] = (),
    train: Train | None = None,
    figures: Mapping[str, Any] | None = None,
    force: bool = False,
) -> Shipped:
    """Write the model in eval mode without its dead channels, and load the file again.

    A model that cannot be made smaller is written as it is, and the notes say why. int8 in ONNX
    takes its ranges from the `calibration` batches, or else from the example. `train` may train the
    numbers that weights share.
    """
    form, figures = form or Form(), dict(figures or {})
    path = free(path, force=force)
    form.check_name(path)
    small, notes = _compacted(model, example, form)
    small = _fewer_bits(small, form, train)
    if form.format == "artifact":
        told = {**figures, **_counted(small, example)}
        save(small, path, example=example, figures=told, force=force)
        return Shipped(path, opened(path), notes)
    if form.format == "onnx":
        # Nobody knows the network that rounding to int8 makes but onnxruntime: it has no MACs here.
        known = None if form.int8 else small
        figures |= {} if known is None else _counted(known, example)
        _write_onnx(small, example, path, form=form, batches=calibration or [example], force=force)
        with writing(path):
            label(path, figures)
        return Shipped(path, replace(opened(path), model=known), notes)
    export(small, example, path, format=form.format, force=force)
    return Shipped(path, FOREIGN[form.format](path, small), notes)


def _counted(model: nn.Module, example: Tensor) -> Mapping[str, int]:
    """The file's own figures, as far as they are known before it is written."""
    try:
        found = macs(model, example[:1])
    except BadInput:  # whoever writes the file says what is wrong with it
        found = None
    return {} if found is None else {"macs": found}


def _compacted(model: nn.Module, example: Tensor, form: Form) -> tuple[nn.Module, tuple[str, ...]]:
    if form.format == "state-dict":
        said = "The weights keep the network's own shapes, so that its own class takes them."
        return model, (said,)
    try:
        made = compact(model, example)
    except BadInput as error:
        return model, (f"The network is written as it is: {error}",)
    return made.model, tuple(note.strip() for note in made.notes)


def _fewer_bits(model: nn.Module, form: Form, train: Train | None) -> nn.Module:
    made = model
    if form.share is not None:
        made = import_module("sparsepath.deploy.bits.share").share(model, form.share, train=train)
    elif form.int8 and form.format == "artifact":
        made = import_module("sparsepath.deploy.bits.quantise").int8_weights(model)
    return made


def _write_onnx(
    model: nn.Module,
    example: Tensor,
    path: Path,
    *,
    form: Form,
    batches: Sequence[Tensor],
    force: bool,
) -> None:
    if form.int8:
        with writing(path):
            import_module("sparsepath.deploy.bits.quantise").int8_onnx(
                model, batches, path, force=force
            )
    else:
        export(model, example, path, format="onnx", force=force)


def _pt2(path: Path, model: nn.Module) -> Opened:
    program = torch.export.load(path).module()

    def runs(images: Tensor, **_: Any) -> Mapping[str, Run | str]:
        return {"torch": torch.no_grad()(program)}

    return replace(of_model(model), runs=runs)


def _state_dict(path: Path, model: nn.Module) -> Opened:
    own = copy.deepcopy(model)
    own.load_state_dict(read_tensors(path)[0])
    return of_model(own.eval())


FOREIGN: Mapping[str, Callable[[Path, nn.Module], Opened]] = {
    "pt2": _pt2,
    "state-dict": _state_dict,
}


def difference(first: Run, second: Run, images: Tensor) -> float:
    """max |difference| of what two give for the same images, of max |output| of the first."""
    wanted, given = (run(images.clone()) for run in (first, second))
    largest = float(wanted.abs().max())
    return float((wanted - given).abs().max()) / (largest if largest > 0 else 1.0)
