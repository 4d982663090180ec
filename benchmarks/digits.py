"""How the main job's settings were chosen: candidates compared on digits that are not test digits.

    python benchmarks/digits.py [--seeds 2] [--out benchmarks/results/digits.json]

The embedded digits less the 1,000 test digits are split anew: a fifth of them judges, of the rest
an eighth validates, and both are pooled. No test digit is read. A candidate qualifies if its dense
network reaches 97.5 %, its last point loses at least 5 points and is not below 50 % (a network at
chance shows nothing), and it takes at most 1.25 times the first one's work (epochs times
multiplications); of those, the one that loses least at 80 % zero blocks, as the mean over the
seeds, is taken.
"""

import argparse
import statistics
from dataclasses import asdict
from pathlib import Path

import numpy
import torch
from restart import lost

from sparsepath.lab.data import load
from sparsepath.lab.folders import Record, circumstances
from sparsepath.lab.models import DigitNet
from sparsepath.lab.runs import execute
from sparsepath.lab.settings import Settings
from sparsepath.storage import write_json

MORE = 1.25
SHARES = (0.5, 0.7, 0.8, 0.9, 0.95)

BOTH = {"xi": 2, "rho": 0.2, "last_share": 0.995}
EVEN = BOTH | {"delta": 2, "nu": 1, "finetune_rate": 0.03, "points": 10}
"""as many epochs at every mu"""
RISING = BOTH | {"delta": 1, "nu": 3, "finetune_rate": 0.05, "points": 9}
"""one epoch at the first mu, three from the third on: small mu need less"""

CANDIDATES: dict[str, tuple[tuple[int, int, int], dict[str, float]]] = {
    "24-48-64, even epochs": ((24, 48, 64), EVEN),
    "24-48-64, rising epochs, early end": (
        (24, 48, 64),
        RISING | {"points": 8, "last_share": 0.985},
    ),
    "24-48-64, rising epochs": ((24, 48, 64), RISING),
    "24-48-64, rising epochs, 3 iterations": ((24, 48, 64), RISING | {"xi": 3}),
    "24-48-64, rising epochs, rho 0.4": ((24, 48, 64), RISING | {"rho": 0.4}),
    "24-48-64, rising epochs, rho 0.4, to 99 %": (
        (24, 48, 64),
        RISING | {"rho": 0.4, "last_share": 0.99},
    ),
    "24-48-64, rising epochs, rho 0.4, to 99.3 %": (
        (24, 48, 64),
        RISING | {"rho": 0.4, "last_share": 0.993},
    ),
    "24-64-64, rising epochs, rho 0.4, to 99.3 %": (
        (24, 64, 64),
        RISING | {"rho": 0.4, "last_share": 0.993},
    ),
    "16-32-64, rising epochs": ((16, 32, 64), RISING),
    "32-48-64, rising epochs": ((32, 48, 64), RISING),
    "24-48-96, rising epochs": ((24, 48, 96), RISING),
    "24-64-64, rising epochs": ((24, 64, 64), RISING),
}


def without_test_digits(path: Path) -> None:
    """The digits that are not for testing, as an .npz file with splits of their own."""
    digits = load("digits", validation=1)
    images = torch.cat([digits.train.images, digits.validation.images]).numpy()
    labels = torch.cat([digits.train.labels, digits.validation.labels]).numpy()
    order = numpy.argsort(labels, kind="stable")
    images, labels = images[order].transpose(0, 2, 3, 1), labels[order]
    judging = numpy.arange(len(labels)) % 5 == 0
    path.parent.mkdir(parents=True, exist_ok=True)
    numpy.savez(
        path,
        x_train=images[~judging],
        y_train=labels[~judging],
        x_test=images[judging],
        y_test=labels[judging],
    )


def trial(name: str, seed: int, work: Path) -> Record:
    """One candidate's whole run from one seed, judged on both of its held-out splits."""
    widths, changes = CANDIDATES[name]
    DigitNet.widths = widths
    settings = Settings(data=str(work / "digits.npz"), seed=seed, **changes)  # type: ignore[arg-type]
    record = execute(settings, work / f"{name.replace(' ', '-')}-{seed}")
    epochs = record["dense"]["epochs"] + sum(point["epochs"] for point in record["points"])
    counts = record["dense"]["images"]
    judges = counts["validation"] + counts["test"]
    for stage in (record["dense"], *record["points"]):
        right = sum(stage[split] * counts[split] for split in ("validation", "test"))
        stage["pooled"] = right / judges
    return {
        "seed": seed,
        "judging digits": judges,
        "dense": record["dense"]["pooled"],
        "last": record["points"][-1]["pooled"],
        "lost": dict(zip(map(str, SHARES), lost(record, "pooled", SHARES), strict=True)),
        "path": [[p["sparsity"]["of_blocks"], p["pooled"]] for p in record["points"]],
        "work": epochs * record["dense"]["macs"]["dense"],
    }


def qualifies(trials: list[Record], *, work: float) -> bool:
    """Whether every seed of a candidate shows what the main job must, with no more work."""
    return all(
        found["dense"] >= 0.975
        and 0.5 <= found["last"] <= found["dense"] - 0.05
        and found["work"] <= work
        for found in trials
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--work", type=Path, default=Path("runs/digits-choice"))
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/digits.json"))
    options = parser.parse_args()
    without_test_digits(options.work / "digits.npz")
    found: Record = {}
    most = 0.0
    for name in CANDIDATES:
        trials = [trial(name, seed, options.work) for seed in range(options.seeds)]
        most = most or MORE * trials[0]["work"]
        found[name] = {
            "settings": dict(zip(("widths", "changes"), CANDIDATES[name], strict=True)),
            "lost at 80 %": statistics.mean(one["lost"]["0.8"] for one in trials),
            "qualifies": qualifies(trials, work=most),
            "trials": trials,
        }
        print(
            f"{name}: lost at 80 % {found[name]['lost at 80 %']:.2f}, dense "
            f"{[round(100 * one['dense'], 2) for one in trials]}, last "
            f"{[round(100 * one['last'], 2) for one in trials]}, "
            f"work {trials[0]['work'] / most:.2f} of what is allowed",
            flush=True,
        )
    able = [name for name in found if found[name]["qualifies"]]
    chosen = min(able, key=lambda name: found[name]["lost at 80 %"])
    about = {"base settings": asdict(Settings()), **circumstances(torch.device("cpu"))}
    write_json(options.out, {"chosen": chosen, "candidates": found, **about})
    print(f"chosen: {chosen}")


if __name__ == "__main__":
    main()
