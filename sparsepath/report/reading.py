"""The record of a run as the report needs it: whole in its parts, and without NaN."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sparsepath.errors import BadInput
from sparsepath.lab.folders import Record, gather
from sparsepath.report.tables import finite
from sparsepath.report.walked import as_run, is_walk
from sparsepath.storage import read_json

NEEDED = ("network", "data", "penalty", "blocks", "seed", "points", "tolerance")


def read_run(folder: Path) -> Record:
    """All figures of a run, or of a walk's JSON file; a figure that is no number is None."""
    try:
        record: Record = plain(_walked(folder) if folder.is_file() else gather(folder))
        _check(record)
    except (KeyError, TypeError, AttributeError) as error:
        raise BadInput(
            f"The figures in {str(folder)!r} are damaged ({type(error).__name__}: {error}); "
            "restore them, or delete what is damaged and run it again."
        ) from error
    return record


def _walked(file: Path) -> Record:
    walk = read_json(file)
    if not is_walk(walk):
        raise BadInput(f"{str(file)!r} is not the record of a path: give that, or a run's folder.")
    return as_run(walk, file.stem)


def _check(record: Record) -> None:
    """Raise a KeyError or TypeError where a part is missing or is not what it should be."""
    settings, dense = record["settings"], record["dense"]
    if missing := [name for name in NEEDED if settings[name] is None]:
        raise KeyError(*missing)
    if not isinstance(record["name"], str):
        raise TypeError(f"the name is {record['name']!r}")
    if dense is not None and not isinstance(dense, Mapping):
        raise TypeError(f"the dense reference is {dense!r}")
    _counts(dense or {}, "blocks", least=1)
    for point in record["points"]:
        if isinstance(point["index"], bool) or not isinstance(point["index"], int):
            raise TypeError(f"the index of a point is {point['index']!r}")
        for name in ("sparsity", "macs", "latency"):
            _part(point, name)
        _counts(_part(point, "sparsity"), "zero_blocks", least=0)
        rows = point.get("residuals") or []
        if not isinstance(rows, list) or not all(isinstance(row, Mapping) for row in rows):
            raise TypeError("the residuals of a point are no list of figures")


def _part(owner: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """A part that may be missing, but is nothing else than figures by their names."""
    part = owner.get(name)
    if part is not None and not isinstance(part, Mapping):
        raise TypeError(f"{name} is a {type(part).__name__}")
    return part or {}


def _counts(owner: Mapping[str, Any], name: str, *, least: int) -> None:
    """Refuse what is no whole number of at least this; it may be missing."""
    for layer, count in _part(owner, name).items():
        if count is not None and (not isinstance(count, int) or count < least):
            raise TypeError(f"{name} of {layer!r} is {count!r}")
        if count is None and least:
            raise TypeError(f"{name} of {layer!r} is missing")


def plain(value: Any) -> Any:
    """The same with None for every number that is infinite or none at all, which JSON lacks."""
    if isinstance(value, Mapping):
        return {key: plain(part) for key, part in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(part) for part in value]
    return finite(value) if isinstance(value, float) else value
