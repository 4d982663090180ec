"""The paper's experiments from one call, which any later call, anywhere, continues."""

import itertools
import statistics
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch

from sparsepath.errors import BadInput
from sparsepath.lab.arena import Arena
from sparsepath.lab.comparisons import best_mode, comparisons
from sparsepath.lab.data import load
from sparsepath.lab.dense import train_dense
from sparsepath.lab.experiments import NETWORKS, paths, t_test
from sparsepath.lab.folders import locked, sweep
from sparsepath.lab.jobs import Job
from sparsepath.lab.training import Diverged
from sparsepath.lab.walks import walk_paths
from sparsepath.storage import read_json, write_json

FLIPPED = {"cifar10": True, "cifar100": True, "svhn": False}
"""Whether a mirrored image is one of its kind: an object is, a digit is not."""
PUBLISHED = {"cifar-10": "cifar10", "cifar-100": "cifar100", "svhn": "svhn"}
"""What official files call themselves."""
EXPERIMENTS = (*FLIPPED, "best-mode", "comparisons", "t-test")
COMPARED = ("cnn", "nin")
FINETUNES = (40, 5)
"""Epochs of the fine-tunes of the comparisons: long, and hardly any."""


@dataclass(frozen=True)
class Lab:
    """Where data is found, results go, and work is done, and until when."""

    data: Path
    folder: Path
    device: torch.device
    until: float

    def arena(self, name: str) -> Arena:
        """A data set on the device, every image of the training set for training."""
        found = [place for place in (self.data / name, self.data / f"{name}.npz") if place.exists()]
        if not found:
            remedy = f"fetch it with `sparsepath download {name} --to {self.data / name}`, or name "
            if self.data.exists() and self.data.name in (name, f"{name}.npz"):
                remedy = "name "
            raise BadInput(
                f"There is neither {name!r} nor {name + '.npz'!r} in {str(self.data)!r}: {remedy}"
                "the folder around it with --data."
            )
        data = load(found[0])
        if PUBLISHED.get(data.name, name) != name:
            raise BadInput(f"{str(found[0])!r} holds {data.name}, not {name}: move it away.")
        return Arena(replace(data, name=name), self.device, flip=FLIPPED[name], final=True)

    def walk(self, jobs: Sequence[Job], arena: Arena, part: str) -> bool:
        """The jobs from their dense references, which are trained first where they lack."""
        place = self.folder / arena.data.name
        starts = dict.fromkeys(job.start for job in jobs)
        with locked(place / part):
            sweep(place / part)
            if not train_dense(starts, arena, place / "dense", until=self.until):
                return False
            return walk_paths(
                jobs, arena, dense=place / "dense", folder=place / part, until=self.until
            )


def reproduce(
    what: str,
    *,
    data: Path,
    folder: Path,
    networks: Sequence[str] = NETWORKS,
    penalties: Sequence[str] = ("l0", "l1"),
    minutes: float = float("inf"),
    device: str = "cuda",
) -> bool:
    """Run one of `EXPERIMENTS`, or "all"; False if the minutes were over before its end.

    Dense references go to `folder/<data>/dense`, paths in paper mode to `folder/<data>/paper`.
    """
    if what != "all" and what not in EXPERIMENTS:
        raise BadInput(
            f"There is no experiment {what!r}; choose one of {', '.join(EXPERIMENTS)} or all."
        )
    if not minutes >= 0:  # NaN is no time either
        raise BadInput(f"minutes must be zero or more, not {minutes!r}.")
    lab = Lab(data, folder, device_named(device), time.monotonic() + 60 * minutes)
    for name in EXPERIMENTS if what == "all" else [what]:
        if name in FLIPPED:
            done = lab.walk(paths(name, networks, penalties), lab.arena(name), "paper")
        elif name == "t-test":
            done = _t_test(lab)
        elif name == "best-mode":
            modes = ({"l0": best_mode(net)} for net in COMPARED if net in networks)
            done = all(_walk_arms(lab, arms, name) for arms in modes)
        else:
            pairs = itertools.product(COMPARED, FINETUNES)
            done = all(_compared(lab, net, epochs) for net, epochs in pairs if net in networks)
        if not done:
            return False
    return True


