"""The loss of every epoch of a run, kept beside its figures while it goes."""

from collections.abc import Mapping
from pathlib import Path

from sparsepath.errors import BadInput
from sparsepath.lab.bench import Watch, stage_name
from sparsepath.report.tables import finite
from sparsepath.storage import read_json, write_json

FILE = "losses.json"

Losses = Mapping[str, Mapping[str, float]]
"""The mean loss by the name of the stage, and by how many epochs of the plan were done."""


class LossLog(Watch):
    """Writes the losses; the epochs that a stopped run does again replace their earlier entries."""

    def __init__(self) -> None:
        """Nothing is written before the run has begun."""
        self._path: Path | None = None
        self._losses: dict[str, dict[str, float]] = {}

    def begin(self, folder: Path) -> None:
        """Go on from what an earlier process wrote."""
        self._path = folder / FILE
        self._losses = {stage: dict(epochs) for stage, epochs in read_losses(folder).items()}

    def epoch(self, stage: str, *, done: int, planned: int, loss: float) -> None:
        """Write one more."""
        assert self._path is not None, "a run begins before its first epoch"
        self._losses.setdefault(stage, {})[str(done)] = loss
        write_json(self._path, self._losses)


def read_losses(folder: Path) -> Losses:
    """The losses of a run, as far as they were written; a damaged file holds none."""
    try:
        content = read_json(folder / FILE)
    except BadInput:
        return {}
    return {
        stage: {done: loss for done, loss in epochs.items() if finite(loss) is not None}
        for stage, epochs in content.items()
        if isinstance(epochs, dict)
    }


def loss_after(losses: Losses, *, index: int, iteration: int | None) -> float | None:
    """The loss of the last epoch of a stage of the path."""
    epochs = losses.get(stage_name(index, iteration), {})
    last = max(epochs, key=int, default=None)
    return None if last is None else epochs[last]
