"""What a run's choice loses on digits that did not choose it.

    python benchmarks/choice.py [--seeds 10] [--out benchmarks/results/choice.json]

The embedded digits less the 1,000 test digits are split anew, as benchmarks/digits.py does: a fifth
of them judges, of the rest an eighth validates. Every seed draws other validation digits and
trains another network; each run chooses by several tolerances.
"""

import argparse
import statistics
from pathlib import Path

import torch
from digits import without_test_digits

from sparsepath.lab.folders import Record, chosen, circumstances
from sparsepath.lab.runs import execute
from sparsepath.lab.settings import Settings
from sparsepath.storage import write_json

TOLERANCES = (0.0, 0.005, 0.01, 0.02)


def losses(records: list[Record], tolerance: float) -> Record:
    """What the points lose that this tolerance chooses, in points; some runs have none."""
    found = []
    for record in records:
        index = chosen(record, tolerance)
        if index is not None:
            point = record["points"][index]
            lost = 100 * (record["dense"]["test"] - point["test"])
            found.append({"zero": point["sparsity"]["of_blocks"], "lost": lost})
    mean = lambda figure: statistics.mean(each[figure] for each in found) if found else None
    return {
        "runs with a choice": len(found),
        "zero kernels": mean("zero"),
        "lost on average": mean("lost"),
        "that lose more": sum(each["lost"] > 100 * tolerance + 1e-9 for each in found),
        "choices": found,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--work", type=Path, default=Path("runs/choice"))
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/choice.json"))
    options = parser.parse_args()
    digits = options.work / "digits.npz"
    without_test_digits(digits)
    records = [
        execute(Settings(data=str(digits), seed=seed), options.work / str(seed))
        for seed in range(options.seeds)
    ]
    found = {f"{tolerance:g}": losses(records, tolerance) for tolerance in TOLERANCES}
    for tolerance, each in found.items():
        if each["choices"]:
            print(
                f"tolerance {100 * float(tolerance):g}: {each['runs with a choice']} choices, zero "
                f"kernels {each['zero kernels']:.1%}, lost {each['lost on average']:.2f} points, "
                f"{each['that lose more']} more than allowed"
            )
    images = records[0]["dense"]["images"]
    about = {"images": images, "seeds": options.seeds, **circumstances(torch.device("cpu"))}
    write_json(options.out, {"tolerances": found, **about})


if __name__ == "__main__":
    main()
