"""Paths of any method on one engine, side by side; each resumes at any stage, on any machine."""

import copy
import math
import time
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

from sparsepath.admm import ADMM
from sparsepath.errors import BadInput
from sparsepath.guard import mean_norm_guard
from sparsepath.lab.abreast import Training, state_of, train_abreast
from sparsepath.lab.arena import Arena, accuracy
from sparsepath.lab.choices import PENALTIES
from sparsepath.lab.jobs import METHODS, Job
from sparsepath.lab.recipes import median_norm
from sparsepath.lab.records import images_of, made_by, taken_up
from sparsepath.lab.starts import drawn, fresh, lane_of
from sparsepath.lab.state import plain_residuals, read_state, snapshot
from sparsepath.lab.training import Diverged, seed_of
from sparsepath.lab.weights import digest_of, load_checkpoint
from sparsepath.metrics import macs
from sparsepath.path import PathPoint, Progress, Stage, stages
from sparsepath.storage import read_json, write_json, write_tensors


class Walk(Training):
    """One job on its lane: the path's generator, the stage in hand, and what is kept on disk."""

    def __init__(self, job: Job, arena: Arena, *, dense: Path, folder: Path) -> None:
        """Start from the dense reference, or from where an earlier call left off."""
        super().__init__(job.name, folder)
        self.job, self.arena, self.folder = job, arena, folder
        recipe = job.recipe
        self.model = fresh(job.start.network, arena, seed=job.seed, dropout=job.shared("dropout"))
        digest = load_checkpoint(self.model, dense / f"{job.start.name}.safetensors")
        self.admm = ADMM(
            self.model,
            METHODS[job.method],
            rho=recipe.rho,
            layers=self.model.sparsified,
            guard=None if recipe.guard is None else mean_norm_guard(recipe.guard),
        )
        lasso = self.admm.blocks if job.method == "ssl" else None
        # A copy: the model's own weights are the dense network's no longer than until now.
        teacher = copy.deepcopy(self.model) if recipe.distil else None
        self.lane = lane_of(
            self.model,
            arena,
            decay=recipe.decay,
            beta=recipe.momentum,
            lasso=lasso,
            teacher=teacher,
            distil=recipe.distil,
        )
        self.record: dict[str, Any] = {
            "network": job.start.network,
            "penalty": job.method,
            "variant": job.variant,
            "seed": job.seed,
            "dense_seed": job.start.seed,
            "start": {"name": job.start.name, "digest": digest},
            **images_of(arena),
            "recipe": recipe.plain(),
            "dense": arena.accuracies(self.model),
            "mus": recipe.mus(self.admm),
            "points": [],
            "seconds": 0.0,
            **made_by(arena),
        }
        self.median = median_norm(self.admm)
        progress = self._resume()
        self._began = time.monotonic() - self.record["seconds"]
        self._items = stages(
            self.admm,
            evaluate=lambda model: accuracy(model, arena.judged),
            mus=self.record["mus"],
            schedule=recipe.schedule,
            restart=recipe.restart,
            start=progress,
            checkpoint=self._checkpoint,
        )
        self.stage: Stage | None = None
        self.epoch = 0
        if progress is None:
            self._checkpoint(Progress())
        self._advance()

    def _checkpoint(self, progress: Progress) -> None:
        self.record["seconds"] = time.monotonic() - self._began
        self.keep(snapshot(self.admm, progress=progress, about={"record": self.record}))

    def _resume(self) -> Progress | None:
        if not self.state.exists():
            return None
        progress, about = read_state(self.state, self.admm)
        kept: dict[str, Any] = about.get("record", {})
        self.job.check(kept, self.state, self.arena)
        if kept.setdefault("start", self.record["start"]) != self.record["start"]:
            raise BadInput(
                f"The dense network {self.job.start.name!r} changed since the walk of "
                f"{str(self.state)!r} began: move that walk away."
            )
        self.record = taken_up(kept, self.arena, points=len(kept["points"]))
        return progress

    def _advance(self) -> None:
        """Take the path's next stage; write down any point on the way."""
        self.epoch = 0
        for item in self._items:
            if isinstance(item, Stage):
                self.stage = item
                self._begin(item)
                return
            self._write(item)
        self.stage = None
        self.forget()

    def _begin(self, stage: Stage) -> None:
        recipe = self.job.recipe
        self.lane.decay.fill_(recipe.decay_in(stage))
        if stage.iteration is None:
            self.lane.begin(support=stage.support)
        elif self.job.method in PENALTIES:
            grown = recipe.ramp**stage.iteration
            self.admm.rho, self.admm.mu = recipe.rho * grown, stage.mu * grown
            self.lane.begin(U=self.admm.U, rho=self.admm.rho)
        else:
            self.lane.begin()
            if self.job.method == "ssl":
                # SGD with momentum moves by rate / (1 - beta) for every step of a constant pull.
                steps = len(self.lane.rates)
                rates = [recipe.rates(stage, epoch, steps).sum() for epoch in range(stage.epochs)]
                moved = float(sum(rates)) / (1 - recipe.momentum)
                self.lane.lasso.fill_(recipe.lasso[stage.index] * self.median / moved)

    def _write(self, point: PathPoint) -> None:
        counted = macs(self.model, self.arena.judged[0][:1])
        last = point.residuals[-1]
        self.record["points"].append(
            {
                "index": point.index,
                "position": point.index / max(1, self.job.recipe.points - 1),
                "mu": point.mu,
                "accuracy_W": point.accuracy_W,
                "accuracy_F": point.accuracy_F,
                self.arena.judges: point.accuracy,
                "iterations": len(point.residuals),
                "converged": point.converged,
                "epochs": point.epochs,
                "sparsity": asdict(point.sparsity),
                "macs": {**asdict(counted), "speedup": counted.speedup},
                "residuals": plain_residuals(point.residuals),
            }
        )
        self.record["seconds"] = time.monotonic() - self._began
        name = f"{self.job.name}-{point.index}" if self.job.keep_all else self.job.name
        # Before the record: a path whose record has its last point is never taken up again.
        write_tensors(self.folder / f"{name}.safetensors", point.weights, {})
        write_json(self.folder / f"{self.job.name}.json", self.record)
        print(
            f"{self.job.name} {point.index}: mu {point.mu:.3g}, W {point.accuracy_W:.4f}, "
            f"F {point.accuracy_F:.4f}, fine-tuned {point.accuracy:.4f}, zero blocks "
            f"{point.sparsity.of_blocks:.4f}, {len(point.residuals)} iterations, "
            f"||W - F|| {last.primal:.3g}, {self.record['seconds']:.0f} s",
            flush=True,
        )

    @property
    def key(self) -> tuple[object, ...]:
        """What decides the images of this epoch and the masks of dropout."""
        assert self.stage is not None
        return (self.job.seed, self.stage.index, self.stage.iteration, self.epoch)

    def fill(self) -> None:
        """Fill the lane with a fresh epoch, which the numbers of the stage alone decide."""
        assert self.stage is not None
        rates = self.job.recipe.rates(self.stage, self.epoch, len(self.lane.rates))
        self.lane.rates.copy_(rates)
        shift, hole = self.job.shared("shift"), self.job.shared("hole")
        self.arena.fill(self.lane, drawn(self.arena, *self.key), shift=shift, hole=hole)
        self.lane.draw(seed_of(*self.key))

    def done(self, loss: float) -> None:
        """Count one epoch, and go on to the next stage after the last."""
        assert self.stage is not None
        whole = self.lane.whole()
        if not math.isfinite(loss) or not whole:
            self.write()
            broken = f"the loss is {loss}{'' if whole else ' and the weights are not finite'}"
            raise Diverged(
                f"{self.job.name}: {broken} at mu = {self.stage.mu:g}; the state before this stage "
                f"is kept in {str(self.state)!r}."
            )
        self.epoch += 1
        if self.epoch == self.stage.epochs:
            self._advance()


