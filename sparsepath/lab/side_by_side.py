"""Dense references and paths, several at once on one engine; a path resumes at any stage."""

import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from sparsepath.admm import ADMM
from sparsepath.errors import BadInput
from sparsepath.guard import mean_norm_guard
from sparsepath.lab.arena import Arena, accuracy
from sparsepath.lab.choices import PENALTIES
from sparsepath.lab.engine import Engine, Lane, Optimizer
from sparsepath.lab.folders import circumstances
from sparsepath.lab.models import Network, build
from sparsepath.lab.recipes import DenseRecipe, PathRecipe
from sparsepath.lab.state import plain_residuals, read_state, write_state
from sparsepath.lab.training import seed_of
from sparsepath.lab.weights import load_checkpoint
from sparsepath.metrics import macs
from sparsepath.path import PathPoint, Progress, Stage, stages
from sparsepath.storage import read_json, write_json, write_tensors


@dataclass(frozen=True)
class Job:
    """One path to walk from a dense reference."""

    network: str
    penalty: str
    recipe: PathRecipe
    seed: int = 0
    variant: str = ""

    @property
    def name(self) -> str:
        """What its files are called."""
        return "-".join(part for part in (self.network, self.penalty, self.variant) if part)


def train_dense(
    recipes: dict[str, DenseRecipe], arena: Arena, folder: Path, *, seed: int = 0
) -> None:
    """Train the dense references that `folder` lacks, all side by side."""
    names = []
    for name, recipe in recipes.items():
        written = folder / f"{name}.json"
        if written.exists():
            wanted = {"recipe": asdict(recipe), "seed": seed, **_data(arena)}
            _check_same(read_json(written), wanted, written)
        else:
            names.append(name)
    if not names:
        return
    began = time.monotonic()
    lanes = [_lane(_fresh(name, arena, seed=seed), arena) for name in names]
    engine = Engine(lanes, Optimizer())
    losses = []
    for epoch in range(max(recipes[name].epochs for name in names)):
        for name, lane in zip(names, lanes, strict=True):
            lane.rates.copy_(recipes[name].rates(epoch, engine.steps))
            arena.fill(lane, _generator(arena, name, seed, epoch))
        losses = engine.epoch()
    for name, lane, loss in zip(names, lanes, losses, strict=True):
        figures: dict[str, Any] = {
            "network": name,
            **_data(arena),
            "recipe": asdict(recipes[name]),
            "seed": seed,
            "loss": float(loss),
            **arena.accuracies(lane.model),
            "seconds_side_by_side": time.monotonic() - began,
            **circumstances(arena.device),
        }
        write_tensors(folder / f"{name}.safetensors", lane.model.state_dict(), {})
        write_json(folder / f"{name}.json", figures)
        print(f"dense {name}: {arena.accuracies(lane.model)}", flush=True)


def _fresh(name: str, arena: Arena, *, seed: int) -> Network:
    torch.manual_seed(seed)
    model = build(name, classes=arena.data.classes, image_shape=arena.data.image_shape)
    return model.to(arena.device).train()


def _lane(model: Network, arena: Arena, *, decay: float = 5e-4) -> Lane:
    batch = Optimizer().batch
    dtype = torch.bfloat16 if arena.device.type == "cuda" else torch.float32
    return Lane(
        model,
        sparsified=[f"{layer}.weight" for layer in model.sparsified],
        example=arena.example(batch, dtype),
        steps=arena.steps(batch),
        decay=decay,
    )


def _generator(arena: Arena, *key: object) -> torch.Generator:
    return torch.Generator(arena.device).manual_seed(seed_of(*key))


