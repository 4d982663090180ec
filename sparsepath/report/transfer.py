"""A download as it goes: a bar with speed and time left on a terminal, plain lines elsewhere."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    Progress,
    TextColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)

_QUARTERS = 4


class _Transfer:
    """Shows each file as one bar, or as one line for every quarter of it."""

    def __init__(self, console: Console, progress: Progress) -> None:
        self.console, self.progress = console, progress
        self._name, self._quarter = "", -1
        self._task = progress.add_task("starting", total=None)

    def __call__(self, name: str, done: int, total: int | None) -> None:
        if name != self._name:
            # What an earlier call fetched says nothing about the speed of this one.
            self.progress.reset(self._task, total=total, completed=done, description=name)
            self._name, self._quarter = name, -1
        self.progress.update(self._task, completed=done, total=total)
        quarter = _QUARTERS * done // total if total else 0
        if quarter != self._quarter:
            self._quarter = quarter
            if quarter == _QUARTERS or not self.console.is_terminal:
                self._say(name, done, total)

    def _say(self, name: str, done: int, total: int | None) -> None:
        of = "" if total is None else f" of {_megabytes(total)} ({done / max(total, 1):.0%})"
        self.console.print(f"{name}: {_megabytes(done)}{of}", markup=False, emoji=False)


def _megabytes(count: int) -> str:
    return f"{count / 1e6:.1f} MB"


@contextmanager
def transfer(console: Console) -> Iterator[Callable[[str, int, int | None], None]]:
    """What to call with a file's name, its bytes so far and in all, until the block ends."""
    progress = Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
        console=console,
        transient=True,
        disable=not console.is_terminal,
    )
    with progress:
        yield _Transfer(console, progress)
