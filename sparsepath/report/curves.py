"""The paper's curves made from records, the residuals of paths, and arms compared over seeds."""

import itertools
import math
import textwrap
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from sparsepath.errors import BadInput
from sparsepath.lab.folders import Record
from sparsepath.report.arms import Arms, Points, accuracies_at, shared_zeros
from sparsepath.report.figures import blank
from sparsepath.report.reported import (
    DATA,
    NETWORKS,
    POSITIONS,
    STANDING,
    ReportedPath,
    Side,
    paths,
)
from sparsepath.report.safe import for_figure
from sparsepath.report.statistics import Sample
from sparsepath.report.tables import finite

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_COLOURS = {
    "l1": "tab:blue",
    "l0": "tab:red",
    "l0-divided": "tab:orange",
    "gradual": "tab:green",
    "gradual-late": "tab:olive",
    "one-shot": "tab:brown",
    "ssl": "tab:purple",
}
_LINES = dict(zip(STANDING, ("-", "--", "-.", ":"), strict=True))
"""Of the paths of one penalty: the paper's, and the variants that stand for it."""

_CONTROLS = (":", "--")
"""How controls are drawn beside arms, one after another."""
MOST_MUS = 8
"""Named above a panel, so that they do not touch."""
ABOVE = 16.0
"""Between a panel and its title, for the names of the mus."""
_FURTHEST = 4.0
"""Where curves are cut off, up and down, so that what lies near dense can be told apart."""


def along_the_path(paper: Record, records: Sequence[Record], *, data: str) -> "Figure":
    """Change of accuracy over the position of mu and over zero kernels, for every network.

    Of our variants those are drawn that stand for a path; tables have the others.
    """
    figure = blank(15, 7)
    panels = figure.subplots(2, len(NETWORKS), sharey="col")
    for (over_mu, over_zeros), (network, title) in zip(panels.T, NETWORKS.items(), strict=True):
        every = paths(paper, records, data=data, network=network)
        found = [path for path in every if path.variant in _LINES]
        for path in found:
            _draw(over_mu, path, x=_position)
            _draw(over_zeros, path, x=_zeros)
        walked = next((path.walked[None] for path in found if path.walked), None)
        dense = "missing" if walked is None else f"{walked.accuracy:.2f} %"
        over_mu.set_title(f"{title}\ndense: paper {found[0].paper[0].accuracy:.2f} %, ours {dense}")
        over_mu.set_xlabel(r"position $\mu_0$ on the path")
        over_zeros.set_xlabel("zero kernels (%)")
        for panel in (over_mu, over_zeros):
            panel.axhline(0, color="grey", linewidth=0.8)
            panel.grid(alpha=0.3)
        low, high = over_mu.get_ylim()
        over_mu.set_ylim(max(low, -_FURTHEST), min(high, _FURTHEST))
    for panel in panels[:, 0]:
        panel.set_ylabel("change of test accuracy (points)")
    _shared_legend(figure)
    about = f"test accuracy against each side's own dense network (cut off at {_FURTHEST:g})"
    figure.suptitle(f"{DATA[data]}: {about}")
    return figure


def _position(side: Side) -> float:
    assert side.k is not None
    return side.k / (POSITIONS - 1)


def _zeros(side: Side) -> float:
    return 100 * side.of_blocks


def _draw(panel: Any, path: ReportedPath, *, x: Callable[[Side], float]) -> None:
    """One path of ours as a line and, once, the paper's as open circles."""
    colour = _COLOURS[path.penalty]

    def draw(sides: list[Side], **style: Any) -> None:
        panel.plot([x(side) for side in sides], [s.change for s in sides], color=colour, **style)

    if not path.variant:
        theirs = [side for side in path.paper if side.k is not None]
        draw(
            theirs, label=f"{path.title}, paper", marker="o", fillstyle="none", linestyle=":", lw=1
        )
    ours = [side for side in path.walked.values() if side.k is not None]
    if ours:
        draw(ours, label=f"{path.title}, ours", marker=".", linestyle=_LINES[path.variant])


def _shared_legend(figure: "Figure") -> None:
    """One legend below all panels, each label once."""
    found: dict[str, Any] = {}
    for panel in figure.axes:
        handles, labels = panel.get_legend_handles_labels()
        found |= dict(zip(labels, handles, strict=True))
    figure.legend(found.values(), found.keys(), loc="outside lower center", ncols=6)


def convergence(records: Sequence[Record]) -> "Figure":
    """Primal and dual residuals over the iterations of each path, with every change of mu."""
    if not records:
        raise BadInput("There is no record whose residuals could be drawn.")
    columns = min(2, len(records))
    rows = math.ceil(len(records) / columns)
    figure = blank(7 * columns, 2.8 * rows)
    panels = list(figure.subplots(rows, columns, squeeze=False).flat)
    for panel, record in zip(panels, records, strict=False):
        draw_residuals(panel, record)
    for panel in panels[len(records) :]:
        panel.remove()
    _shared_legend(figure)
    return figure


