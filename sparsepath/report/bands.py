"""Runs that differ in nothing but their seed, as one curve with a band; so are peers' walks."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from sparsepath.lab.folders import Record
from sparsepath.report.arms import accuracies_at, shared_zeros
from sparsepath.report.formats import FIGURES, figure

PRIVATE = ("seed", "device", "threads", "tolerance", "checkpoint")
"""Settings in which runs of one group may differ."""
NAMED = ("penalty", "arm")
"""What a group is called by in any case."""
MOST_SAID = 2
"""Settings in which a single run is told from others; beyond that its name is shorter."""


def grouped(records: Sequence[Record]) -> list[list[int]]:
    """The numbers of the records that differ in nothing but private settings, group by group."""
    groups: dict[str, list[int]] = {}
    for number, record in enumerate(records):
        groups.setdefault(json.dumps(_shared(record), sort_keys=True), []).append(number)
    return list(groups.values())


def _shared(record: Record) -> dict[str, Any]:
    return {key: value for key, value in record["settings"].items() if key not in PRIVATE}


def labels(records: Sequence[Record], groups: Sequence[Sequence[int]]) -> list[str]:
    """What each group is called: its penalty, and the settings in which the groups differ."""
    shared = [_shared(records[group[0]]) for group in groups]
    keys = list(dict.fromkeys(key for settings in shared for key in settings))
    differing = [
        key
        for key in keys
        if key not in NAMED and len({repr(settings.get(key)) for settings in shared}) > 1
    ]
    # Methods differ in every setting; where their names tell them apart, the rest is left unsaid.
    walks = all("arm" in settings for settings in shared)
    few = [key for key in differing if key in ("network", "data", "variant")]
    if walks and len({repr([s.get(key) for key in (*NAMED, *few)]) for s in shared}) == len(groups):
        differing = few
    found = []
    for settings, group in zip(shared, groups, strict=True):
        parts = [str(settings["penalty"])]
        parts += [str(settings["arm"])] if settings.get("arm") else []
        if len(group) == 1 and len(differing) > MOST_SAID:
            parts.append(str(records[group[0]]["name"]))
        else:
            parts += [f"{key} {_word(settings.get(key))}" for key in differing]
        parts += [f"{len(group)} runs"] if len(group) > 1 else []
        found.append(", ".join(parts))
    return found


def _word(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.6g}"  # 0.1 + 0.2 is no 0.30000000000000004 to anyone
    return "unset" if value is None else str(value)


def band(records: Sequence[Record], split: str) -> dict[str, list[float]] | None:
    """Mean, least and greatest accuracy of several runs over the zero blocks they share.

    Runs of one point each are the points of one curve for each seed. A method that zeroes nothing
    is a level across the figure.
    """
    seeds = _curves(records, split)
    if seeds and all(set(dict(points)) == {0.0} for points in seeds.values()):
        return _level([points[-1][1] for points in seeds.values()])
    if len(seeds) < 2 and len(seeds) == sum(bool(_points(r, split)) for r in records):
        return None
    shared = shared_zeros("runs", seeds)
    if not shared:
        return None
    found: Mapping[str, list[float]] = {"x": [], "mean": [], "low": [], "high": []}
    for zeros in shared:
        accuracies = accuracies_at(seeds, zeros)
        if accuracies:
            mean = sum(accuracies) / len(accuracies)
            row = {"x": zeros, "mean": mean, "low": min(accuracies), "high": max(accuracies)}
            for key, value in row.items():
                found[key].append(value)
    return dict(found)


def _level(accuracies: Sequence[float]) -> dict[str, list[float]]:
    mean = sum(accuracies) / len(accuracies)
    row = {"x": 1.0, "mean": mean, "low": min(accuracies), "high": max(accuracies)}
    return {key: [0.0 if key == "x" else value, value] for key, value in row.items()}


def _curves(records: Sequence[Record], split: str) -> dict[object, list[tuple[float, float]]]:
    """The points of each run, or where runs have one point each, of each seed."""
    single = all(len(record["points"]) == 1 for record in records)
    found: dict[object, dict[float, float]] = {}
    for number, record in enumerate(records):
        key = ("seed", record["settings"]["seed"]) if single else number
        found.setdefault(key, {}).update(_points(record, split))
    return {key: list(points.items()) for key, points in found.items() if points}


def _points(record: Record, split: str) -> dict[float, float]:
    """Accuracy by zero blocks; of several points with as many, the last."""
    return {
        x: y
        for point in record["points"]
        if (x := figure(FIGURES["zero_blocks"], point)) is not None
        and (y := figure(FIGURES[split], point)) is not None
    }
