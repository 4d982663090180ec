"""A run as it goes: one line that moves on a terminal, one line per stage everywhere else."""

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from rich.console import Console, ConsoleOptions, RenderResult
from rich.live import Live as Moving
from rich.progress_bar import ProgressBar
from rich.table import Table as Grid
from rich.text import Text

from sparsepath.lab.bench import Watch
from sparsepath.lab.folders import Record
from sparsepath.report.safe import for_terminal, visible
from sparsepath.report.standing import Standing
from sparsepath.report.tables import millions, percent, point_number
from sparsepath.residuals import Residuals

SIGN_OF_LIFE = 30.0
"""Where no line moves, a long stage says this often, in seconds, that it is alive."""
BAR = 40
"""Most columns of the bar; with less than a quarter of that beside the words there is none."""


class Live(Watch):
    """Shows where a run stands as a line that moves, or as lines; and its results as lines."""

    def __init__(self, console: Console, *, points: int, moving: bool) -> None:
        """Write to the console."""
        self.console, self.points, self.moving = console, points, moving
        self._standing: Standing | None = None
        self._residuals: Residuals | None = None
        self._epochs = 0
        self._walked = 0.0
        self._began = self._told = self._spoke = time.monotonic()

    def begin(self, folder: Path) -> None:
        """One line for the folder, by which a stopped run is found again."""
        self._began = time.monotonic()
        self._say(f"folder: {visible(str(folder))}")

    def epoch(self, stage: str, *, done: int, planned: int, loss: float) -> None:
        """Remember where the run stands; where no line moves, say it now and then."""
        self._told = time.monotonic()
        # Epochs of an earlier process, or that were not needed, say nothing about the speed.
        self._epochs += 1
        left = (planned - done) * (self._told - self._began) / self._epochs
        self._standing = Standing(stage, self.points, done, planned, loss, self._residuals, left)
        if not self.moving and self._told - self._spoke >= SIGN_OF_LIFE:
            self._say(self._standing.said())

    def iteration(self, index: int, residuals: Sequence[Residuals]) -> None:
        """One line for the iteration, and its residuals for those to come."""
        self._residuals = residuals[-1]
        self._end_stage()

    def dense(self, record: Record) -> None:
        """One line for the training of the dense reference, and one for what came of it."""
        self._end_stage()
        images = ", ".join(f"{count:,} {split}" for split, count in record["images"].items())
        self._say(f"images: {images}")
        self._say(
            f"dense: validation {percent(record['validation'])} %, "
            f"test {percent(record['test'])} %, {record['parameters']:,} weights, "
            f"{sum(record['blocks'].values()):,} blocks, {millions(record['macs']['dense'])} MACs"
        )

    def point(self, record: Record) -> None:
        """One line for the fine-tune, and one for what came of this mu."""
        self._end_stage()
        self._residuals = None
        # A record counts its seconds from the first point on.
        took, self._walked = record["seconds"] - self._walked, record["seconds"]
        iterations = record["iterations"]
        self._say(
            f"point {point_number(record):>2}/{self.points}: mu {record['mu']:.2e}, "
            f"zero blocks {percent(record['sparsity']['of_blocks']):>5} %, "
            f"validation {percent(record['validation']):>5} %, "
            f"test {percent(record['test']):>5} %, {iterations} "
            f"iteration{'' if iterations == 1 else 's'}, {took:.0f} s"
        )

    def _end_stage(self) -> None:
        if self._standing is None:  # an earlier process did it
            return
        self._standing = replace(self._standing, residuals=self._residuals)
        if not self.moving:
            self._say(self._standing.said())
            self._standing = None

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """The line that moves, and a bar where there is room for one."""
        now, width = self._standing, options.max_width
        if now is None:
            yield Text("starting", no_wrap=True, overflow="crop")
            return
        left = max(0.0, now.left - (time.monotonic() - self._told))
        line = Text(replace(now, left=left).said(width), no_wrap=True, overflow="crop")
        bar = min(BAR, width - len(line) - 1)
        if bar < BAR / 4:
            yield line
            return
        grid = Grid.grid(padding=(0, 1, 0, 0))
        grid.add_row(line, ProgressBar(now.planned, now.done, width=bar))
        yield grid

    def _say(self, line: str) -> None:
        self._spoke = time.monotonic()
        text = for_terminal(line, self.console.encoding)
        self.console.print(text, soft_wrap=True, markup=False, emoji=False)


@contextmanager
def live(console: Console, *, points: int) -> Iterator[Live]:
    """Watch a run on this console until the block ends."""
    moving = console.is_terminal and not console.is_dumb_terminal
    shown = Live(console, points=points, moving=moving)
    if not moving:
        yield shown
        return
    with Moving(shown, console=console, transient=True, refresh_per_second=2):
        yield shown