def _finished(job: Job, arena: Arena, folder: Path) -> bool:
    written, state = folder / f"{job.name}.json", state_of(job.name, folder)
    if not written.exists():
        return False
    record = read_json(written)
    job.check(record, written, arena)
    done = len(record["points"]) == job.recipe.length
    if done:
        state.unlink(missing_ok=True)  # left by a kill after the last point
    elif not state.exists():
        raise BadInput(
            f"{str(written)!r} is of a path without its state, which would be overwritten: "
            f"move it away, or choose another folder."
        )
    return done


def unfinished(jobs: Iterable[Job], arena: Arena, folder: Path) -> list[Job]:
    """The jobs that have not been walked to their end.

    A record of other settings is refused, and one that lacks the state to go on from.
    """
    return [job for job in jobs if not _finished(job, arena, folder)]


def check_starts(jobs: Iterable[Job], *, dense: Path, folder: Path) -> None:
    """Refuse to walk on beside records that come from other dense networks of the same names."""
    for job in jobs:
        written, weights = folder / f"{job.name}.json", dense / f"{job.start.name}.safetensors"
        digest = read_json(written).get("start", {}).get("digest") if written.exists() else None
        if digest and (not weights.exists() or digest_of(weights) != digest):
            raise BadInput(
                f"{str(written)!r} was walked from another network than {str(weights)!r} is, or "
                "will be: put the weights of that one there, or move that record away."
            )


def walk_paths(
    jobs: Sequence[Job],
    arena: Arena,
    *,
    dense: Path,
    folder: Path,
    until: float,
) -> bool:
    """Walk all jobs, side by side, until done or until this time; whether all are done."""
    left = unfinished(jobs, arena, folder)
    starts = [partial(Walk, job, arena, dense=dense, folder=folder) for job in left]
    return train_abreast(starts, until=until)
