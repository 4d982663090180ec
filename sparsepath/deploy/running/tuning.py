"""Times measured once on a machine and kept in a file; a file that does not fit is made anew."""

import hashlib
import json
import logging
import math
import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from sparsepath.deploy.measuring.timing import settle
from sparsepath.deploy.running.stamp import stamp
from sparsepath.errors import BadInput
from sparsepath.storage import read_json, write_json

FOLDER_VARIABLE = "SPARSEPATH_CACHE"
# Every candidate gets so many rounds; the best one counts, because whatever else the machine does
# can only make a round longer. Those near the lead get as many more as it takes to tell them apart.
LEAST, ENOUGH, MOST = 3, 10, 30
NEAR = 1.2
# Long calls get fewer rounds, for so many times the patience but at least one: what disturbs a
# short call is little beside a long one.
LONGEST = 2
# A turn of short calls takes about so many seconds, and no more calls than that.
TURN, MOST_CALLS = 1e-3, 50
# After a rest calls are slow for about so long: threads wake, caches are not as in a loop.
WAKING = 3e-3


SHOWN = 80

log = logging.getLogger("sparsepath")
Work = Callable[[], object]


def at_home(folder: Path) -> Path:
    """The folder, a `~` that it begins with replaced by the home."""
    try:
        return folder.expanduser()
    except RuntimeError as error:
        raise BadInput(f"There is no home for {str(folder)!r}; name the folder in full.") from error


def default_folder() -> Path:
    """Where times are kept unless the user says otherwise."""
    chosen = os.environ.get(FOLDER_VARIABLE)
    if chosen:
        return at_home(Path(chosen))
    try:
        return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "sparsepath"
    except RuntimeError as error:  # a user of whom the machine knows nothing
        raise BadInput(f"there is no home; name a folder in {FOLDER_VARIABLE}.") from error


class Times:
    """Measured seconds by question and candidate."""

    def __init__(self, folder: Path | None = None, *, alone: bool = False) -> None:
        """Read what this machine and these versions have measured before, if anything.

        Work that is `alone` in one thread is measured by the time the processor gave it, which
        busy neighbours change less than the clock on the wall. Other work may leave threads behind
        that spin on; each turn waits for their end.
        """
        self._settle = _nothing if alone else settle
        self._clock = time.process_time if alone else time.perf_counter
        self._stamp = stamp()
        self._folder = folder
        self._times = self._read(aloud=True)
        self._new = False

    @property
    def path(self) -> Path:
        """The file that keeps the times; BadInput if there is no place for it.

        Installs that differ have files of their own, or each would wipe out the other's times.
        """
        digest = hashlib.sha256(json.dumps(self._stamp).encode()).hexdigest()[:12]
        return (self._folder or default_folder()) / f"tuning-{digest}.json"

    def _read(self, *, aloud: bool) -> dict[str, dict[str, float]]:
        try:
            path = self.path
            if not path.exists():
                return {}
        except (BadInput, OSError):  # the line comes when there are times to keep
            return {}
        try:
            if not path.is_file():
                raise BadInput("it is no file.")
            content = read_json(path)
            other = [key for key, own in self._stamp.items() if content.get(key) != own]
            if other:
                named = " and ".join(f"another {key}{_said(content.get(key))}" for key in other)
                raise BadInput(f"it is of {named}.")
            return _checked(content.get("times"))
        except (BadInput, OSError) as error:
            if aloud:
                # The file is ours: nobody need restore it, as the reader would ask for.
                why = f"it cannot be read ({error.__cause__})." if error.__cause__ else error
                log.warning("The tuning file %s is ignored and made anew: %s", path, why)
            return {}

    def of(
        self, question: str, candidates: Mapping[str, Work], *, patience: float = 0.04
    ) -> Mapping[str, float]:
        """The seconds of each candidate, measured by turns unless they are known."""
        known = self._times.get(question, {})
        if not set(candidates) <= set(known):
            self._times[question] = known = measured(
                candidates, clock=self._clock, patience=patience, settle=self._settle
            )
            self._new = True
        return {name: known[name] for name in candidates}

    def keep(self) -> None:
        """Write what is new; a place that cannot be written costs only the next measurement."""
        if not self._new:
            return
        try:
            # Another process may have measured too, since this one began.
            merged = {**self._read(aloud=False), **self._times}
            write_json(self.path, {**self._stamp, "times": merged})
        except (BadInput, OSError) as error:
            log.warning("The tuning file is not kept: %s", error)
        self._new = False


def _nothing() -> None:
    """What need not be done."""


def _said(value: object) -> str:
    """What a file says of itself, in brackets, if that is a short text."""
    return f" ({value})" if isinstance(value, str) and len(value) <= SHOWN else ""


def _checked(times: object) -> dict[str, dict[str, float]]:
    """The times of a file, or BadInput."""
    if not isinstance(times, dict):
        raise BadInput("it holds no times.")
    for answers in times.values():
        fine = isinstance(answers, dict) and all(
            isinstance(x, float) and math.isfinite(x) and x > 0 for x in answers.values()
        )
        if not fine:
            raise BadInput("some of its times are none.")
    return times


def measured(
    candidates: Mapping[str, Work],
    *,
    clock: Callable[[], float],
    patience: float,
    settle: Callable[[], None] = _nothing,
) -> dict[str, float]:
    """The best of several rounds for each candidate, all taking turns, each after a `settle`."""
    best = dict.fromkeys(candidates, math.inf)
    first = {name: _first(work, clock) for name, work in candidates.items()}
    calls = {name: _calls(TURN, seconds) for name, seconds in first.items()}
    # What the others left in the caches is not its fault, nor is it that it had to wait for them.
    before = {name: int(calls[name] > 1) for name in candidates}
    if settle is not _nothing:
        before = {name: _calls(WAKING, seconds) for name, seconds in first.items()}
    spent, rounds, racing = 0.0, 0, list(candidates)
    enough = patience * len(candidates)

    def going_on() -> bool:
        if rounds == 0:
            return True
        if spent > LONGEST * enough or rounds >= MOST:
            return False
        return rounds < LEAST or spent < enough or (len(racing) > 1 and rounds < ENOUGH)

    while going_on():
        for name in racing:
            settle()
            began = clock()
            for _ in range(before[name]):
                candidates[name]()
            seconds = _timed(candidates[name], clock, calls[name])
            best[name] = min(best[name], max(seconds / calls[name], 1e-9))
            spent += clock() - began
        rounds += 1
        if rounds >= LEAST:
            racing = [name for name in candidates if best[name] <= NEAR * min(best.values())]
    return best


def _first(work: Work, clock: Callable[[], float]) -> float:
    """The seconds of one call, after one that builds what it needs."""
    work()
    return max(1e-9, _timed(work, clock, 1))


def _calls(seconds: float, each: float) -> int:
    """How many calls fill the seconds: short ones find their caches as in a loop of their own."""
    return max(1, min(MOST_CALLS, int(seconds / each)))


def _timed(work: Work, clock: Callable[[], float], calls: int) -> float:
    began = clock()
    for _ in range(calls):
        work()
    return clock() - began
