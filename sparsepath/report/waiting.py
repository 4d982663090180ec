"""Whether the page of an unfinished run waits for more of it, and for how long."""

from itertools import pairwise
from pathlib import Path
from typing import Any

from sparsepath.lab.folders import Record
from sparsepath.report.tables import finite

EVERY = 20.0
"""Seconds between two looks at first; they become rarer while nothing comes."""
PATIENCE = 3600.0
SLOWER = 4
"""A run that has had nothing new for this many times its longest stage has probably stopped."""


def waiting(folder: Path, record: Record) -> dict[str, Any]:
    """What the page needs to look for more of its run; nothing where no more will come."""
    if record["finished"] or not folder.is_dir():
        return {}
    longest = max(stage_seconds(record), default=0.0)
    return {"changed": last_sign(folder), "every": EVERY, "for": max(PATIENCE, SLOWER * longest)}


def stage_seconds(record: Record) -> list[float]:
    """How long the dense reference and each point took; a point's record counts from the first."""
    dense, *points = (
        finite(stage.get("seconds")) or 0.0 for stage in (record["dense"] or {}, *record["points"])
    )
    return [dense, *(max(0.0, now - before) for before, now in pairwise([0.0, *points]))]


def last_sign(folder: Path) -> float:
    """When the run last wrote anything, in seconds; a page made later says nothing about that."""
    files = [path for pattern in ("*.json", "*.toml", "points/*") for path in folder.glob(pattern)]
    return max((path.stat().st_mtime for path in files), default=0.0)
