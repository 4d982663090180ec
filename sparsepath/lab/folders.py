"""A run's folder: who owns it, who works in it, and what it holds so far."""

import fcntl
import os
import platform
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import torch

from sparsepath import __version__
from sparsepath.errors import BadInput
from sparsepath.lab.settings import Settings, from_mapping, read, toml
from sparsepath.storage import read_json, write_text

SETTINGS = "settings.toml"
RESULTS = "results.json"
Record = dict[str, Any]
"""Figures as JSON holds them; accuracies and sparsities are shares, times are under `seconds`."""


def settings_of(folder: Path) -> Settings:
    """The settings of the run in this folder."""
    path = folder / SETTINGS
    if not path.is_file():
        raise BadInput(f"{str(folder)!r} is no run: it has no {SETTINGS}.")
    return from_mapping(read(path)[0], f"{str(path)!r}")


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """A folder, made if it is missing, in which this process alone works meanwhile."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = (folder / ".lock").open("a")
    except OSError as error:
        raise BadInput(
            f"The folder {str(folder)!r} cannot be written ({error.strerror}); choose another."
        ) from error
    with lock:
        try:
            # The system lets go of it when this process ends, however it ends.
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise BadInput(
                f"Another process works in {str(folder)!r}; wait for it or choose another folder."
            ) from error
        yield


def sweep(folder: Path) -> None:
    """Delete what kills in the middle of a write left in a folder that is locked."""
    for left_over in folder.rglob(".*.part"):
        left_over.unlink()


@contextmanager
def claimed(folder: Path, settings: Settings) -> Iterator[None]:
    """Make the folder this run's own while it works; refuse one that is another's."""
    check_owner(folder, settings)
    with locked(folder):
        check_owner(folder, settings)
        sweep(folder)
        if not (folder / SETTINGS).exists():
            write_text(folder / SETTINGS, toml(settings))
        yield


def check_owner(folder: Path, settings: Settings) -> None:
    """Refuse a folder that belongs to other settings or to no run at all."""
    if not folder.exists():
        return
    if not folder.is_dir():
        raise BadInput(f"{str(folder)!r} is a file; a run needs a folder of its own.")
    if (folder / SETTINGS).exists():
        if difference := settings_of(folder).differences(settings):
            raise BadInput(
                f"The folder {str(folder)!r} belongs to other settings ({difference}); "
                "choose another folder or take its settings."
            )
    elif any(not entry.name.startswith(".") for entry in folder.iterdir()):
        raise BadInput(f"The folder {str(folder)!r} holds other files and no run; choose another.")


def gather(folder: Path) -> Record:
    """All figures of a run, finished or not."""
    if (folder / RESULTS).is_file():
        record = read_json(folder / RESULTS)
        if missing := {"name", "finished", "settings", "dense", "points", "chosen"} - record.keys():
            raise BadInput(
                f"{str(folder / RESULTS)!r} is damaged: it lacks {', '.join(sorted(missing))}."
            )
        return record
    settings = settings_of(folder)
    dense = folder / "dense.json"
    points: list[Record] = [read_json(path) for path in folder.glob("points/*.json")]
    record = {
        "name": folder.resolve().name,
        "finished": False,
        "settings": asdict(settings),
        "dense": read_json(dense) if dense.exists() else None,
        "points": sorted(points, key=lambda point: point["index"]),
    }
    return {**record, "chosen": chosen(record, settings.tolerance)}


def chosen(record: Record, tolerance: float) -> int | None:
    """The point with the most zero blocks that loses at most `tolerance` in validation."""
    dense, points = record["dense"], record["points"]
    if dense is None:
        return None
    best = sparsest(points, dense["validation"] - tolerance)
    return None if best is None else best["index"]


def sparsest(points: Sequence[Record], floor: float) -> Record | None:
    """The sparsest point of at least this accuracy in validation; of equals the most accurate."""
    good = [point for point in points if point["validation"] >= floor - 1e-12]
    return max(good, key=lambda p: (p["sparsity"]["of_blocks"], p["validation"]), default=None)


def circumstances(device: torch.device) -> Record:
    """What ran this: versions and machine, for every results file."""
    return {
        "versions": {
            "sparsepath": __version__,
            "python": platform.python_version(),
            "torch": torch.__version__,
            "numpy": np.__version__,
        },
        "machine": {
            "system": f"{platform.system()} {platform.machine()}",
            "processor": _processor(),
            "cores": os.cpu_count(),
            "device": torch.cuda.get_device_name(device) if device.type == "cuda" else device.type,
        },
    }


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor()


def sorted_runs(folder: Path) -> Sequence[Path]:
    """The runs directly inside a folder, by name."""
    files = [path for name in (SETTINGS, RESULTS) for path in folder.glob(f"*/{name}")]
    return sorted({path.parent for path in files})
