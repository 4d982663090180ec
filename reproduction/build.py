"""Makes reproduction/tables, reproduction/figures and the page's tables from all records here.

    python reproduction/build.py

It deletes what else lies in those folders. `<data>/paper/*.json` are the paths in paper mode.
`<data>/comparisons/*.json` say what other methods do from the same dense networks: `arms` (arm,
seed, points of zero share and accuracy), `dense` and `fine_tuning` by seed, the latter after the
epochs of each of l0's points, and the epochs of a `finetune`; so do those of `<data>/best-mode`,
whose one arm is l0.
`<data>/t-test/*.json` are the pairs of Appendix A under a `title`.
"""

import argparse
import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sparsepath.errors import BadInput, as_script
from sparsepath.report.arms import Points, arms_table
from sparsepath.report.curves import along_the_path, bands, convergence
from sparsepath.report.figures import write_png
from sparsepath.report.iterations import iterations
from sparsepath.report.layout import Table
from sparsepath.report.measured import measured
from sparsepath.report.paper import appendix, combined, outcome, summary
from sparsepath.report.reported import DATA, NETWORKS, PENALTIES
from sparsepath.report.t_test import t_test
from sparsepath.storage import read_json, write_text

if TYPE_CHECKING:
    from matplotlib.figure import Figure

HERE = Path(__file__).parent
PAPER = read_json(HERE / "paper.json")
WALKS = ("l0", "l0-divided")
"""The ways to walk l0: all others are compared with each. At its points fine-tuning has had as many
epochs."""


def records(pattern: str) -> list[dict[str, Any]]:
    """The records whose place matches, by name."""
    return [read_json(path) for path in sorted(HERE.glob(pattern))]


def tables() -> Mapping[str, Table]:
    """Every table, by the name of its files."""
    walked = records("*/paper/*.json")
    made = {"summary": summary(PAPER, walked), "outcome": outcome(PAPER, walked)}
    made["speed"] = measured(walked)
    made["iterations"] = iterations(PAPER, walked)
    for data in DATA:
        made[f"{data}-combined"] = combined(PAPER, walked, data=data)
        for network in NETWORKS:
            made[f"{data}-{network}"] = appendix(PAPER, walked, data=data, network=network)
        for part, record in arms_of(data):
            # A call that was stopped may have gathered others than l0 alone.
            found = [arm for arm in WALKS if arm in record["arms"]] or [*record["arms"]][:1]
            for against in found:
                name, title = _named(part, record), _titled(part, record)
                if against != found[0]:
                    name, title = f"{name}-{against}", f"{title} Here {against} beside the others."
                made[name] = arms_table(
                    record["arms"],
                    title=title,
                    against=against,
                    controls=_controls(record, against),
                )
    trials = {trial["title"]: trial for trial in records("*/t-test/*.json")}
    return {**made, "t-test": t_test(PAPER, trials)}


def figures() -> Mapping[str, "Figure"]:
    """Every figure for which there is something to draw, by the name of its file."""
    made = {}
    for data in DATA:
        walked = records(f"{data}/paper/*.json")
        if walked:
            in_order = sorted(walked, key=_place)
            made[f"{data}-paths"] = along_the_path(PAPER, walked, data=data)
            made[f"{data}-convergence"] = convergence(in_order)
        for part, record in arms_of(data):
            made[_named(part, record)] = bands(
                record["arms"], title=_titled(part, record), controls=_controls(record)
            )
    return made


def page(text: str, made: Mapping[str, Table]) -> str:
    """The page with every table that it names made anew."""

    def table(found: re.Match[str]) -> str:
        if found[2] not in made:
            raise BadInput(f"The page names a table {found[2]!r}; there are {', '.join(made)}.")
        return f"{found[1]}{made[found[2]].markdown()}\n{found[3]}"

    return re.sub(r"(<!-- table (\S+) -->\n).*?(<!-- end -->)", table, text, flags=re.DOTALL)


def arms_of(data: str) -> list[tuple[str, dict[str, Any]]]:
    """The records of methods beside each other, and the part of the folder each is from."""
    return [
        (part, record)
        for part in ("best-mode", "comparisons")
        for record in records(f"{data}/{part}/*.json")
        if record["arms"]
    ]


def _named(part: str, record: dict[str, Any]) -> str:
    return f"{record['data']}-{part}-{record['network']}-{record['finetune']}"


def _titled(part: str, record: dict[str, Any]) -> str:
    network, data = NETWORKS[record["network"]], DATA[record["data"]]
    how = {"best-mode": "in best mode", "comparisons": "at equal epochs"}[part]
    return f"{network} on {data} {how}: {record['finetune']} epochs in each fine-tune of l0."


def _controls(record: dict[str, Any], arm: str = "l0") -> dict[str, dict[str, Points]]:
    """Networks without zeros: the dense ones, as they were, and trained on as long as l0's points.

    The latter have the zeros of those points, not their own, so that epochs are equal.
    """
    dense: dict[str, Points] = {
        seed: [(0.0, share), (1.0, share)] for seed, share in record["dense"].items()
    }
    long: dict[str, Points] = {
        seed: [(zeros, share) for (zeros, _), share in zip(points, tuned, strict=False)]
        for seed, points in record["arms"].get(arm, {}).items()
        if arm in WALKS and (tuned := record["fine_tuning"].get(seed))
    }
    found = {"dense": dense, "dense, trained on": long}
    return {name: seeds for name, seeds in found.items() if seeds}


def _place(record: dict[str, Any]) -> tuple[int, int, str]:
    """Where a path stands in the paper's order, its variants after it."""
    network = list(NETWORKS).index(record["network"])
    return network, PENALTIES.index(record["penalty"]), record["variant"]


def main() -> None:
    """Write all of them, and delete what no record gives any more."""
    argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0]).parse_args()
    written, made = set(), tables()
    readme = HERE / "README.md"
    if readme.exists():
        write_text(readme, page(readme.read_text(encoding="utf-8"), made))
    for name, table in made.items():
        tex = f"% python reproduction/build.py; the document loads graphicx.\n{table.latex()}\n"
        for suffix, text in (("md", f"{table.markdown()}\n"), ("tex", tex)):
            path = HERE / "tables" / f"{name}.{suffix}"
            write_text(path, text)
            written.add(path)
    for name, figure in figures().items():
        path = HERE / "figures" / f"{name}.png"
        write_png(figure, path)
        written.add(path)
    for left_over in {*HERE.glob("tables/*"), *HERE.glob("figures/*")} - written:
        left_over.unlink()
    print(f"{len(written)} files in {HERE / 'tables'} and {HERE / 'figures'}.")


if __name__ == "__main__":
    as_script(main)
