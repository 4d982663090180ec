"""A run logged for TensorBoard: what the live line shows, by epoch and by point."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from sparsepath.errors import BadInput
from sparsepath.lab.bench import Watch
from sparsepath.lab.folders import Record
from sparsepath.report.formats import FIGURES, figure
from sparsepath.residuals import Residuals

BY_POINT = (
    *("mu", "validation", "validation_W", "validation_F", "test", "epochs", "iterations"),
    *("zero_blocks", "zero_weights", "zero_of_model", "macs", "macs_speedup"),
)


class Board(Watch):
    """Writes losses and residuals over the epochs of the plan, and each point's figures."""

    def __init__(self, folder: Path) -> None:
        """Write into this folder."""
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError as error:
            raise BadInput(
                "--tensorboard needs tensorboard: pip install 'sparsepath[tensorboard]'."
            ) from error
        try:
            self._writer: Any = SummaryWriter(str(folder))
        except OSError as error:
            raise BadInput(
                f"{str(folder)!r} cannot be written ({error.strerror}); choose another folder "
                "for --tensorboard."
            ) from error
        self._done = 0

    def epoch(self, stage: str, *, done: int, planned: int, loss: float) -> None:
        """Log the loss."""
        self._done = done
        self._writer.add_scalar("training/loss", loss, done)

    def iteration(self, index: int, residuals: Sequence[Residuals]) -> None:
        """Log the residuals."""
        last = residuals[-1]
        for name in ("primal", "dual", "flipped"):
            self._writer.add_scalar(f"residuals/{name}", getattr(last, name), self._done)

    def dense(self, record: Record) -> None:
        """Log the dense reference as point 0."""
        self._log(record, 0)

    def point(self, record: Record) -> None:
        """Log one point."""
        self._log(record, record["index"] + 1)

    def _log(self, record: Record, number: int) -> None:
        for name in BY_POINT:
            value = figure(FIGURES[name], record)
            if value is not None:
                self._writer.add_scalar(f"path/{name}", value, number)
        for layer, zeros in (record["sparsity"].get("zero_blocks") or {}).items():
            self._writer.add_scalar(f"zero_blocks/{layer}", zeros, number)
        self._writer.flush()
