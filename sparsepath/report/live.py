"""A run as it goes: a bar with the time left on a terminal, and one line per mu everywhere."""

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

from sparsepath.lab.bench import Watch
from sparsepath.lab.folders import Record
from sparsepath.report.tables import millions, percent, point_number
from sparsepath.residuals import Residuals

# Where there is no bar, a long stage says this often, in seconds, that it is alive.
SIGN_OF_LIFE = 30.0


class Live(Watch):
    """Shows a run's epochs as a bar and its results as lines."""

    def __init__(self, console: Console, progress: Progress, *, points: int) -> None:
        """Write to the console, above the bar."""
        self.console, self.progress, self.points = console, progress, points
        self._task = progress.add_task("starting", total=None)
        self._measured = False
        self._residuals = ""
        self._spoke = time.monotonic()

    def begin(self, folder: Path) -> None:
        """One line for the folder, by which a stopped run is found again."""
        self._say(f"folder: {folder}")

    def epoch(self, stage: str, *, done: int, planned: int, loss: float) -> None:
        """Move the bar; without one, say a line now and then."""
        if stage.startswith("point"):
            stage = stage.replace(",", f" of {self.points},", 1)
        figures = f"loss {loss:.4f}{self._residuals}"
        if not self._measured:
            # Epochs of an earlier process say nothing about the speed of this one.
            self.progress.reset(self._task, total=planned, completed=done)
            self._measured = True
        self.progress.update(self._task, description=f"{stage}, {figures}", completed=done)
        if self.progress.disable and time.monotonic() - self._spoke >= SIGN_OF_LIFE:
            self._say(f"{stage}: {done} of at most {planned} epochs, {figures}")

    def iteration(self, index: int, residuals: Sequence[Residuals]) -> None:
        """Remember the residuals for the lines to come."""
        last = residuals[-1]
        self._residuals = f", primal {last.primal:.3g}, dual {last.dual:.3g}"

    def dense(self, record: Record) -> None:
        """One line for the dense reference."""
        images = ", ".join(f"{count:,} {split}" for split, count in record["images"].items())
        self._say(f"images: {images}")
        self._say(
            f"dense: validation {percent(record['validation'])} %, "
            f"test {percent(record['test'])} %, {record['parameters']:,} weights, "
            f"{sum(record['blocks'].values()):,} blocks, {millions(record['macs']['dense'])} MACs"
        )

    def point(self, record: Record) -> None:
        """One line per mu."""
        self._say(
            f"point {point_number(record):>2}/{self.points}: mu {record['mu']:.2e}, "
            f"zero blocks {percent(record['sparsity']['of_blocks']):>5} %, "
            f"validation {percent(record['validation']):>5} %, "
            f"test {percent(record['test']):>5} %, {record['iterations']} iterations, "
            f"{record['seconds']:.0f} s"
        )

    def _say(self, line: str) -> None:
        self._spoke = time.monotonic()
        self.console.print(line, soft_wrap=True, markup=False, emoji=False)


@contextmanager
def live(console: Console, *, points: int) -> Iterator[Live]:
    """Watch a run on this console until the block ends."""
    progress = Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        TaskProgressColumn(),
        TextColumn("at most"),
        TimeRemainingColumn(),
        TextColumn("left"),
        console=console,
        transient=True,
        disable=not console.is_terminal,
    )
    with progress:
        yield Live(console, progress, points=points)
