"""The paper's tables (Appendix B) made from records: its value beside ours, point by point."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from sparsepath.lab.folders import Record
from sparsepath.report.layout import Table
from sparsepath.report.reported import DATA, NETWORKS, STANDING, ReportedPath, Side, paths
from sparsepath.report.tables import percent

MISSING = "missing"
TOLERANCE = 0.3
"""How many points of test accuracy a path may lose where it has the paper's last count."""


@dataclass(frozen=True)
class _Column:
    title: str
    show: Callable[[Side], str]


def _accuracy(side: Side) -> str:
    return f"{side.accuracy:.2f}" if side.k is None else f"{side.accuracy:.2f} ({_change(side)})"


def _change(side: Side) -> str:
    return f"{round(side.change, 2) + 0.0:+.2f}"  # no minus before a zero


def _optional(share: float | None) -> str:
    return "" if share is None else percent(share)


_PAPER = (
    _Column("paper: accuracy (change)", _accuracy),
    _Column("zero kernels", lambda s: percent(s.of_blocks)),
    _Column("by layer", lambda s: "-".join(map(str, s.zero_blocks))),
    _Column("printed sparsity", lambda s: f"{s.printed:.2f}"),
    _Column("epochs", lambda s: str(s.epochs)),
    _Column("printed speed-up", lambda s: f"{s.speedup:.2f}"),
)
_OURS = (
    _Column("ours: accuracy (change)", _accuracy),
    _Column("zero kernels", lambda s: percent(s.of_blocks)),
    _Column("zero weights", lambda s: _optional(s.of_sparsified)),
    _Column("of model", lambda s: _optional(s.of_model)),
    _Column("by layer", lambda s: "-".join(map(str, s.zero_blocks))),
    _Column("epochs", lambda s: str(s.epochs)),
    _Column("MAC speed-up", lambda s: f"{s.speedup:.2f}"),
)
_LEGEND = (
    "Accuracies (of the test images) and shares in percent; in brackets the change against each "
    "side's own dense network, in points. k is the printed mu times 19. Zero kernels: zero blocks "
    "of all blocks, for the paper from its own counts, from which its printed sparsity does not "
    "follow. Zero weights: of the sparsified layers, and of the model. Epochs: of this mu alone. "
    "The paper's speed-up names no machine; ours counts multiplications."
)


def _name(k: int | None) -> str:
    return "dense" if k is None else f"k = {k}"


def _cells(columns: Sequence[_Column], side: Side | None) -> list[str]:
    if side is None:
        return [MISSING, *[""] * (len(columns) - 1)]
    return [column.show(side) for column in columns]


def appendix(paper: Record, records: Sequence[Record], *, data: str, network: str) -> Table:
    """The table of one network on one data set."""
    found = paths(paper, records, data=data, network=network)
    rows = [
        [
            path.title,
            _name(theirs.k),
            *_cells(_PAPER, theirs),
            *_cells(_OURS, ours),
        ]
        for path in found
        for theirs, ours in path.pairs
    ]
    blocks = "-".join(map(str, found[0].blocks))
    return Table(
        f"{NETWORKS[network]} on {DATA[data]}: the paper's single run beside ours.",
        ["path", "point", *(column.title for column in (*_PAPER, *_OURS))],
        rows,
        f"{_LEGEND} By layer: the zero ones of {blocks}, first layer first.",
    )


_FIGURES = (
    ("zero kernels (%)", lambda s: percent(s.of_blocks)),
    ("accuracy (%)", lambda s: f"{s.accuracy:.2f}"),
    ("epochs", lambda s: str(s.epochs)),
    ("speed-up", lambda s: f"{s.speedup:.2f}"),
)


def combined(paper: Record, records: Sequence[Record], *, data: str) -> Table:
    """The figures of all networks on one data set with growing mu, as paper / ours."""
    rows = []
    for network, title in NETWORKS.items():
        for path in paths(paper, records, data=data, network=network):
            pairs = list(path.pairs)
            for figure, show in _FIGURES:
                cells = [f"{show(a)} / {MISSING if b is None else show(b)}" for a, b in pairs]
                rows.append([title, path.title, figure, *cells])
    points = [_name(side.k) for side, _ in pairs[:-1]]
    return Table(
        f"{DATA[data]}: sparsity and accuracy along the paths, as paper / ours.",
        ["network", "path", "figure", *points, "last"],
        rows,
        "The last point is k = 12 of the NINs and k = 11 of the CNNs. The paper's zero kernels are "
        "taken from its counts; its speed-up names no machine, ours counts multiplications.",
    )


def summary(paper: Record, records: Sequence[Record]) -> Table:
    """All 24 paths at the paper's last point, and where ours first has the paper's last count."""
    rows = [
        [DATA[data], title, path.title, *_last(path)]
        for data in DATA
        for network, title in NETWORKS.items()
        for path in paths(paper, records, data=data, network=network)
    ]
    titles = ["data", "network", "path", "k", "paper: zero kernels", "change", "ours: zero kernels"]
    titles += ["change", "aim", "paper's count first at", "zero kernels", "change"]
    return Table(
        "The paper's last reported point of every path, and ours.",
        titles,
        rows,
        "Zero kernels in percent of all; change of test accuracy against each side's own dense "
        "network, in points. The aim: at the paper's last point no fewer zero kernels than its own "
        f"count, and at most {TOLERANCE} points lost. On the right, our first point with as many "
        "zero kernels as the paper's last.",
    )