def draw_residuals(panel: Any, record: Record) -> None:
    """Both residuals of one path in a panel."""
    points = record["points"]
    mark_mus(panel, points, named=True)
    residuals = [row for point in points for row in point["residuals"]]
    # Not by colour alone.
    for kind, title, line, mark in (
        ("primal", r"primal $\|W - F\|$", "-", "o"),
        ("dual", r"dual $\|F - F_{previous}\|$", "--", "s"),
    ):
        figures = [_number(row.get(kind)) for row in residuals]
        style = {"linestyle": line, "marker": mark, "markersize": 3, "lw": 1}
        panel.plot(range(1, len(figures) + 1), figures, label=title, **style)
    epsilon = record["recipe"]["schedule"]["epsilon"]
    panel.axhline(epsilon, color="black", linestyle=":", lw=1, label=r"$\epsilon$")
    # A residual of nothing has no place on this scale and leaves a gap.
    panel.set_yscale("log", nonpositive="mask")
    panel.set_xlabel("iteration of the path")
    panel.set_ylabel("residual")
    panel.locator_params(axis="x", integer=True)
    name = "-".join(filter(None, (record["network"], record["penalty"], record["variant"])))
    data = DATA.get(record["data"], record["data"])
    panel.set_title(textwrap.fill(for_figure(f"{name} on {data}"), 70), fontsize=10, pad=ABOVE)
    panel.grid(alpha=0.3, axis="y")


def mark_mus(panel: Any, points: Sequence[Record], *, named: bool) -> None:
    """A line before the first iteration of every mu; as many are named as there is room for."""
    begins = itertools.accumulate((len(p["residuals"]) for p in points), initial=0)
    every = math.ceil(len(points) / MOST_MUS)
    for number, (begin, point) in enumerate(zip(begins, points, strict=False)):
        panel.axvline(begin + 0.5, color="grey", linewidth=0.6, label="next mu")
        mu = finite(point.get("mu"))
        if named and mu is not None and number % every == 0:
            above = {"transform": panel.get_xaxis_transform(), "va": "bottom", "fontsize": 7}
            panel.text(begin + 0.5, 1.01, rf"$\mu$ {mu:.3g}", color="dimgrey", **above)


def _number(value: object) -> float:
    """A figure, NaN where it is none, which leaves a gap."""
    number = finite(value)
    return math.nan if number is None else number


def bands(arms: Arms, *, title: str, controls: Arms | None = None) -> "Figure":
    """Accuracy over zero kernels for each arm: the mean of its seeds, and one deviation around it.

    Seeds whose points lie at other sparsities are interpolated between them, never beyond them;
    where they have no sparsity in common, as half-way through, their points stand alone. Controls
    are drawn beside them, in grey and as far as the arms go.
    """
    figure = blank(8, 5)
    axes = figure.add_subplot()
    for arm, seeds in arms.items():
        grid, means, deviations = _band(arm, seeds)
        label = f"{arm} (n = {len(seeds)})"
        (line,) = axes.plot(grid, means, color=_COLOURS.get(arm), label=label)
        colour = line.get_color()
        low, high = (
            [mean + sign * deviation for mean, deviation in zip(means, deviations, strict=True)]
            for sign in (-1, 1)
        )
        axes.fill_between(grid, low, high, color=colour, alpha=0.2, linewidth=0)
        for points in seeds.values():
            zeros, accuracies = zip(*points, strict=True)
            axes.plot(_percent(zeros), _percent(accuracies), ".", color=colour, markersize=3)
    axes.autoscale(enable=False, axis="x")
    for (control, seeds), style in zip(
        (controls or {}).items(), itertools.cycle(_CONTROLS), strict=False
    ):
        grid, means, _ = _band(control, seeds)
        axes.plot(grid, means, style, color="grey", label=f"{control} (n = {len(seeds)})")
    axes.set_xlabel("zero kernels (%)")
    axes.set_ylabel("accuracy (%)")
    axes.set_title(textwrap.fill(title, 70), fontsize=11)
    axes.grid(alpha=0.3)
    axes.legend(loc="lower left")
    return figure


def _percent(shares: Sequence[float]) -> list[float]:
    return [100 * share for share in shares]


def _band(arm: str, seeds: Mapping[Any, Points]) -> tuple[list[float], list[float], list[float]]:
    """Zero kernels, mean accuracy and its standard deviation over seeds, in percent."""
    grid, samples = shared_zeros(arm, seeds), []
    for zeros in grid:
        found = accuracies_at(seeds, zeros)
        assert found is not None, "every seed has points on both sides"
        samples.append(Sample.of(_percent(found)))
    return _percent(grid), [sample.mean for sample in samples], [sample.sd for sample in samples]
