"""The paper's experiments from one call, which any later call, anywhere, continues."""

import fnmatch
import time
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from functools import partial
from itertools import groupby
from pathlib import Path

import torch

from sparsepath.errors import BadInput
from sparsepath.lab.abreast import train_abreast
from sparsepath.lab.arena import Arena
from sparsepath.lab.data import Data, load
from sparsepath.lab.dense import train_dense
from sparsepath.lab.experiments import FLIPPED, NETWORKS
from sparsepath.lab.folders import locked, sweep
from sparsepath.lab.jobs import Job
from sparsepath.lab.memory import keep_freed
from sparsepath.lab.parts import COMPARED, EXPERIMENTS, Part, parts
from sparsepath.lab.records import CONTENTS
from sparsepath.lab.walks import Walk, check_starts, unfinished

PUBLISHED = {"cifar-10": "cifar10", "cifar-100": "cifar100", "svhn": "svhn"}
"""What official files call themselves."""


@dataclass(frozen=True)
class Lab:
    """Where data is found, results go, and work is done, and until when."""

    data: Path
    folder: Path
    device: torch.device
    until: float
    bfloat16: bool | None = None
    """None for what is usual on the device"""
    only: Sequence[str] = ()
    """patterns, one of which a walk's name must match; any will do if there are none"""

    def wants(self, job: Job) -> bool:
        """Whether this walk is one of those that were asked for."""
        return not self.only or any(fnmatch.fnmatch(job.name, each) for each in self.only)

    def images(self, name: str) -> Data:
        """A data set, once it has shown to be the one of this name."""
        place = place_of(self.data, name)
        data = load(place)
        if PUBLISHED.get(data.name, name) != name:
            raise BadInput(f"{str(place)!r} holds {data.name}, not {name}: move it away.")
        training = len(data.train) + len(data.validation)
        found = (training, len(data.test), data.classes, data.image_shape)
        if found != CONTENTS[name]:
            raise BadInput(
                f"{str(place)!r} holds {_spoken(*found)}; {name} is {_spoken(*CONTENTS[name])}: "
                "put that there, or name another folder with --data."
            )
        return replace(data, name=name)

    def arena(self, name: str) -> Arena:
        """A data set on the device, every image of the training set for training."""
        return Arena(
            self.images(name),
            self.device,
            flip=FLIPPED[name],
            final=True,
            bfloat16=self.bfloat16,
        )

    def walk(self, wanted: Sequence[Part]) -> bool:
        """Walk all jobs of one data set's parts, and gather what is there; False if time was over.

        They go side by side, whatever part they are of: few would leave a GPU idle.
        """
        (name,) = {part.data for part in wanted}
        arena, place = self.arena(name), self.folder / name
        with ExitStack() as held:
            for part in wanted:
                held.enter_context(locked(place / part.name))
                sweep(place / part.name)
            try:
                done = self._walk(wanted, arena, place)
            except BaseException:  # an interruption, too
                with suppress(BadInput):
                    _gather(wanted, place)
                raise
            _gather(wanted, place)
        return done

    def _walk(self, wanted: Sequence[Part], arena: Arena, place: Path) -> bool:
        """What is left of the jobs, from dense references, trained first where they lack."""
        dense = place / "dense"
        left = [
            (job, place / part.name)
            for part in wanted
            for job in unfinished(filter(self.wants, part.jobs), arena, place / part.name)
        ]
        references = dict.fromkeys(job.start for job, _ in left)
        for part in wanted:
            beside = [job for job in part.jobs if job.start in references]
            check_starts(beside, dense=dense, folder=place / part.name)
        if not train_dense(references, arena, dense, until=self.until):
            return False
        starts = [partial(Walk, job, arena, dense=dense, folder=folder) for job, folder in left]
        return train_abreast(starts, until=self.until)


def _gather(wanted: Sequence[Part], place: Path) -> None:
    """Gather what can be; then say what cannot."""
    wrong = []
    for part in wanted:
        for gather in part.gathers:
            try:
                gather(place / part.name)
            except BadInput as error:
                wrong.append(error)
    if wrong:
        raise wrong[0]


