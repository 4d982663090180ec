"""The ADMM iterations that the paper's epochs imply, and the epsilon that would stop ours so."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from sparsepath.errors import BadInput
from sparsepath.lab.folders import Record
from sparsepath.report.layout import Table
from sparsepath.report.reported import DATA, NETWORKS, POSITIONS, STANDING, title

UNREACHED = 0.01
"""The epsilon of the first walks, which no point of them ever came down to."""


@dataclass(frozen=True)
class Fit:
    """The epsilon at which a path that never stopped early would have come closest to the paper."""

    epsilon: float
    paper: tuple[int, ...]
    """iterations at the points that it reports, and that ours has"""
    ours: tuple[int, ...]
    """where ours would have stopped at the same points"""
    epochs: int
    """of all points, had each stopped there"""
    walked: int


def implied(k: int, epochs: int) -> int:
    """The paper's iterations at a point: it prints (k + 2) epochs for each and for a fine-tune."""
    stages, left = divmod(epochs, k + 2)
    if left or stages < 2:
        raise BadInput(
            f"{epochs} epochs at k = {k} are no whole number of iterations of {k + 2} epochs and a "
            "fine-tune of as many."
        )
    return stages - 1


def stopped(residuals: Sequence[Record], epsilon: float) -> int:
    """After how many iterations both residuals are at most epsilon; after all if they never are."""
    below = (n for n, each in enumerate(residuals, 1) if _larger(each) <= epsilon)
    return next(below, len(residuals))


def fit(paper: Record, record: Record) -> Fit:
    """Of all epsilons that would stop this path otherwise, the one with the least squares."""
    wanted = {
        round(row["mu0"] * (POSITIONS - 1)): row["epochs"]
        for row in paper["tables"][record["data"]][record["network"].replace("-", "_")][
            record["penalty"]
        ]
        if not row["baseline"]
    }
    points: Mapping[int, Record] = {point["index"]: point for point in record["points"]}
    theirs = {k: implied(k, epochs) for k, epochs in wanted.items() if k in points}

    def at(epsilon: float) -> dict[int, int]:
        return {k: stopped(point["residuals"], epsilon) for k, point in points.items()}

    def off(epsilon: float) -> int:
        return sum((at(epsilon)[k] - wanted) ** 2 for k, wanted in theirs.items())

    candidates = {_larger(each) for point in points.values() for each in point["residuals"]}
    best = min(sorted(candidates), key=off)
    ours = at(best)
    return Fit(
        best,
        tuple(theirs.values()),
        tuple(ours[k] for k in theirs),
        sum(_epochs(point, ours[k]) for k, point in points.items()),
        sum(point["epochs"] for point in points.values()),
    )


def _larger(residuals: Record) -> float:
    return float(max(residuals["primal"], residuals["dual"]))


def _epochs(point: Record, iterations: int) -> int:
    """What a point takes with so many iterations, its fine-tune as long as one of them."""
    return int(point["epochs"]) // (len(point["residuals"]) + 1) * (iterations + 1)


def unstopped(records: Sequence[Record]) -> Iterator[Record]:
    """The paths that stand for the paper's and whose epsilon is so small that all went on to xi."""
    for record in records:
        never = record["recipe"]["schedule"]["epsilon"] <= UNREACHED
        if never and record["variant"] in STANDING:
            yield record


def iterations(paper: Record, records: Sequence[Record]) -> Table:
    """Where each path would have stopped, had it stopped about when the paper's did."""
    rows = []
    for record in unstopped(records):
        found = fit(paper, record)
        rows.append(
            [
                DATA[record["data"]],
                NETWORKS[record["network"]],
                title(record["penalty"], record["variant"]),
                "-".join(map(str, found.paper)),
                "-".join(map(str, found.ours)),
                f"{found.epsilon:.2f}",
                f"{found.epochs} of {found.walked}",
            ]
        )
    titles = ["data", "network", "path", "paper's iterations", "ours would be", "at epsilon"]
    return Table(
        "The iterations that the paper's epochs imply, and the epsilon that comes closest to them.",
        [*titles, "epochs then"],
        rows,
        "At the points that the paper reports. It prints (k + 2) epochs for every iteration and "
        "for the fine-tune; ours have k + 1, and went on to xi = 10 everywhere, epsilon being "
        "0.01. Had they stopped sooner, what followed would have been another walk: this is read "
        "off the residuals, not walked.",
    )
