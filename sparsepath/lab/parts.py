"""The parts of the experiments: jobs whose records lie together, and what is gathered of them."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from sparsepath.errors import BadInput
from sparsepath.lab.comparisons import best_mode, comparisons
from sparsepath.lab.experiments import FLIPPED, paths, t_test
from sparsepath.lab.jobs import Job
from sparsepath.lab.records import trained_anywhere
from sparsepath.storage import read_json, write_json

EXPERIMENTS = ("cifar10", "best-mode", "comparisons", "cifar100", "svhn", "t-test")
"""In the order in which all of them are run."""
COMPARED = ("cnn", "nin")
"""The networks of best mode and the comparisons."""
FINETUNES: Mapping[str, tuple[int, ...]] = {"cnn": (40, 5), "nin": (20, 5)}
"""Epochs of their fine-tunes in the comparisons: long, as far as time allows, and hardly any."""


@dataclass(frozen=True)
class Part:
    """Jobs on one data set whose records lie together, and what is gathered of them."""

    data: str
    name: str
    """the folder of their records, in that of the data set"""
    jobs: Sequence[Job]
    gathers: tuple[Callable[[Path], None], ...] = ()
    """each reads that folder, as far as its jobs have been walked, and writes beside it"""


def parts(experiment: str, networks: Sequence[str], penalties: Sequence[str]) -> list[Part]:
    """What one of `EXPERIMENTS` consists of for these networks, which may be nothing."""
    if experiment in FLIPPED:
        return [Part(experiment, "paper", paths(experiment, networks, penalties))]
    if experiment == "t-test":
        jobs = [job for job in t_test() if job.start.network in networks]
        gathers: list[Callable[[Path], None]] = [partial(gather_pairs, jobs)]
    else:
        ways = [
            arms
            for network in COMPARED
            if network in networks
            for arms in _ways(experiment, network)
        ]
        jobs = [job for arms in ways for arm in arms.values() for job in arm]
        gathers = [partial(gather_arms, arms) for arms in ways]
    return [Part("cifar10", f"{experiment}/walked", jobs, tuple(gathers))] if jobs else []


def _ways(experiment: str, network: str) -> list[dict[str, list[Job]]]:
    """The arms of one experiment and network, apart for each length of fine-tunes."""
    if experiment == "best-mode":
        return [best_mode(network)]
    return [comparisons(network, finetune=epochs) for epochs in FINETUNES[network]]


def gather_arms(arms: Mapping[str, Sequence[Job]], folder: Path) -> None:
    """Write one record of all arms, as far as they have been walked."""
    first = arms["l0"][0]
    network, finetune = first.start.network, first.recipe.schedule.finetune
    walked = _records((job for jobs in arms.values() for job in jobs), folder)
    if not walked:
        return
    found: dict[str, dict[str, list[list[float]]]] = {}
    devices: dict[str, dict[str, str]] = {}
    for arm, jobs in arms.items():
        for job in (job for job in jobs if job.name in walked):
            own, seed = walked[job.name], str(job.start.seed)
            ways = sorted(" ".join(way) for way in trained_anywhere(own))
            devices.setdefault(arm, {})[seed] = " and ".join(ways)
            for point in own["points"]:
                figures = [point["sparsity"]["of_blocks"], point["test"]]
                found.setdefault(arm, {}).setdefault(seed, []).append(figures)
    # Fine-tuning has no zeros, but after each point as many epochs as l0 has had at its own.
    tuned = {
        seed: [accuracy for _, accuracy in points]
        for seed, points in found.pop("fine-tuning", {}).items()
    }
    dense = {str(record["dense_seed"]): record["dense"]["test"] for record in walked.values()}
    record = {
        "data": next(iter(walked.values()))["data"],
        "network": network,
        "finetune": finetune,
        "dense": dense,
        "fine_tuning": tuned,
        "arms": found,
        "devices": devices,
    }
    write_json(folder.parent / f"{network}-{finetune}.json", record)


def gather_pairs(jobs: Sequence[Job], folder: Path) -> None:
    """Write one record of the pairs from one dense network, and one of those from several.

    What two kinds of device, or two dtypes, made is no pair, and left out.
    """
    walked = _records(jobs, folder)
    pairs: dict[tuple[int, int], dict[str, Any]] = {}
    for job in jobs:
        if job.name in walked and len(walked[job.name]["points"]) == job.recipe.length:
            pairs.setdefault((job.start.seed, job.seed), {})[job.method] = walked[job.name]
    # A CPU and a GPU draw other images from one seed: walks of both are no pair.
    whole = {
        key: pair
        for key, pair in pairs.items()
        if len(pair) == 2 and len(set().union(*map(trained_anywhere, pair.values()))) == 1
    }
    for title, wanted in {
        "one dense network": lambda dense: dense == 0,
        "several dense networks": lambda dense: dense > 0,
    }.items():
        rows = [_pair(pair) for (dense, _), pair in whole.items() if wanted(dense)]
        if len(rows) > 1:
            name = title.replace(" ", "-")
            write_json(folder.parent / f"{name}.json", {"title": title, "pairs": rows})


def _records(jobs: Iterable[Job], folder: Path) -> dict[str, Any]:
    """What has been walked of the jobs, by name; all of one reference from one network."""
    places = {job.name: folder / f"{job.name}.json" for job in jobs}
    found = {name: read_json(place) for name, place in places.items() if place.exists()}
    digests: dict[str, set[str | None]] = {}
    for record in found.values():
        start = record.get("start", {"name": record["network"]})  # old ones do not say
        digests.setdefault(start["name"], set()).add(start.get("digest"))
    for start, different in digests.items():
        if len(different) > 1:
            raise BadInput(
                f"The walks in {str(folder)!r} start from {len(different)} different networks "
                f"{start!r}, so they cannot be compared: move those of all but one away."
            )
    return found


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
