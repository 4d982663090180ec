"""What a run's record keeps of a deployment: every figure of its table, by the file's name."""

import math
from dataclasses import asdict
from pathlib import Path

from sparsepath.deploy.measuring.sides import Effort, Side
from sparsepath.deploy.measuring.timing import Speed
from sparsepath.deploy.running.stamp import machine
from sparsepath.deploy.ship import Form
from sparsepath.lab.folders import RESULTS, Record, claimed, settings_of
from sparsepath.storage import read_json, write_json

ONE, MANY = 1, 64
"""The batches that are measured: latency at one image, throughput at many."""


def keep(folder: Path, file: Path, figures: Record, latency: Record) -> None:
    """Write what was measured of a file into the run's figures, beside that of other files."""
    with claimed(folder, settings_of(folder)):
        record = read_json(folder / RESULTS)
        record.setdefault("deployed", {})[_name(folder, file)] = figures
        for point in record["points"]:
            if point["index"] + 1 == figures["point"]:
                point["latency"] = latency
        write_json(folder / RESULTS, record)


def _name(folder: Path, file: Path) -> str:
    """The file's name in the run's folder; its whole path where it lies elsewhere."""
    place, home = file.resolve(), folder.resolve()
    return str(place.relative_to(home) if place.is_relative_to(home) else place)


def figures_of(
    *,
    point: int,
    form: Form,
    threads: int,
    difference: float,
    dense: Record,
    file: Record,
) -> Record:
    """All that was measured of a file and of the dense network beside it."""
    return {
        "point": point,
        **asdict(form),
        "threads": threads,
        "machine": machine(),
        "difference": difference if math.isfinite(difference) else None,
        "dense": dense,
        "file": file,
    }


def side_figures(side: Side, test: float) -> Record:
    """One network: what it is made of, its test accuracy, and its speed in every runtime."""
    return {
        "test": test,
        "weights": side.weights,
        "macs": side.macs,
        "bytes": side.bytes,
        "peak": None if side.peak is None else {str(n): peak for n, peak in side.peak.items()},
        "speeds": {
            str(batch): {name: _speed(speed) for name, speed in speeds.items()}
            for batch, speeds in side.speeds.items()
        },
    }


def _speed(speed: Speed | str) -> Record | str:
    """Seconds and images a second, or in a word why there are none."""
    if isinstance(speed, str):
        return speed
    return {"p50": speed.p50, "p95": speed.p95, "throughput": speed.throughput}


def latency(dense: Side, deployed: Side, effort: Effort, file: str) -> Record:
    """What the page shows of a point: each network in the runtime that is fastest for it."""
    return {
        "dense": _fastest(dense),
        "sparse": _fastest(deployed),
        "file": file,
        "threads": effort.threads,
        "machine": machine(),
    }


def _fastest(side: Side) -> Record | None:
    one, many = side.fastest(ONE), side.fastest(MANY)
    if one is None or many is None:
        return None
    return {
        "runtime": one[0],
        "p50": one[1].p50,
        "p95": one[1].p95,
        "throughput": many[1].throughput,
        "throughput_runtime": many[0],
    }