_REACHED = "reached"


def outcome(paper: Record, records: Sequence[Record]) -> Table:
    """What stands of the 24 paths, for one page: our figures, the paper's in brackets."""
    found: dict[tuple[str, str, str], dict[str, ReportedPath]] = {}
    for data in DATA:
        for network in NETWORKS:
            for path in paths(paper, records, data=data, network=network):
                if path.variant in STANDING:
                    key = (DATA[data], NETWORKS[network], path.penalty)
                    found.setdefault(key, {})[path.variant] = path
    rows = []
    walked, printed, others = 0, list[Side](), list[Side]()
    for key, variants in found.items():
        own = variants.pop("")
        theirs, ours = list(own.pairs)[-1]
        other = _closest(variants.values())
        rows.append([*key, *_standing(own), "" if other is None else _spoken(other)])
        walked += ours is not None
        if ours is not None and _aim(theirs, ours) == _REACHED:
            printed.append(ours)
        elif other is not None and _aim(*_ends(other)) == _REACHED:
            others.append(_ends(other)[1])
    titles = ["data", "network", "path", "dense", "zero kernels", "change", "aim"]
    return Table(
        "Our figures at the paper's last point, the paper's own in brackets.",
        [*titles, "first past the paper's count", "another variant"],
        rows,
        f"In percent and points. Of {len(found)} paths {walked} are walked to their end. "
        f"{len(printed)} of these reach the aim as printed, {_clear(printed)} of them by more "
        f"than {TOLERANCE} points; {len(others)} more in another variant, "
        f"{_clear(others)} of them by as much. The variant shown is the one that these test images "
        "favour; all are in tables/summary.md.",
    )


def _clear(reached: Sequence[Side]) -> int:
    """How many of these keep as far from the limit as the limit is from no change."""
    return sum(side.change > 0 for side in reached)


def _ends(path: ReportedPath) -> tuple[Side, Side]:
    """The paper's last point and ours, of a path that was walked to its end."""
    theirs, ours = list(path.pairs)[-1]
    assert ours is not None
    return theirs, ours


def _closest(variants: Iterable[ReportedPath]) -> ReportedPath | None:
    """Of the variants that are at their end the one that misses the aim by least."""
    ended = [path for path in variants if list(path.pairs)[-1][1] is not None]

    def missing(path: ReportedPath) -> tuple[float, float]:
        """By how many percent of the kernels and points together; then the change."""
        theirs, ours = _ends(path)
        kernels = 100 * max(0.0, theirs.of_blocks - ours.of_blocks)
        return kernels + max(0.0, -TOLERANCE - ours.change), -ours.change

    return min(ended, key=missing, default=None)


def _spoken(path: ReportedPath) -> str:
    theirs, ours = _ends(path)
    figures = f"{100 * ours.of_blocks:.1f}, {_change(ours)}"
    return f"{STANDING[path.variant]}: {figures}, {_aim(theirs, ours)}"


def _standing(path: ReportedPath) -> list[str]:
    dense, (theirs, ours) = path.paper[0], list(path.pairs)[-1]
    walked = _walked(path)
    shown = ours or (walked[-1] if walked else None)
    if shown is None:
        return [f"({dense.accuracy:.2f})", *_bracketed(MISSING, MISSING, theirs), "", ""]
    at = "" if ours else f" at k = {shown.k}"
    first = _first_past(path)
    return [
        f"{path.walked[None].accuracy:.2f} ({dense.accuracy:.2f})",
        *_bracketed(f"{100 * shown.of_blocks:.1f}{at}", _change(shown), theirs),
        _aim(theirs, ours) if ours else "not at its end yet",
        f"k = {first.k}: {100 * first.of_blocks:.1f}, {_change(first)}" if first else "",
    ]


def _bracketed(zeros: str, change: str, theirs: Side) -> list[str]:
    return [f"{zeros} ({100 * theirs.of_blocks:.1f})", f"{change} ({_change(theirs)})"]


def _walked(path: ReportedPath) -> list[Side]:
    return [side for k, side in path.walked.items() if k is not None]


def _first_past(path: ReportedPath) -> Side | None:
    """Our first point with as many zero blocks as the paper's last."""
    wanted = sum(path.paper[-1].zero_blocks)
    return next((side for side in _walked(path) if sum(side.zero_blocks) >= wanted), None)


def _last(path: ReportedPath) -> list[str]:
    theirs, ours = list(path.pairs)[-1]
    walked, first = _walked(path), _first_past(path)
    if ours is None:
        far = f"{MISSING} (walked to k = {walked[-1].k})" if walked else MISSING
        at_last = [far, "", ""]
    else:
        at_last = [percent(ours.of_blocks), _change(ours), _aim(theirs, ours)]
    if first is None:
        at_first = ["never" if ours else "", "", ""]
    else:
        at_first = [f"k = {first.k}", percent(first.of_blocks), _change(first)]
    return [str(theirs.k), percent(theirs.of_blocks), _change(theirs), *at_last, *at_first]


def _aim(theirs: Side, ours: Side) -> str:
    missed = []
    if sum(ours.zero_blocks) < sum(theirs.zero_blocks):
        missed.append(f"{percent(theirs.of_blocks - ours.of_blocks)} % of kernels")
    if ours.change < -TOLERANCE - 1e-9:
        missed.append(f"{-TOLERANCE - ours.change:.2f} points")
    return f"missed by {' and '.join(missed)}" if missed else _REACHED
