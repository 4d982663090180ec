"""A point of a run on its way to a file: which one, its network, its images and its figures."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from sparsepath.errors import BadInput
from sparsepath.lab import models
from sparsepath.lab.bench import digest_of
from sparsepath.lab.data import Data, load, normalise
from sparsepath.lab.folders import Record, gather, settings_of, sparsest
from sparsepath.lab.settings import share
from sparsepath.lab.weights import load_weights
from sparsepath.storage import read_tensors

SHARED_STEPS, SHARED_BATCH, SHARED_RATE = 300, 64, 1e-4
BEST = "best.sparsepath"
"""What a run deploys when it ends."""


@dataclass(frozen=True)
class Wish:
    """Which point is wanted: by its number from 1, by what it must reach, or the run's choice."""

    point: int | None = None
    min_accuracy: float | None = None
    max_drop: float | None = None

    def __post_init__(self) -> None:
        """Refuse two wishes at once, and accuracies that are none."""
        given = [name for name in ("point", "min_accuracy", "max_drop") if self._has(name)]
        if len(given) > 1:
            flags = " and ".join(f"--{name.replace('_', '-')}" for name in given)
            raise BadInput(f"{flags} each choose a point: give one of them.")
        for name in ("min_accuracy", "max_drop"):
            if self._has(name):
                share(f"--{name.replace('_', '-')}", getattr(self, name))

    def _has(self, name: str) -> bool:
        return getattr(self, name) is not None

    def floor(self, record: Record) -> float:
        """The least validation accuracy of a point that will do."""
        dense = record["dense"]["validation"]
        if self.min_accuracy is not None:
            return self.min_accuracy
        drop = record["settings"]["tolerance"] if self.max_drop is None else self.max_drop
        return float(dense - drop)


def finished_run(folder: Path) -> Record:
    """The figures of a run that is done, or a sentence how to finish it."""
    settings_of(folder)
    record = gather(folder)
    if not record["finished"]:
        done = len(record["points"])
        raise BadInput(
            f"The run in {str(folder)!r} is unfinished, {done} of {record['settings']['points']} "
            f"points: go on with `sparsepath run --settings {folder / 'settings.toml'} "
            f"--out {folder}`, then deploy it."
        )
    return record


def picked(record: Record, wish: Wish) -> Record:
    """The point that is wanted, or a sentence that names the nearest."""
    points: list[Record] = record["points"]
    if not points:
        raise BadInput(f"{record['name']!r} has no points: nothing can be deployed.")
    if wish.point is not None:
        if not 1 <= wish.point <= len(points):
            raise BadInput(
                f"There is no point {wish.point}: {record['name']!r} has the points 1 to "
                f"{len(points)}."
            )
        return points[wish.point - 1]
    floor = wish.floor(record)
    found = sparsest(points, floor)
    if found is None:
        nearest = sparsest(points, max(point["validation"] for point in points))
        assert nearest is not None
        raise BadInput(
            f"No point of {record['name']!r} has {100 * floor:.2f} % in validation; the nearest is "
            f"point {nearest['index'] + 1} with {100 * nearest['validation']:.2f} %: deploy it "
            f"with --point {nearest['index'] + 1}."
        )
    return found


@dataclass(frozen=True)
class Deployable:
    """The dense network of a run and one of its points, with the images that judge them."""

    dense: nn.Module
    sparse: nn.Module
    data: Data
    figures: Mapping[str, Any]
    """what a file should say of the point, known before the file is"""

    def images(self, count: int) -> Tensor:
        """The first images of the test, as the network takes them."""
        return normalise(self.data.test.images[:count], self.data)

    def calibration(self, count: int = 256, *, batch: int = 32) -> list[Tensor]:
        """Images of the training, in batches: the test must not decide anything."""
        return list(normalise(self.data.train.images[:count], self.data).split(batch))

    def train(self, model: nn.Module) -> None:
        """A short training of numbers that many weights share: Adam, down to a rate of zero."""
        optimizer = torch.optim.Adam(model.parameters(), lr=SHARED_RATE)
        order = torch.randperm(
            SHARED_STEPS * SHARED_BATCH, generator=torch.Generator().manual_seed(0)
        )
        split = self.data.train
        for step, batch in enumerate((order % len(split)).split(SHARED_BATCH)):
            optimizer.param_groups[0]["lr"] = SHARED_RATE * (1 - step / SHARED_STEPS)
            images = normalise(split.images[batch], self.data)
            optimizer.zero_grad()
            functional.cross_entropy(model(images), split.labels[batch]).backward()
            optimizer.step()

    def test(self, run: Callable[[Tensor], Tensor], *, batch: int = 500) -> float:
        """The share of the test's images that a function names rightly."""
        split = self.data.test
        right = sum(
            int((run(normalise(images, self.data)).argmax(1) == labels).sum())
            for images, labels in zip(
                split.images.split(batch), split.labels.split(batch), strict=True
            )
        )
        return right / len(split)


def deployable(folder: Path, record: Record, point: Record) -> Deployable:
    """Load a point and the dense reference on the CPU, once the data is known to be the run's."""
    settings = settings_of(folder)
    data = load(settings.data, validation=settings.validation, seed=settings.seed)
    if digest_of(data) != record["dense"]["digests"]["data"]:
        raise BadInput(
            f"The data of the run in {str(folder)!r} changed since it began, so that its accuracy "
            "cannot be measured again: restore it."
        )

    def network(file: Path) -> nn.Module:
        made = models.build(settings.network, classes=data.classes, image_shape=data.image_shape)
        load_weights(made, read_tensors(file)[0], file)
        return made.eval()

    number = point["index"] + 1
    figures = {
        "run": record["name"],
        "network": settings.network,
        "data": data.name,
        "classes": data.classes,
        "image_shape": list(data.image_shape),
        "mean": data.mean.tolist(),
        "std": data.std.tolist(),
        # The file may be rounded: these are figures of the point that it was made from.
        "point": {
            "number": number,
            **{name: point[name] for name in ("mu", "validation", "test", "sparsity", "macs")},
        },
    }
    return Deployable(
        network(folder / "dense.safetensors"),
        network(folder / "points" / f"{number:02d}.safetensors"),
        data,
        json.loads(json.dumps(figures)),
    )
