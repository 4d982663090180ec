"""Networks side by side: what each is made of, what it takes, and its speed in every runtime."""

import math
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from sparsepath.deploy.capture.capture import capture
from sparsepath.deploy.files.opened import Opened
from sparsepath.deploy.graph import reference
from sparsepath.deploy.measuring.peak import Order, peaks
from sparsepath.deploy.measuring.runtimes import NAMES, Run, threads_of_torch
from sparsepath.deploy.measuring.timing import Speed, by_turns
from sparsepath.deploy.running.report import macs_of
from sparsepath.errors import BadInput, checked_count
from sparsepath.metrics import evaluating

MOST = 1 << 26
"""numbers of one image: a file must not choose to fill the memory"""
Speeds = Mapping[str, Speed | str]
QUICK = tuple(name for name in NAMES if name != "torch.compile")
"""The runtimes that are ready at once: torch.compile takes half a minute to compile a network."""


@dataclass(frozen=True)
class Subject:
    """One network, and the file that holds it."""

    opened: Opened
    bytes: int
    """of the file as it is shipped"""
    file: Path | None = None
    """what a fresh process runs, to measure memory"""


@dataclass(frozen=True)
class Side:
    """What was measured of one network."""

    weights: int | None
    """those that are not zero"""
    macs: int | None
    """multiplications for one image by weights that are not zero"""
    bytes: int
    speeds: Mapping[int, Speeds]
    """by batch and runtime, or in a word why there is none"""
    peak: Mapping[int, int] | None
    """by batch, in bytes; None where it was not measured"""

    def fastest(self, batch: int) -> tuple[str, Speed] | None:
        """The runtime with the least seconds for such a batch."""
        timed = [(name, s) for name, s in self.speeds[batch].items() if isinstance(s, Speed)]
        return min(timed, key=lambda pair: pair[1].p50, default=None)


@dataclass(frozen=True)
class Effort:
    """How long to measure, and what."""

    seconds: float = 5.0
    """of calls at each size of batch, at least; seven turns of every runtime take what they take"""
    names: Collection[str] = NAMES
    memory: bool = True
    threads: int = 1
    tune: bool = True

    def __post_init__(self) -> None:
        """Refuse what is no number of threads."""
        checked_count("threads", self.threads)


def sides(
    subjects: Mapping[str, Subject], images: Tensor, batches: Sequence[int], effort: Effort
) -> dict[str, Side]:
    """Measure all networks in all runtimes by turns, on these images over and over."""
    for batch in batches:
        checked_count("batch", batch)
    given = {batch: images[torch.arange(batch) % len(images)] for batch in batches}
    with threads_of_torch(effort.threads):
        runs = {
            name: _runs(subject.opened, images[:2], effort) for name, subject in subjects.items()
        }
        speeds = {batch: _speeds(runs, x, effort) for batch, x in given.items()}
    # Memory is compared in one runtime: our own, unless a file is only for another.
    shared = next((r for r in NAMES if all(r in own for own in runs.values())), None)
    return {
        name: Side(
            subject.opened.weights,
            macs(subject.opened.model, images[:1]),
            subject.bytes,
            {batch: speeds[batch][name] for batch in batches},
            _peak(subject.file, shared, images, batches, effort),
        )
        for name, subject in subjects.items()
    }


def _runs(network: Opened, images: Tensor, effort: Effort) -> Mapping[str, Run | str]:
    """The network in every runtime; one that cannot be made says so, and the others stay."""
    make = partial(network.runs, images, threads=effort.threads, tune=effort.tune)
    try:
        return make(names=effort.names)
    except BadInput:
        raise
    except Exception:  # one of them: ask each by itself
        made: dict[str, Run | str] = {}
        for name in effort.names:
            try:
                made |= make(names=[name])
            except Exception as error:
                made[name] = f"fails ({type(error).__name__})"
        return made


def _speeds(
    runs: Mapping[str, Mapping[str, Run | str]], images: Tensor, effort: Effort
) -> dict[str, Speeds]:
    """By network and runtime; one that cannot take the images says so."""
    works, words = {}, {}
    for name, own in runs.items():
        for runtime, run in own.items():
            try:
                if isinstance(run, str):
                    words[name, runtime] = run
                else:
                    run(images)
                    works[name, runtime] = partial(run, images)
            except Exception as error:  # a runtime of others on a network of others
                words[name, runtime] = f"fails ({type(error).__name__})"
    if not works:
        raise BadInput(
            f"No runtime can take images of shape {tuple(images.shape)}: "
            f"{', '.join(f'{runtime} {word}' for (_, runtime), word in words.items())}."
        )
    # One thread's own time is what a quiet machine would show; busy neighbours hardly change it.
    clock = time.process_time if effort.threads == 1 else time.perf_counter
    times = by_turns(works, seconds=effort.seconds, clock=clock)
    return {
        name: {
            runtime: words.get((name, runtime)) or Speed.of(len(images), times[name, runtime])
            for runtime in own
        }
        for name, own in runs.items()
    }


def _peak(
    file: Path | None,
    runtime: str | None,
    images: Tensor,
    batches: Sequence[int],
    effort: Effort,
) -> Mapping[int, int] | None:
    if not effort.memory or file is None or runtime is None:
        return None
    shape = tuple(images.shape[1:])
    return peaks(Order(str(file), runtime, shape, batches, effort.threads, effort.tune))


def macs(model: nn.Module | None, image: Tensor) -> int | None:
    """Multiplications by weights that are not zero for one image; None for a network unknown."""
    if model is None:
        return None
    with evaluating(model):
        graph = capture(model)
        shapes = reference.shapes(graph, [image])
    if any(node.call is not None for node in graph):
        return None
    found = 0
    for node in graph:
        weight = node.arrays.get("weight")
        if weight is not None and (whole := macs_of(node, shapes)):
            found += whole // weight.numel() * int((weight != 0).sum())
    return found


def random_images(shape: str | None, figures: Mapping[str, Any], file: Path) -> Tensor:
    """Images for a network that nobody asks to be right: of the shape given, or of its figures."""
    known = shape.split(",") if shape is not None else figures.get("image_shape")
    if known is None:
        raise BadInput(
            f"{str(file)!r} does not say what images it takes: give --shape, as in 3,32,32."
        )
    try:
        lengths = [int(length) for length in known]
    except (TypeError, ValueError):
        lengths = []
    if not lengths or min(lengths) < 1 or math.prod(lengths) > MOST:
        said = shape if shape is not None else known
        raise BadInput(f"{said!r} is no shape of an image: give --shape, as in 3,32,32.")
    return torch.randn(2, *lengths, generator=torch.Generator().manual_seed(0))
