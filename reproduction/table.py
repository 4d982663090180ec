"""Prints the table of reproduction/README.md: the paper's reported points beside ours.

python reproduction/table.py
"""

import json
from pathlib import Path

HERE = Path(__file__).parent
PAPER = json.loads((HERE / "paper.json").read_text())["tables"]
TITLE = (
    "| path | k | paper: accuracy (change) | paper: zero kernels | ours: accuracy (change) "
    "| ours: zero kernels | epochs |"
)


def rows(record_file: Path) -> list[str]:
    """One row for each point that the paper reports and we have walked."""
    record = json.loads(record_file.read_text())
    table = PAPER[record["data"]][record["network"].replace("-", "_")]
    paper = table[record["penalty"]]
    total, base = sum(table["filters_total"]), paper[0]["accuracy"]
    dense = record["dense"]["test"]
    ours = {point["index"]: point for point in record["points"]}
    found = []
    for theirs in paper[1:]:
        k = round(theirs["mu0"] * 19)
        if k in ours:
            point = ours[k]
            found.append(
                f"| {record_file.stem} | {k} "
                f"| {theirs['accuracy']:.2f} ({theirs['accuracy'] - base:+.2f}) "
                f"| {sum(theirs['zero_filters']) / total:.1%} "
                f"| {100 * point['test']:.2f} ({100 * (point['test'] - dense):+.2f}) "
                f"| {point['sparsity']['of_blocks']:.1%} | {point['epochs']} |"
            )
    return found


def table() -> str:
    """All paths walked so far."""
    files = sorted((HERE / "cifar10" / "paper").glob("*.json"))
    return "\n".join([TITLE, "|---" * 7 + "|", *(row for file in files for row in rows(file))])


if __name__ == "__main__":
    print(table())
