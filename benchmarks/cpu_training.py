"""What a training step on a CPU gains by keeping freed memory, and by kernels of our own.

    python benchmarks/cpu_training.py [--rounds 5] --out benchmarks/results/cpu_training.json

The engine's own step at batch 128 on random images in each `WAYS`, by turns, each time in a process
of its own, since what a C library was told holds for the life of a process.
"""

import argparse
import json
import resource
import statistics
import subprocess
import sys
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
from machine import described

from sparsepath import native
from sparsepath.lab.engine import Engine
from sparsepath.lab.folders import circumstances
from sparsepath.lab.lane import Lane
from sparsepath.lab.memory import keep_freed
from sparsepath.lab.models import NETWORKS
from sparsepath.storage import write_json

CASES = (
    "cnn bfloat16",
    "low-rank-cnn bfloat16",
    "nin bfloat16",
    "low-rank-nin bfloat16",
    "cnn float32",
)
WAYS = ("usual", "kept", "kernels")
"""Each has what the one before has: `lab/memory.py` keeps freed memory, `lab/models/cpu.py` and
`lab/dropout.py` have kernels for ReLU with pooling and for dropout."""
STEPS = 12


def prepared(way: str) -> None:
    """Let this process train in this way."""
    if way != "usual" and not keep_freed():
        sys.exit("The C library of this machine cannot be told to keep what is freed.")
    if way != "kernels":
        native._LIBRARY = None
    elif not native.available():
        sys.exit("The kernels are not built: install with a C compiler at hand.")


def measured(case: str) -> dict[str, float]:
    """Milliseconds of a step in this process, and the most memory that it held."""
    name, dtype = case.split()
    torch.manual_seed(0)
    example = torch.zeros(128, 32, 32, 3, dtype=getattr(torch, dtype))
    lane = Lane(NETWORKS[name](classes=10, channels=3).train(), example=example, steps=STEPS)
    lane.images.copy_(torch.randn(lane.images.shape))
    lane.labels.copy_(torch.randint(10, lane.labels.shape))
    lane.rates.fill_(1e-3)
    engine = Engine([lane])
    engine.epoch()
    began = time.perf_counter()
    engine.epoch()
    seconds = time.perf_counter() - began
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return {"ms a step": 1000 * seconds / STEPS, "MiB at most": most}


def compared(case: str, rounds: int) -> dict[str, Any]:
    """All ways by turns: medians, and those of the rounds' ratios with their range."""
    found: dict[str, list[dict[str, float]]] = {way: [] for way in WAYS}
    for _ in range(rounds):
        for way, rows in found.items():
            command = [sys.executable, __file__, "--one", case, way]
            said = subprocess.run(command, check=True, capture_output=True, text=True).stdout
            rows.append(json.loads(said))
    medians = {
        way: {key: statistics.median(row[key] for row in rows) for key in rows[0]}
        for way, rows in found.items()
    }
    ratios = {}
    for before, after in pairwise(WAYS):
        rounds_of = zip(found[before], found[after], strict=True)
        each = [new["ms a step"] / old["ms a step"] for old, new in rounds_of]
        ratios[f"{after} over {before}"] = {
            "median": statistics.median(each),
            "least": min(each),
            "most": max(each),
        }
    return {**medians, **ratios}


def main() -> None:
    """Measure all cases, or one of them in this very process."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--one", nargs=2, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.one:
        case, way = given.one
        prepared(way)
        print(json.dumps(measured(case)))
        return
    results: dict[str, Any] = {
        **circumstances(torch.device("cpu")),
        "machine described": described(),
        "threads": torch.get_num_threads(),
        "batch": 128,
        "steps": STEPS,
        "rounds": given.rounds,
    }
    for case in CASES:
        results[case] = compared(case, given.rounds)
        print(case, results[case], flush=True)
        if given.out:
            write_json(given.out, results)


if __name__ == "__main__":
    main()
