"""What a training step on a CPU gains when freed memory is kept (`sparsepath/lab/memory.py`).

    python benchmarks/memory.py [--rounds 5] --out benchmarks/results/memory.json

The engine's own step at batch 128 on random images, with and without, by turns, each time in a
process of its own, since what a C library was told holds for the life of a process.
"""

import argparse
import json
import resource
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import torch
from machine import described

from sparsepath.lab.engine import Engine
from sparsepath.lab.folders import circumstances
from sparsepath.lab.lane import Lane
from sparsepath.lab.memory import keep_freed
from sparsepath.lab.models import NETWORKS
from sparsepath.storage import write_json

CASES = ("cnn bfloat16", "low-rank-cnn bfloat16", "low-rank-nin bfloat16", "cnn float32")
STEPS = 12


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
    """Both ways by turns: medians, and the range of the rounds' ratios."""
    found: dict[str, list[dict[str, float]]] = {"usual": [], "kept": []}
    for _ in range(rounds):
        for way, rows in found.items():
            command = [sys.executable, __file__, "--one", case, way]
            said = subprocess.run(command, check=True, capture_output=True, text=True).stdout
            rows.append(json.loads(said))
    times = {way: [row["ms a step"] for row in rows] for way, rows in found.items()}
    ratios = [kept / usual for kept, usual in zip(times["kept"], times["usual"], strict=True)]
    return {
        **{
            way: {key: statistics.median(row[key] for row in rows) for key in rows[0]}
            for way, rows in found.items()
        },
        "kept over usual": statistics.median(ratios),
        "least": min(ratios),
        "most": max(ratios),
    }


def main() -> None:
    """Measure all cases, or one of them in this very process."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--one", nargs=2, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.one:
        case, way = given.one
        if way == "kept":
            keep_freed()
        print(json.dumps(measured(case)))
        return
    if not keep_freed():  # this process measures nothing
        sys.exit("The C library of this machine cannot be told to keep what is freed.")
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
