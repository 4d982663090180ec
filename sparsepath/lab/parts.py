"""The parts of the experiments: jobs whose records lie together, and what is gathered of them."""

import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from sparsepath.lab.comparisons import best_mode, comparisons
from sparsepath.lab.experiments import FLIPPED, paths, t_test
from sparsepath.lab.jobs import Job
from sparsepath.storage import read_json, write_json

EXPERIMENTS = (*FLIPPED, "best-mode", "comparisons", "t-test")
COMPARED = ("cnn", "nin")
"""The networks of best mode and the comparisons."""
FINETUNES: Mapping[str, tuple[int, ...]] = {"cnn": (40, 5), "nin": (20, 5)}
"""Epochs of the fine-tunes of their comparisons: long, and hardly any. NIN's take three times as
long."""


@dataclass(frozen=True)
class Part:
    """Jobs on one data set whose records lie together, and what is gathered of them."""

    data: str
    name: str
    """the folder of their records, in that of the data set"""
    jobs: Sequence[Job]
    gathers: tuple[Callable[[Path], None], ...] = ()
    """each reads the data set's folder, as far as its jobs have been walked, and writes there"""


def parts(experiment: str, networks: Sequence[str], penalties: Sequence[str]) -> list[Part]:
    """What one of `EXPERIMENTS` consists of for these networks, which may be nothing."""
    if experiment in FLIPPED:
        return [Part(experiment, "paper", paths(experiment, networks, penalties))]
    if experiment == "t-test":
        jobs = [job for job in t_test() if job.start.network in networks]
        pairs = Part("cifar10", "t-test/walked", jobs, (partial(gather_pairs, jobs),))
        return [pairs] if jobs else []
    compared = [network for network in COMPARED if network in networks]
    if not compared:
        return []
    if experiment == "best-mode":
        ways = [{"l0": best_mode(network)} for network in compared]
    else:
        ways = [
            comparisons(network, finetune=epochs)
            for network in compared
            for epochs in FINETUNES[network]
        ]
    jobs = [job for arms in ways for arm in arms.values() for job in arm]
    gathers = tuple(partial(gather_arms, arms, experiment) for arms in ways)
    return [Part("cifar10", f"{experiment}/walked", jobs, gathers)]


def gather_arms(arms: Mapping[str, Sequence[Job]], part: str, place: Path) -> None:
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


def gather_pairs(jobs: Iterable[Job], place: Path) -> None:
    """Write one record of the pairs from one dense network, and one of those from several."""
    pairs: dict[tuple[int, int], dict[str, Any]] = {}
    for job in jobs:
        written = place / "t-test" / "walked" / f"{job.name}.json"
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
            write_json(place / "t-test" / f"{name}.json", {"title": title, "pairs": rows})


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