class Walk:
    """One job on its lane: the path's generator, the stage in hand, and what is kept on disk."""

    def __init__(self, job: Job, arena: Arena, *, dense: Path, folder: Path) -> None:
        """Start from the dense reference, or from where an earlier call left off."""
        self.job, self.arena, self.folder = job, arena, folder
        self.model = _fresh(job.network, arena, seed=job.seed)
        load_checkpoint(self.model, dense / f"{job.network}.safetensors")
        recipe = job.recipe
        self.lane = _lane(self.model, arena, decay=recipe.decay)
        self.admm = ADMM(
            self.model,
            PENALTIES[job.penalty],
            rho=recipe.rho,
            layers=self.model.sparsified,
            guard=None if recipe.guard is None else mean_norm_guard(recipe.guard),
        )
        self.record: dict[str, Any] = {
            "network": job.network,
            "penalty": job.penalty,
            "variant": job.variant,
            "seed": job.seed,
            **_data(arena),
            "recipe": recipe.plain(),
            "dense": arena.accuracies(self.model),
            "mus": recipe.mus(self.admm),
            "points": [],
            "seconds": 0.0,
            **circumstances(arena.device),
        }
        progress = self._resume()
        self._began = time.monotonic() - self.record["seconds"]
        self._items = stages(
            self.admm,
            evaluate=lambda model: accuracy(model, arena.judged),
            mus=self.record["mus"],
            schedule=recipe.schedule,
            restart=recipe.restart,
            start=progress,
            checkpoint=self._keep,
        )
        self.stage: Stage | None = None
        self.epoch = 0
        self._advance()

    @property
    def _state(self) -> Path:
        return self.folder / f"{self.job.name}.state.safetensors"

    def _keep(self, progress: Progress) -> None:
        self.record["seconds"] = time.monotonic() - self._began
        write_state(self._state, self.admm, progress=progress, about={"record": self.record})

    def _resume(self) -> Progress | None:
        written = self.folder / f"{self.job.name}.json"
        if not self._state.exists():
            if written.exists():
                raise BadInput(
                    f"{str(written)!r} is of a path without its state, which would be overwritten: "
                    f"move it away, or choose another folder."
                )
            return None
        progress, about = read_state(self._state, self.admm)
        _check_same(about["record"], self.record, self._state)
        self.record = about["record"]
        return progress

    def _advance(self) -> None:
        """Take the path's next stage; write down any point on the way."""
        self.epoch = 0
        for item in self._items:
            if isinstance(item, Stage):
                self.stage = item
                if item.iteration is None:
                    self.lane.begin(support=item.support)
                else:
                    self.lane.begin(U=self.admm.U, rho=self.admm.rho)
                return
            self._write(item)
        self.stage = None
        self._state.unlink(missing_ok=True)

    def _write(self, point: PathPoint) -> None:
        counted = macs(self.model, self.arena.judged[0][:1])
        last = point.residuals[-1]
        self.record["points"].append(
            {
                "index": point.index,
                "position": point.index / (self.job.recipe.points - 1),
                "mu": point.mu,
                "accuracy_W": point.accuracy_W,
                "accuracy_F": point.accuracy_F,
                **self.arena.accuracies(self.model),
                "iterations": len(point.residuals),
                "converged": point.converged,
                "epochs": point.epochs,
                "sparsity": asdict(point.sparsity),
                "macs": {**asdict(counted), "speedup": counted.speedup},
                "residuals": plain_residuals(point.residuals),
            }
        )
        self.record["seconds"] = time.monotonic() - self._began
        write_json(self.folder / f"{self.job.name}.json", self.record)
        write_tensors(self.folder / f"{self.job.name}.safetensors", point.weights, {})
        print(
            f"{self.job.name} {point.index}: mu {point.mu:.3g}, W {point.accuracy_W:.4f}, "
            f"F {point.accuracy_F:.4f}, fine-tuned {point.accuracy:.4f}, zero blocks "
            f"{point.sparsity.of_blocks:.4f}, {len(point.residuals)} iterations, "
            f"||W - F|| {last.primal:.3g}, {self.record['seconds']:.0f} s",
            flush=True,
        )

    def fill(self) -> None:
        """Fill the lane with a fresh epoch, which the numbers of the stage alone decide."""
        assert self.stage is not None
        rates = self.job.recipe.rates(self.stage, self.epoch, len(self.lane.rates))
        self.lane.rates.copy_(rates)
        key = (self.job.seed, self.stage.index, self.stage.iteration, self.epoch)
        self.arena.fill(self.lane, _generator(self.arena, *key))

    def done(self, loss: float) -> None:
        """Count one epoch, and go on to the next stage after the last."""
        assert self.stage is not None
        if loss != loss:
            raise BadInput(
                f"{self.job.name}: the loss is NaN at mu = {self.stage.mu:g}; the state before "
                f"this stage is kept in {str(self._state)!r}."
            )
        self.epoch += 1
        if self.epoch == self.stage.epochs:
            self._advance()


def _finished(job: Job, arena: Arena, folder: Path) -> bool:
    written = folder / f"{job.name}.json"
    if not written.exists():
        return False
    record = read_json(written)
    wanted = {"recipe": job.recipe.plain(), "seed": job.seed, **_data(arena)}
    _check_same(record, wanted, written)
    return len(record["points"]) > job.recipe.last


def _data(arena: Arena) -> dict[str, Any]:
    return {"data": arena.data.name, "training_images": len(arena.padded)}


def _check_same(kept: dict[str, Any], wanted: dict[str, Any], path: Path) -> None:
    """Refuse what other settings made, or another data set."""
    for what in ("recipe", "seed", "data", "training_images"):
        if what in wanted and kept[what] != wanted[what]:
            raise BadInput(
                f"{str(path)!r} was made with {what} {kept[what]}, not with {wanted[what]}: "
                f"choose another folder."
            )


def walk_paths(
    jobs: Sequence[Job], arena: Arena, *, dense: Path, folder: Path, until: float
) -> bool:
    """Walk all jobs side by side until done or until this monotonic time; whether all are done."""
    pending = [job for job in jobs if not _finished(job, arena, folder)]
    walks = [Walk(job, arena, dense=dense, folder=folder) for job in pending]
    while walks := [walk for walk in walks if walk.stage is not None]:
        # A lane that is through leaves, and the others are captured anew without it.
        engine = Engine([walk.lane for walk in walks], Optimizer())
        while all(walk.stage is not None for walk in walks):
            if time.monotonic() > until:
                return False
            for walk in walks:
                walk.fill()
            for walk, loss in zip(walks, engine.epoch(), strict=True):
                walk.done(float(loss))
    return True