def reproduce(
    what: str,
    *,
    data: Path,
    folder: Path,
    networks: Sequence[str] = NETWORKS,
    penalties: Sequence[str] = ("l0", "l1"),
    only: Sequence[str] = (),
    minutes: float = float("inf"),
    device: str = "cuda",
    bfloat16: bool | None = None,
) -> bool:
    """Run one of `EXPERIMENTS`, or "all"; False if the minutes were over before its end.

    Dense references go to `folder/<data>/dense`, paths in paper mode to `folder/<data>/paper`.
    With patterns in `only` it is the walks whose records have one of these names, as
    `cnn-l0-5-*`, and no others.
    """
    if what != "all" and what not in EXPERIMENTS:
        raise BadInput(
            f"There is no experiment {what!r}; choose one of {', '.join(EXPERIMENTS)} or all."
        )
    unknown = [network for network in networks if network not in NETWORKS]
    if unknown:
        raise BadInput(
            f"The experiments have no network {unknown[0]!r}; choose of {', '.join(NETWORKS)}."
        )
    checked_minutes(minutes)
    until = time.monotonic() + 60 * minutes
    lab = Lab(data, folder, device_named(device), until, bfloat16, only)
    own, ways = tuple(dict.fromkeys(networks)), tuple(dict.fromkeys(penalties))
    wanted = [
        part
        for name in (EXPERIMENTS if what == "all" else [what])
        for part in parts(name, own, ways)
    ]
    if not wanted:
        raise BadInput(
            f"The experiment {what!r} has nothing of {', '.join(networks)}: best mode and the "
            f"comparisons are of {' and '.join(COMPARED)}, the t-test is of nin."
        )
    names = [job.name for part in wanted for job in part.jobs]
    for pattern in only:
        if not fnmatch.filter(names, pattern):
            raise BadInput(
                f"No walk of {what!r} is called {pattern!r}: give a name or a pattern, as "
                f"{names[0]!r} or '{own[0]}-*'."
            )
    groups = [list(group) for _, group in groupby(wanted, key=lambda part: part.data)]
    asked = [group for group in groups if any(lab.wants(job) for p in group for job in p.jobs)]
    for group in asked:
        place_of(data, group[0].data)
    _, *later = dict.fromkeys(group[0].data for group in asked)
    for name in later:
        lab.images(name)  # all are there, and whole, before the first takes its hours
    return all(lab.walk(group) for group in asked)


def _spoken(training: int, test: int, classes: int, shape: tuple[int, int, int]) -> str:
    size = " x ".join(map(str, shape))
    return f"{training:,} training and {test:,} test images of {size} in {classes} classes"


def place_of(folder: Path, name: str) -> Path:
    """Where a data set lies in this folder: one file, or a folder of its own."""
    # The file first: results may lie in a folder of that name.
    for place in (folder / f"{name}.npz", folder / name):
        if place.exists():
            return place
    remedy = f"fetch it with `sparsepath download {name} --to {folder / name}`, or name "
    if folder.exists() and folder.name in (name, f"{name}.npz"):
        remedy = "name "
    raise BadInput(
        f"There is neither {name!r} nor {name + '.npz'!r} in {str(folder)!r}: {remedy}"
        "the folder around it with --data."
    )


def checked_minutes(minutes: float) -> float:
    """A time to stop at: zero or more, and infinity for none."""
    if not minutes >= 0:  # NaN is no time either
        raise BadInput(f"minutes must be zero or more, not {minutes!r}.")
    return minutes


def device_named(name: str) -> torch.device:
    """A GPU, made the current one, on which streams and graphs are; or the CPU, a plain loop.

    With the CPU this process keeps the memory that it frees from then on.
    """
    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise BadInput(f"There is no device {name!r}; choose a GPU, as cuda or cuda:1.") from error
    if device.type == "cpu":
        keep_freed()
        return device
    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if device.type != "cuda" or not count:
        raise BadInput(
            f"There is no GPU for device {name!r}: these experiments want one of NVIDIA's; "
            "cpu does a few walks of them, slowly."
        )
    if device.index is not None:
        if device.index >= count:
            raise BadInput(f"There is no device {name!r}; the last is cuda:{count - 1}.")
        torch.cuda.set_device(device)
    return device
