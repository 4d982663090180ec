"""Dense references on the engine, several side by side; each resumes in the midst of its cycle."""

import json
import math
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from sparsepath.errors import BadInput, checked_number
from sparsepath.lab.arena import Arena
from sparsepath.lab.engine import Engine
from sparsepath.lab.folders import circumstances, locked, sweep
from sparsepath.lab.records import check_same, images_of, taken_up
from sparsepath.lab.starts import Reference, drawn, fresh, lane_of
from sparsepath.lab.training import Diverged, seed_of
from sparsepath.lab.weights import load_weights, part, prefixed
from sparsepath.storage import read_json, read_tensors, write_json, write_tensors

KEPT_EVERY = 20.0
"""Seconds of training that a kill may cost, besides the epoch in hand."""


def state_of(reference: Reference, folder: Path) -> Path:
    """Where a training that is not over is kept."""
    return folder / f"{reference.name}.state.safetensors"


class Cycle:
    """One reference on its lane, in the middle of its cycle, and what is kept of it on disk."""

    def __init__(self, reference: Reference, arena: Arena, folder: Path) -> None:
        """Start from fresh weights, or from where an earlier call left off."""
        self.reference, self.arena, self.folder = reference, arena, folder
        dropout = reference.recipe.dropout
        self.model = fresh(reference.network, arena, seed=reference.seed, dropout=dropout)
        self.lane = lane_of(self.model, arena)
        self.record: dict[str, Any] = {
            "network": reference.network,
            **images_of(arena),
            "recipe": reference.recipe.plain(),
            "seed": reference.seed,
            **circumstances(arena.device),
        }
        self.epoch = 0
        self._state = state_of(reference, folder)
        gone = self._resume() if self._state.exists() else 0.0
        self._began = time.monotonic() - gone

    def _resume(self) -> float:
        """Take up what is kept; the seconds that it took."""
        tensors, header = read_tensors(self._state)
        reference = self.reference
        recipe, seed = reference.recipe, reference.seed
        try:
            kept = json.loads(header["sparsepath"])
            record, gone = dict(kept["record"]), checked_number("seconds", kept["seconds"])
            check_same(record, self._state, recipe=recipe, seed=seed, arena=self.arena)
            momentum = tensors["momentum"].view_as(self.lane.momentum)
            fits = 0 < kept["epoch"] < recipe.epochs and bool(momentum.isfinite().all())
        except BadInput:
            raise
        except (KeyError, TypeError, ValueError, RuntimeError) as error:
            raise self._unknown() from error
        if not fits:
            raise self._unknown()
        load_weights(self.model, part(tensors, "W"), self._state)
        self.lane.momentum.copy_(momentum)
        self.epoch = int(kept["epoch"])
        self.record = taken_up(record, self.arena, epochs=self.epoch)
        return gone

    def _unknown(self) -> BadInput:
        return BadInput(
            f"{str(self._state)!r} holds no training that this version knows; move it away."
        )

    def keep(self) -> None:
        """Write down all that a later call needs to go on, if there is anything yet."""
        if not self.epoch:
            return
        about = {"epoch": self.epoch, "seconds": self.seconds, "record": self.record}
        tensors = {**prefixed("W", self.model.state_dict()), "momentum": self.lane.momentum}
        write_tensors(self._state, tensors, {"sparsepath": json.dumps(about)})

    @property
    def seconds(self) -> float:
        """How long it has trained, the others beside it."""
        return time.monotonic() - self._began

    @property
    def over(self) -> bool:
        """Whether the last epoch of the cycle is done."""
        return self.epoch == self.reference.recipe.epochs

    def fill(self) -> None:
        """Fill the lane with a fresh epoch; recipes of one network and seed are given the same."""
        recipe, lane = self.reference.recipe, self.lane
        lane.rates.copy_(recipe.rates(self.epoch, len(lane.rates)))
        key = (self.reference.network, self.reference.seed, self.epoch)
        self.arena.fill(lane, drawn(self.arena, *key), shift=recipe.shift)
        lane.draw(seed_of(*key))

    def done(self, loss: float) -> None:
        """Count one epoch, and write the network down after the last."""
        self.epoch += 1
        if not math.isfinite(loss) or not self.lane.whole():
            # It would only break again: with another rate it is another training.
            self._state.unlink(missing_ok=True)
            raise Diverged(
                f"The loss of the dense {self.reference.name} is no longer finite in epoch "
                f"{self.epoch}: lower its rate of {self.reference.recipe.rate:g}."
            )
        if self.over:
            self._write(loss)

    def _write(self, loss: float) -> None:
        accuracies = self.arena.accuracies(self.model)
        figures = {"loss": loss, **accuracies, "seconds_side_by_side": self.seconds}
        name = self.reference.name
        write_tensors(self.folder / f"{name}.safetensors", self.model.state_dict(), {})
        write_json(self.folder / f"{name}.json", {**self.record, **figures})
        self._state.unlink(missing_ok=True)
        print(f"dense {name}: {accuracies}", flush=True)


def train_dense(
    references: Iterable[Reference], arena: Arena, folder: Path, *, until: float = math.inf
) -> bool:
    """Train the dense references that `folder` lacks, all side by side; False if time was over.

    What a call leaves unfinished the next goes on with, beside whichever others. One whose loss is
    no longer finite is set aside, and named when the others are through.
    """
    references = list(references)
    if not _lacking(references, arena, folder):
        return True
    with locked(folder):
        sweep(folder)
        # Looked for again: another process may have trained them until now.
        lacking = _lacking(references, arena, folder)
        return _train([Cycle(each, arena, folder) for each in lacking], until)


def _lacking(references: Iterable[Reference], arena: Arena, folder: Path) -> list[Reference]:
    found = []
    for reference in references:
        written = folder / f"{reference.name}.json"
        if written.exists():
            kept = read_json(written)
            check_same(kept, written, recipe=reference.recipe, seed=reference.seed, arena=arena)
            state_of(reference, folder).unlink(missing_ok=True)  # left by a kill at the very end
        else:
            found.append(reference)
    return found


def _train(cycles: Sequence[Cycle], until: float) -> bool:
    kept, lost = time.monotonic(), list[str]()
    while cycles:
        # Those whose cycle is over make room: the others are captured anew without them.
        engine = Engine([cycle.lane for cycle in cycles])
        going = list(cycles)
        while len(going) == len(cycles):
            late = time.monotonic() > until
            if late or time.monotonic() > kept + KEPT_EVERY:
                for cycle in cycles:
                    cycle.keep()
                kept = time.monotonic()
            if late:
                return False
            for cycle in cycles:
                cycle.fill()
            going = []
            for cycle, loss in zip(cycles, engine.epoch(), strict=True):
                try:
                    cycle.done(float(loss))
                except Diverged as error:
                    lost.append(str(error))
                    print(error, flush=True)  # time may be over before the others are through
                else:
                    going += [] if cycle.over else [cycle]
        cycles = going
    if lost:
        raise Diverged(" ".join(lost))
    return True
