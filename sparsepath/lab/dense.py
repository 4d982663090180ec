"""Dense references on the engine, several side by side; each resumes in the midst of its cycle."""

import json
import math
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from sparsepath.errors import BadInput
from sparsepath.lab.arena import Arena
from sparsepath.lab.engine import Engine
from sparsepath.lab.folders import circumstances, locked, sweep
from sparsepath.lab.starts import Reference, check_same, drawn, fresh, images_of, lane_of
from sparsepath.lab.training import seed_of
from sparsepath.lab.weights import load_weights, part, prefixed
from sparsepath.storage import read_json, read_tensors, write_json, write_tensors

KEPT_EVERY = 20.0
"""Seconds of training that a kill may cost."""


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
        self._state = folder / f"{reference.name}.state.safetensors"
        gone = self._resume() if self._state.exists() else 0.0
        self._began = time.monotonic() - gone

    def _resume(self) -> float:
        """Take up what is kept; the seconds that it took."""
        tensors, header = read_tensors(self._state)
        try:
            kept = json.loads(header["sparsepath"])
            self.epoch, gone = int(kept["epoch"]), float(kept["seconds"])
            momentum = tensors["momentum"].view_as(self.lane.momentum)
            record = dict(kept["record"])
        except (KeyError, TypeError, ValueError, RuntimeError) as error:
            raise BadInput(
                f"{str(self._state)!r} holds no training that this version knows; move it away."
            ) from error
        reference = self.reference
        check_same(
            record, self._state, recipe=reference.recipe, seed=reference.seed, arena=self.arena
        )
        load_weights(self.model, part(tensors, "W"), self._state)
        self.lane.momentum.copy_(momentum)
        return gone

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
        """Fill the lane with a fresh epoch, which the kind of network and its seed decide."""
        recipe, lane = self.reference.recipe, self.lane
        lane.rates.copy_(recipe.rates(self.epoch, len(lane.rates)))
        key = (self.reference.network, self.reference.seed, self.epoch)
        self.arena.fill(lane, drawn(self.arena, *key), shift=recipe.shift)
        lane.draw(seed_of(*key))

    def done(self, loss: float) -> None:
        """Count one epoch, and write the network down after the last."""
        self.epoch += 1
        # A last step may break the weights after a finite loss.
        if not math.isfinite(loss) or not self.lane.W.isfinite().all():
            raise BadInput(
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

    What a call leaves unfinished the next goes on with, beside whichever others.
    """
    lacking = []
    for reference in references:
        written = folder / f"{reference.name}.json"
        if written.exists():
            kept = read_json(written)
            check_same(kept, written, recipe=reference.recipe, seed=reference.seed, arena=arena)
        else:
            lacking.append(reference)
    if not lacking:
        return True
    with locked(folder):
        sweep(folder)
        return _train([Cycle(each, arena, folder) for each in lacking], until)


def _train(cycles: Sequence[Cycle], until: float) -> bool:
    kept = time.monotonic()
    while cycles:
        # Those whose cycle is over make room: the others are captured anew without them.
        engine = Engine([cycle.lane for cycle in cycles])
        while not any(cycle.over for cycle in cycles):
            over = time.monotonic() > until
            if over or time.monotonic() > kept + KEPT_EVERY:
                for cycle in cycles:
                    cycle.keep()
                kept = time.monotonic()
            if over:
                return False
            for cycle in cycles:
                cycle.fill()
            for cycle, loss in zip(cycles, engine.epoch(), strict=True):
                cycle.done(float(loss))
        cycles = [cycle for cycle in cycles if not cycle.over]
    return True