def device_named(name: str) -> torch.device:
    """A GPU, made the current one, on which streams and graphs are; or the CPU, for tests."""
    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise BadInput(f"There is no device {name!r}; choose a GPU, as cuda or cuda:1.") from error
    if device.type == "cpu":
        return device
    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if device.type != "cuda" or not count:
        raise BadInput(
            f"There is no GPU for device {name!r}; these experiments need one of NVIDIA's."
        )
    if device.index is not None:
        if device.index >= count:
            raise BadInput(f"There is no device {name!r}; the last is cuda:{count - 1}.")
        torch.cuda.set_device(device)
    return device


def _compared(lab: Lab, network: str, finetune: int) -> bool:
    """Walk every arm, and write down what is there of each."""
    return _walk_arms(lab, comparisons(network, finetune=finetune), "comparisons")


def _walk_arms(lab: Lab, arms: Mapping[str, Sequence[Job]], part: str) -> bool:
    arena = lab.arena("cifar10")
    jobs = [job for arm in arms.values() for job in arm]
    write_down = partial(gather, arms, lab.folder / arena.data.name, part)
    return _walk_and(write_down, lab, jobs, arena, f"{part}/walked")


def _walk_and(
    write_down: Callable[[], None], lab: Lab, jobs: Sequence[Job], arena: Arena, part: str
) -> bool:
    """Walk the jobs, and write down what is there, also where some of them diverged."""
    try:
        done = lab.walk(jobs, arena, part)
    except Diverged:
        write_down()
        raise
    write_down()
    return done


def gather(arms: Mapping[str, Sequence[Job]], place: Path, part: str) -> None:
    """Write one record of all arms, as far as they have been walked."""
    first = arms["l0"][0]
    network, finetune = first.start.network, first.recipe.schedule.finetune
    walked = place / part / "walked"
    found = {arm: by_seed for arm in arms if (by_seed := _points(arms[arm], walked))}
    if not found:
        return
    # Fine-tuning has no zeros: one figure a seed, after as many epochs as the sparsest points.
    tuned = {seed: points[-1][1] for seed, points in found.pop("fine-tuning", {}).items()}
    names = {job.start.name for jobs in arms.values() for job in jobs}
    starts = [place / "dense" / f"{name}.json" for name in sorted(names)]
    record = {
        "data": place.name,
        "network": network,
        "finetune": finetune,
        "dense": statistics.fmean(read_json(start)["test"] for start in starts),
        "fine_tuning": tuned,
        "arms": found,
    }
    write_json(place / part / f"{network}-{finetune}.json", record)


def _points(jobs: Iterable[Job], folder: Path) -> dict[str, list[list[float]]]:
    """Zero blocks and test accuracy of all points of an arm that were walked, by seed."""
    found: dict[str, list[list[float]]] = {}
    for job in jobs:
        written = folder / f"{job.name}.json"
        for point in read_json(written)["points"] if written.exists() else ():
            figures = [point["sparsity"]["of_blocks"], point["test"]]
            found.setdefault(str(job.start.seed), []).append(figures)
    return found


def _t_test(lab: Lab) -> bool:
    arena, jobs = lab.arena("cifar10"), t_test()
    write_down = partial(gather_pairs, jobs, lab.folder / arena.data.name / "t-test")
    return _walk_and(write_down, lab, jobs, arena, "t-test/walked")


def gather_pairs(jobs: Iterable[Job], place: Path) -> None:
    """Write one record of the pairs from one dense network, and one of those from several."""
    pairs: dict[tuple[int, int], dict[str, Any]] = {}
    for job in jobs:
        written = place / "walked" / f"{job.name}.json"
        if written.exists():
            record = read_json(written)
            if len(record["points"]) == job.recipe.length:
                pairs.setdefault((job.start.seed, job.seed), {})[job.method] = record
    whole = {key: pair for key, pair in pairs.items() if len(pair) == 2}
    for title, wanted in {
        "one dense network": lambda dense: dense == 0,
        "several dense networks": lambda dense: dense > 0,
    }.items():
        rows = [_pair(pair) for (dense, _), pair in whole.items() if wanted(dense)]
        if len(rows) > 1:
            name = title.replace(" ", "-")
            write_json(place / f"{name}.json", {"title": title, "pairs": rows})


def _pair(records: dict[str, Any]) -> dict[str, Any]:
    """What the t-test's table needs of two walks."""
    admm = records["l0"]
    last = admm["points"][-1]
    return {
        "admm": last["test"],
        "fine_tuning": records["fine-tuning"]["points"][-1]["test"],
        "dense": admm["dense"]["test"],
        "of_blocks": last["sparsity"]["of_blocks"],
        "dense_seed": admm["dense_seed"],
    }
