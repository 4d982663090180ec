"""What the page shows of each run as plain JSON, with None where a figure is missing."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sparsepath.lab.folders import Record
from sparsepath.report.bands import band, grouped, labels
from sparsepath.report.formats import FIGURES, figure
from sparsepath.report.losses import Losses, loss_after
from sparsepath.report.tables import finite, heading, state, verdict
from sparsepath.report.visible import all_visible, quoted

BYTES = 4
"""of one weight"""
EMBEDDED = "digits"
"""The data set that is no file."""


@dataclass(frozen=True)
class Source:
    """A run as it lies on disk."""

    folder: Path
    record: Record
    losses: Losses


def view(sources: Sequence[Source]) -> dict[str, Any]:
    """The figures of all runs, and the groups in which they are compared."""
    raw = [source.record for source in sources]
    records, groups = [all_visible(record) for record in raw], grouped(raw)
    return {
        "runs": [_run(source) for source in sources],
        "groups": [
            {
                "label": label,
                "runs": list(group),
                **{split: band([records[n] for n in group], split) for split in SPLITS},
            }
            for group, label in zip(groups, labels(records, groups), strict=True)
        ],
    }


SPLITS = ("validation", "test")
LAST = ("primal", "dual", "flipped")
"""Figures of the last iteration, which a page has with those of all iterations."""


def _run(source: Source) -> dict[str, Any]:
    record = all_visible(source.record)
    dense = record["dense"] or {}
    settings = record["settings"]
    return {
        "name": record["name"],
        "heading": heading(record),
        "state": state(record),
        "finished": bool(record["finished"]),
        "verdict": verdict(record),
        "penalty": settings["penalty"],
        "blocks_word": settings["blocks"],
        "tolerance": finite(settings["tolerance"]),
        "epsilon": finite(settings.get("epsilon")),
        "chosen": None if record["chosen"] is None else record["chosen"] + 1,
        "layers": dict(dense.get("blocks") or {}),
        "dense": {**_figures(dense), "kept": finite(dense.get("parameters")), **_bytes(dense, 0.0)},
        "points": [_known(_point(source, point, dense=dense)) for point in record["points"]],
        "commands": {} if source.folder.is_file() else commands(source),
        "judged_by": _judge(record["points"]),
    }


def _judge(points: Sequence[Record]) -> str:
    """The split by which points are chosen: the test only where there is no validation at all."""
    known = any(finite(point.get("validation")) is not None for point in points)
    return "validation" if known or not points else "test"


def _figures(row: Record) -> dict[str, float | None]:
    return {name: figure(show, row) for name, show in FIGURES.items() if name not in LAST}


def _point(source: Source, point: Record, *, dense: Record) -> dict[str, Any]:
    figures = _figures(point)
    parameters, zero = finite(dense.get("parameters")), figures["zero_of_model"]
    known = parameters is not None and zero is not None
    return {
        "number": point["index"] + 1,
        **figures,
        "kept": parameters - round(zero * parameters) if known else None,  # type: ignore[operator]
        **_bytes(dense, zero),
        "latency_in": _runtimes(point, "runtime"),
        "throughput_in": _runtimes(point, "throughput_runtime"),
        "converged": point.get("converged"),
        "layers": dict((point.get("sparsity") or {}).get("zero_blocks") or {}),
        "residuals": [
            _known(
                {
                    "primal": _short(row.get("primal")),
                    "dual": _short(row.get("dual")),
                    "loss": _short(
                        loss_after(source.losses, index=point["index"], iteration=number)
                    ),
                }
            )
            for number, row in enumerate(point.get("residuals") or [])
        ],
    }


def _runtimes(point: Record, key: str) -> list[str] | None:
    """Where the point was fastest, and where the dense network was."""
    try:
        return [str(point["latency"][which][key]) for which in ("sparse", "dense")]
    except (KeyError, TypeError):
        return None


def _bytes(dense: Record, zero: float | None) -> dict[str, int | None]:
    """Bytes of the weights that are not zero, and where there are zeros one bit for each block."""
    parameters = finite(dense.get("parameters"))
    if parameters is None or zero is None:
        return {"bytes": None}
    kept = round(parameters) - round(zero * parameters)
    blocks = sum((dense.get("blocks") or {}).values()) if zero else 0
    return {"bytes": BYTES * kept + math.ceil(blocks / 8)}


def commands(source: Source) -> dict[str, list[str]]:
    """How to use a point: what stands before and after its number.

    For the weights' file the number has two digits, as there.
    """
    folder = source.folder.absolute()  # nobody knows from where it will be pasted
    settings = source.record["settings"]
    about = f"--network {quoted(settings['network'])} --data {quoted(_data(settings['data']))}"
    before, _, after = quoted(f"{folder}/points/@.safetensors").rpartition("@")
    return {
        "Deploy": [f"sparsepath deploy {quoted(str(folder))} --point ", ""],
        "Weights": [before, after],
        "Walk on from it": [f"sparsepath path --from {before}", f"{after} {about}"],
    }


def _data(named: str) -> str:
    """Data sets go by their name, files and folders by where they are."""
    return str(Path(named).absolute()) if named != EMBEDDED and Path(named).exists() else named


def _short(value: object) -> float | None:
    """A figure that is only drawn, in as many digits as can be seen."""
    number = finite(value)
    return None if number is None else float(f"{number:.6g}")


def _known(figures: Mapping[str, Any]) -> dict[str, Any]:
    """Without what is missing: a page of many runs has little room."""
    return {name: value for name, value in figures.items() if value is not None}
