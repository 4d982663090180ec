"""The ADMM iterations that the paper's epochs imply, and the epsilon that would stop ours so."""

import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from sparsepath.errors import BadInput
from sparsepath.lab.folders import Record
from sparsepath.report.layout import Table
from sparsepath.report.reported import DATA, NETWORKS, STANDING, printed, title

UNREACHED = 0.01
"""The epsilon of the first walks, which no point of them ever came down to."""


@dataclass(frozen=True)
class Fit:
    """The epsilon at which a path that never stopped early would have come closest to the paper."""

    epsilon: float | None
    """None where to go on to xi everywhere comes as close"""
    paper: tuple[int, ...]
    """iterations at the points that it reports, and that ours has"""
    ours: tuple[int, ...]
    """where ours would have stopped at the same points"""
    epochs: int
    """of all points, had each stopped there"""
    walked: int
    longer: float
    """how many times the paper's epochs ours were, at the points that it reports"""


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
    """Of all epsilons that would stop this path at a reported point, that of least squares."""
    about = {key: record[key] for key in ("data", "network", "penalty")}
    points = {point["index"]: point for point in record["points"]}
    printed_at = {
        side.k: side.epochs
        for side in printed(paper, **about)[1]
        if side.k is not None and side.k in points
    }
    theirs = {k: implied(k, epochs) for k, epochs in printed_at.items()}

    def off(epsilon: float) -> int:
        return sum(
            (stopped(points[k]["residuals"], epsilon) - wanted) ** 2 for k, wanted in theirs.items()
        )

    never = -1.0
    reached = {_larger(each) for k in theirs for each in points[k]["residuals"]}
    best = min([never, *sorted(reached)], key=off)
    ours = {k: stopped(point["residuals"], best) for k, point in points.items()}
    return Fit(
        None if best == never else best,
        tuple(theirs.values()),
        tuple(ours[k] for k in theirs),
        sum(_epochs(point, ours[k]) for k, point in points.items()),
        sum(point["epochs"] for point in points.values()),
        sum(points[k]["epochs"] for k in theirs) / sum(printed_at.values()),
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
    rows, fits = [], list[Fit]()
    for record in unstopped(records):
        found = fit(paper, record)
        if not record["variant"]:  # or a path that was walked again would count twice
            fits.append(found)
        rows.append(
            [
                DATA[record["data"]],
                NETWORKS[record["network"]],
                title(record["penalty"], record["variant"]),
                "-".join(map(str, found.paper)),
                "-".join(map(str, found.ours)),
                "" if found.epsilon is None else f"{found.epsilon:.2f}",
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
        "off the residuals, not walked. No epsilon: none comes closer than to go on to xi."
        f"{_in_short(fits)}",
    )


def _in_short(fits: Sequence[Fit]) -> str:
    """The middle and the ends of what the rows say."""
    epsilons = [found.epsilon for found in fits if found.epsilon is not None]
    if not epsilons:
        return ""
    spared = [100 * (1 - found.epochs / found.walked) for found in fits]
    longer = [100 * (found.longer - 1) for found in fits]
    return (
        f" Medians (and ends) of the paths as printed: epsilon {_middle(epsilons, '.1f')}, of "
        f"{len(epsilons)}; "
        f"{_middle(spared, '.0f')} % fewer epochs with each path's own; at the points that the "
        f"paper reports ours took {_middle(longer, '.0f')} % more epochs than its."
    )


def _middle(values: Sequence[float], digits: str) -> str:
    ends = " to ".join(format(end, digits) for end in (min(values), max(values)))
    return f"{format(statistics.median(values), digits)} ({ends})"
