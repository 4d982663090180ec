"""Dense references on the engine, several side by side; each resumes in the midst of its cycle."""

import json
import math
import time
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import Any

from sparsepath.errors import BadInput, checked_number
from sparsepath.lab.abreast import Training, state_of, train_abreast
from sparsepath.lab.arena import Arena
from sparsepath.lab.folders import locked, sweep
from sparsepath.lab.records import check_same, images_of, made_by, taken_up
from sparsepath.lab.starts import Reference, drawn, fresh, lane_of
from sparsepath.lab.training import Diverged, seed_of
from sparsepath.lab.weights import copied, load_weights, part
from sparsepath.storage import read_json, read_tensors, write_json, write_tensors


class Cycle(Training):
    """One reference on its lane, in the middle of its cycle, and what is kept of it on disk."""

    def __init__(self, reference: Reference, arena: Arena, folder: Path) -> None:
        """Start from fresh weights, or from where an earlier call left off."""
        super().__init__(reference.name, folder)
        self.reference, self.arena, self.folder = reference, arena, folder
        dropout = reference.recipe.dropout
        self.model = fresh(reference.network, arena, seed=reference.seed, dropout=dropout)
        self.lane = lane_of(self.model, arena, decay=reference.recipe.decay)
        self.record: dict[str, Any] = {
            "network": reference.network,
            **images_of(arena),
            "recipe": reference.recipe.plain(),
            "seed": reference.seed,
            **made_by(arena),
        }
        self.epoch = 0
        gone = self._resume() if self.state.exists() else 0.0
        self._began = time.monotonic() - gone

    def _resume(self) -> float:
        """Take up what is kept; the seconds that it took."""
        tensors, header = read_tensors(self.state)
        reference = self.reference
        recipe, seed = reference.recipe, reference.seed
        try:
            kept = json.loads(header["sparsepath"])
            record, gone = dict(kept["record"]), checked_number("seconds", kept["seconds"])
            check_same(record, self.state, recipe=recipe, seed=seed, arena=self.arena)
            momentum = tensors["momentum"].view_as(self.lane.momentum)
            fits = 0 < kept["epoch"] < recipe.epochs and bool(momentum.isfinite().all())
        except BadInput:
            raise
        except (KeyError, TypeError, ValueError, RuntimeError) as error:
            raise self._unknown() from error
        if not fits:
            raise self._unknown()
        load_weights(self.model, part(tensors, "W"), self.state)
        self.lane.momentum.copy_(momentum)
        self.epoch = int(kept["epoch"])
        self.record = taken_up(record, self.arena, epochs=self.epoch)
        return gone

    def _unknown(self) -> BadInput:
        return BadInput(
            f"{str(self.state)!r} holds no training that this version knows; move it away."
        )

    @property
    def seconds(self) -> float:
        """How long it has trained, the others beside it."""
        return time.monotonic() - self._began

    def fill(self) -> None:
        """Fill the lane with a fresh epoch; recipes of one network and seed are given the same."""
        recipe, lane = self.reference.recipe, self.lane
        lane.rates.copy_(recipe.rates(self.epoch, len(lane.rates)))
        key = (self.reference.network, self.reference.seed, self.epoch)
        self.arena.fill(lane, drawn(self.arena, *key), shift=recipe.shift, hole=recipe.hole)
        lane.draw(seed_of(*key))

    def done(self, loss: float) -> None:
        """Count one epoch, and write the network down after the last."""
        self.epoch += 1
        if not math.isfinite(loss) or not self.lane.whole():
            # It would only break again: with another rate it is another training.
            self.forget()
            raise Diverged(
                f"The loss of the dense {self.reference.name} is no longer finite in epoch "
                f"{self.epoch}: lower its rate of {self.reference.recipe.rate:g}."
            )
        if self.epoch == self.reference.recipe.epochs:
            self._finish(loss)
            return
        about = {"epoch": self.epoch, "seconds": self.seconds, "record": self.record}
        tensors = {**copied("W", self.model.state_dict()), "momentum": self.lane.momentum.clone()}
        self.keep((tensors, {"sparsepath": json.dumps(about)}))

    def _finish(self, loss: float) -> None:
        accuracies = self.arena.accuracies(self.model)
        figures = {"loss": loss, **accuracies, "seconds_side_by_side": self.seconds}
        name = self.reference.name
        write_tensors(self.folder / f"{name}.safetensors", self.model.state_dict(), {})
        write_json(self.folder / f"{name}.json", {**self.record, **figures})
        self.forget()
        print(f"dense {name}: {accuracies}", flush=True)


def train_dense(
    references: Iterable[Reference], arena: Arena, folder: Path, *, until: float = math.inf
) -> bool:
    """Train the dense references that `folder` lacks, side by side; False if time was over.

    What a call leaves unfinished the next goes on with, beside whichever others.
    """
    references = list(references)
    if not _lacking(references, arena, folder):
        return True
    with locked(folder):
        sweep(folder)
        # Looked for again: another process may have trained them until now.
        lacking = _lacking(references, arena, folder)
        starts = [partial(Cycle, each, arena, folder) for each in lacking]
        return train_abreast(starts, until=until)


def _lacking(references: Iterable[Reference], arena: Arena, folder: Path) -> list[Reference]:
    found = []
    for reference in references:
        written = folder / f"{reference.name}.json"
        weights = written.with_suffix(".safetensors")
        if not written.exists():
            # A kill may leave the weights before their record, but then with a state.
            if weights.exists() and not state_of(reference.name, folder).exists():
                raise BadInput(
                    f"{str(weights)!r} came without its record: put {written.name} beside it, or "
                    "move it away, since it would be overwritten."
                )
            found.append(reference)
            continue
        kept = read_json(written)
        check_same(kept, written, recipe=reference.recipe, seed=reference.seed, arena=arena)
        if not weights.exists():
            # Not trained again: it would be another network under the same name.
            raise BadInput(
                f"{str(written)!r} came without its weights: put {reference.name}.safetensors "
                "beside it, or move it and all that was walked from it away."
            )
        # A kill at the very end may have left it.
        state_of(reference.name, folder).unlink(missing_ok=True)
    return found
