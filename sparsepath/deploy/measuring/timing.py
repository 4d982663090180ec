"""How long calls take, where all that are compared take turns in one process."""

import math
import statistics
import threading
import time
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import TypeVar

Work = Callable[[], object]
Name = TypeVar("Name", bound=Hashable)
# A turn is so many seconds of calls: caches are then as in a loop of one's own.
TURN = 0.02
LEAST, MOST = 7, 60
# How long to look whether threads still spin, and how often: a busy caller need not stop for us.
NAP, MOST_NAPS = 3e-4, 300
# Where Linux tells what each thread of this process does.
TASKS = Path("/proc/self/task")


def by_turns(
    works: Mapping[Name, Work], *, seconds: float, clock: Callable[[], float] = time.perf_counter
) -> dict[Name, list[list[float]]]:
    """The seconds of every call, turn by turn; the order of who comes first moves on.

    A busy neighbour slows all alike, and no turn begins before the threads of the one before have
    gone to sleep. There are at least seven turns each, and more until so many `seconds` are over.
    """
    names = list(works)
    times: dict[Name, list[list[float]]] = {name: [] for name in names}
    calls = {name: _calls(work) for name, work in works.items()}
    began = time.perf_counter()
    turn = 0
    while turn < LEAST or (turn < MOST and time.perf_counter() - began < seconds):
        first = turn % len(names) if names else 0
        for name in names[first:] + names[:first]:
            settle()
            works[name]()  # what the others left in the caches is not its fault
            times[name].append([_timed(works[name], clock) for _ in range(calls[name])])
        turn += 1
    return times


def settle() -> None:
    """Wait until no thread of this process works on: some spin for a while before they sleep.

    onnxruntime's do so for 30 ms, which is longer than a turn, on a core that the next one needs.
    """
    for _ in range(MOST_NAPS):
        if not _others_work():
            return
        time.sleep(NAP)


def _others_work() -> bool:
    """Whether another thread of this process runs, or would if it had a core.

    The process's CPU time does not tell: Linux adds that of a running thread only at a tick.
    """
    if not TASKS.is_dir():
        return _time_passes()
    own = str(threading.get_native_id())
    return any(_state(task) == "R" for task in TASKS.iterdir() if task.name != own)


def _state(task: Path) -> str:
    """A thread's state, in the letter that follows its name; none if it has ended."""
    try:
        return (task / "stat").read_text(errors="replace").rpartition(") ")[2][:1]
    except OSError:
        return ""


def _time_passes() -> bool:
    """Whether the process works while this thread sleeps."""
    before = time.process_time()
    time.sleep(NAP)
    return time.process_time() - before >= NAP / 2


def _calls(work: Work) -> int:
    """How many calls fill a turn, once the work has settled."""
    work(), work()
    return max(1, round(TURN / max(1e-9, _timed(work, time.perf_counter))))


def _timed(work: Work, clock: Callable[[], float]) -> float:
    start = clock()
    work()
    return clock() - start


@dataclass(frozen=True)
class Speed:
    """The seconds of one call for a batch: half of all calls, and 95 in 100, took no longer."""

    batch: int
    p50: float
    p95: float

    @classmethod
    def of(cls, batch: int, turns: list[list[float]]) -> "Speed":
        """Of every call that was timed."""
        calls = sorted(chain.from_iterable(turns))
        return cls(batch, statistics.median(calls), calls[math.ceil(0.95 * len(calls)) - 1])

    @property
    def throughput(self) -> float:
        """Images in a second."""
        return self.batch / self.p50
