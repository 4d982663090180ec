"""Trainings side by side on one engine: each kept as it goes on, and set aside where it breaks."""

import math
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from sparsepath.lab.engine import Engine
from sparsepath.lab.lane import Lane
from sparsepath.lab.state import Snapshot
from sparsepath.lab.training import Diverged
from sparsepath.storage import write_tensors

ABREAST = 8
"""Networks side by side: small ones do not fill a GPU with fewer."""
KEPT_EVERY = 30.0
"""Seconds between the states that are written: all that a kill may cost, besides the epochs since
the last state that can be gone on from."""


class Training:
    """One network on its lane, and the last state that it can be gone on from."""

    lane: Lane

    def __init__(self, name: str, folder: Path) -> None:
        """A training whose state is kept under this name."""
        self.state = state_of(name, folder)
        self.through = False
        """whether there is nothing more to do, or nothing that can be done"""
        self._written = -math.inf
        self._pending: Snapshot | None = None

    def fill(self) -> None:
        """Fill the lane with the next epoch."""
        raise NotImplementedError

    def done(self, loss: float) -> None:
        """Count an epoch of this mean loss; Diverged where it, or the network, is not finite."""
        raise NotImplementedError

    def keep(self, state: Snapshot) -> None:
        """Have this state to go on from, in memory, and now and then on disk."""
        self._pending = state
        if time.monotonic() > self._written + KEPT_EVERY:
            self.write()

    def write(self) -> None:
        """Write down the last state, if it has not been."""
        if self._pending is not None:
            write_tensors(self.state, *self._pending)
            self._written, self._pending = time.monotonic(), None

    def forget(self) -> None:
        """Leave no state: there is nothing to go on with."""
        self.through, self._pending = True, None
        self.state.unlink(missing_ok=True)


def state_of(name: str, folder: Path) -> Path:
    """Where the state of a training that is not through is kept."""
    return folder / f"{name}.state.safetensors"


def train_abreast(starts: Iterable[Callable[[], Training]], *, until: float) -> bool:
    """Train all, `ABREAST` at a time, until through or until this time; whether all are through.

    One that breaks is set aside, and named when the others are through. Whatever ends this but a
    kill leaves the last state of each.
    """
    waiting, going, lost = list(starts), list[Training](), list[str]()
    try:
        while waiting or going:
            while waiting and len(going) < ABREAST:
                going.append(waiting.pop(0)())
            if not _until_one_is_through(going, until, lost):
                return False
            going = [each for each in going if not each.through]
    finally:
        for each in going:
            each.write()
    if lost:
        raise Diverged(" ".join(lost))
    return True


def _until_one_is_through(going: Sequence[Training], until: float, lost: list[str]) -> bool:
    """Train these; False if time was over. The next to come will want a new capture."""
    engine = Engine([each.lane for each in going])
    while not any(each.through for each in going):
        if time.monotonic() > until:
            return False
        for each in going:
            each.fill()
        for each, loss in zip(going, engine.epoch(), strict=True):
            try:
                each.done(float(loss))
            except Diverged as error:
                each.through = True
                lost.append(str(error))
                print(error, flush=True)  # time may be over before the others are through
    return True
