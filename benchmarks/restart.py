"""F and Gamma carried on from mu to mu, as the paper prints, or restarted: equal epochs, digits.

    python benchmarks/restart.py [--seeds 3] [--out benchmarks/results/restart.json]

For each seed one dense reference is trained and both paths start from it, with the main job's
settings and no early stop. What is compared is the accuracy lost against that reference at given
shares of zero blocks, read off each path between its two nearest points.
"""

import argparse
import statistics
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import torch

from sparsepath.lab.folders import Record, circumstances
from sparsepath.lab.runs import execute
from sparsepath.lab.settings import Settings
from sparsepath.storage import write_json

SHARES = (0.5, 0.7, 0.8, 0.9, 0.95, 0.98)
WAYS = {"carried on": False, "restarted": True}


def walk(seed: int, work: Path) -> dict[str, Record]:
    """Both paths from one dense reference."""
    dense = work / f"dense-{seed}"
    execute(Settings(seed=seed), dense, dense_only=True)
    found = {}
    for way, restart in WAYS.items():
        settings = Settings(
            seed=seed, checkpoint=str(dense / "dense.safetensors"), restart=restart, epsilon=0.0
        )
        found[way] = execute(settings, work / f"{way.replace(' ', '-')}-{seed}")
    return found


def lost(record: Record, split: str, shares: Sequence[float] = SHARES) -> list[float]:
    """Percentage points lost against dense at each of the shares."""
    curve = [(0.0, record["dense"][split])]
    curve += [(point["sparsity"]["of_blocks"], point[split]) for point in record["points"]]
    return [100 * (record["dense"][split] - _at(share, curve)) for share in shares]


def _at(share: float, curve: Sequence[tuple[float, float]]) -> float:
    for (left, before), (right, after) in pairwise(curve):
        if left <= share <= right:
            return before + (after - before) * (share - left) / (right - left)
    raise ValueError(f"The path does not reach {share:.0%} zero blocks.")


def summary(records: Sequence[dict[str, Record]], split: str) -> Record:
    """Mean and standard deviation over the seeds of each way, and of their paired difference."""
    rows = {way: [lost(pair[way], split) for pair in records] for way in WAYS}
    carried, restarted = rows.values()
    rows["restarted less carried on"] = [
        [b - a for a, b in zip(*pair, strict=True)] for pair in zip(carried, restarted, strict=True)
    ]
    return {
        way: [_spread(column) for column in zip(*found, strict=True)] for way, found in rows.items()
    }


def _spread(values: Sequence[float]) -> Record:
    deviation = statistics.stdev(values) if len(values) > 1 else None
    return {"mean": statistics.mean(values), "sd": deviation}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--work", type=Path, default=Path("runs/restart"))
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/restart.json"))
    options = parser.parse_args()
    records = [walk(seed, options.work) for seed in range(options.seeds)]
    results = {
        "lost": {split: summary(records, split) for split in ("validation", "test")},
        "at zero blocks": SHARES,
        "n": options.seeds,
        "epochs of each path": sum(point["epochs"] for point in records[0]["restarted"]["points"]),
        **circumstances(torch.device("cpu")),
    }
    write_json(options.out, results)
    print("points lost at zero blocks of", *(f"{share:.0%}" for share in SHARES))
    for split, ways in results["lost"].items():
        for way, cells in ways.items():
            print(f"{split:>10}, {way:>25}:", *(f"{cell['mean']:5.2f}" for cell in cells))


if __name__ == "__main__":
    main()
