"""What every stage of a run works with: the data, the network, its ADMM and who watches."""

import hashlib
import json
import re
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import torch

from sparsepath.lab import models
from sparsepath.lab.choices import admm_of, device_of, schedule_of
from sparsepath.lab.data import Data, load
from sparsepath.lab.folders import Record
from sparsepath.lab.settings import Settings
from sparsepath.lab.training import Recipe, accuracy, seed_of, seeded
from sparsepath.lab.weights import load_checkpoint
from sparsepath.metrics import macs
from sparsepath.residuals import Residuals

DENSE = "dense reference"
"""What the stage before the path is called."""


def stage_name(index: int, iteration: int | None) -> str:
    """What a stage of the path is called, counted from 1 for people; no iteration: fine-tune."""
    return (
        f"point {index + 1}, {'fine-tune' if iteration is None else f'iteration {iteration + 1}'}"
    )


def stage_place(name: str) -> tuple[int, int | None] | None:
    """The index and the iteration of a stage of the path by its name, None for another stage."""
    found = re.fullmatch(r"point (\d+), (?:iteration (\d+)|fine-tune)", name)
    return found and (int(found[1]) - 1, None if found[2] is None else int(found[2]) - 1)


class Watch:
    """What a run tells while it goes; this one keeps quiet, a subclass may show it."""

    def begin(self, folder: Path) -> None:
        """The run begins, or goes on, in this folder."""

    def epoch(self, stage: str, *, done: int, planned: int, loss: float) -> None:
        """One more epoch is done, of so many at most, with this mean loss."""

    def iteration(self, index: int, residuals: Sequence[Residuals]) -> None:
        """One more ADMM iteration of this point is done; the residuals of all it had so far."""

    def dense(self, record: Record) -> None:
        """The dense reference is there."""

    def point(self, record: Record) -> None:
        """One point of the path is there."""


class Watches(Watch):
    """Several that watch the same run."""

    def __init__(self, *watches: Watch) -> None:
        """All are told everything, in this order."""
        self.watches = watches

    def begin(self, folder: Path) -> None:
        """The run begins, or goes on, in this folder."""
        for watch in self.watches:
            watch.begin(folder)

    def epoch(self, stage: str, *, done: int, planned: int, loss: float) -> None:
        """One more epoch is done."""
        for watch in self.watches:
            watch.epoch(stage, done=done, planned=planned, loss=loss)

    def iteration(self, index: int, residuals: Sequence[Residuals]) -> None:
        """One more ADMM iteration is done."""
        for watch in self.watches:
            watch.iteration(index, residuals)

    def dense(self, record: Record) -> None:
        """The dense reference is there."""
        for watch in self.watches:
            watch.dense(record)

    def point(self, record: Record) -> None:
        """One point of the path is there."""
        for watch in self.watches:
            watch.point(record)


class Bench:
    """A run's data, network and ADMM, as its settings describe them."""

    def __init__(
        self, settings: Settings, folder: Path, watch: Watch, *, dense_only: bool = False
    ) -> None:
        """Build all that the settings name, before anything is written."""
        self.settings, self.folder, self.watch = settings, folder, watch
        self.dense_only = dense_only
        torch.set_num_threads(settings.threads)
        self.device = device_of(settings)
        data = load(settings.data, validation=settings.validation, seed=settings.seed)
        self.data = data.to(self.device)
        with seeded(seed_of(settings.seed, "weights"), self.device):
            network = models.build(
                settings.network, classes=data.classes, image_shape=data.image_shape
            )
        # In this memory order convolutions on the CPU take two thirds of the time.
        self.model = network.to(self.device).to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        self.digests = {"data": digest_of(data)}
        if settings.checkpoint is not None:
            checkpoint = Path(settings.checkpoint)
            self.digests["checkpoint"] = load_checkpoint(self.model, checkpoint)
        self.admm = admm_of(settings, self.model, layers=network.sparsified)
        self.schedule = schedule_of(settings)
        self.dense_epochs = 0 if settings.checkpoint else settings.dense_epochs

    def recipe(self, rate: float, *, warmup: float = 0.0, final: float = 1.0) -> Recipe:
        """How SGD trains at this rate."""
        return Recipe(
            rate,
            momentum=self.settings.momentum,
            decay=self.settings.decay,
            batch=self.settings.batch,
            shift=self.settings.shift,
            flip=self.settings.flip,
            warmup=warmup,
            final=final,
        )

    def planned(self, points: int | None = None) -> int:
        """The most epochs of the whole run, or until so many points are done."""
        points = self.settings.points if points is None else points
        path = [self.schedule.epochs(index) * (self.schedule.xi + 1) for index in range(points)]
        return self.dense_epochs + sum(path)

    def validation(self) -> float:
        """The accuracy by which everything is chosen."""
        return accuracy(self.model, self.data.validation, self.data)

    def test(self) -> float:
        """The accuracy that is only reported."""
        return accuracy(self.model, self.data.test, self.data)

    def macs(self) -> Record:
        """Multiplications of one image, in all weights and in those that are not zero."""
        counted = macs(self.model, torch.zeros(1, *self.data.image_shape, device=self.device))
        return {**asdict(counted), "speedup": counted.speedup}

    def header(self) -> dict[str, str]:
        """What a weights file says of itself, in one entry: several have no fixed order."""
        about = {
            "network": self.settings.network,
            "classes": self.data.classes,
            "image_shape": self.data.image_shape,
            "mean": self.data.mean.tolist(),
            "std": self.data.std.tolist(),
        }
        return {"sparsepath": json.dumps(about)}


def digest_of(data: Data) -> str:
    """What tells this data from any other."""
    digest = hashlib.sha256()
    for split in (data.train, data.validation, data.test):
        digest.update(split.images.contiguous().numpy().data)
        digest.update(split.labels.numpy().data)
    return digest.hexdigest()
