"""Several runs in one picture: accuracy over zero blocks, repeated seeds as a band."""

import textwrap
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from sparsepath.errors import BadInput
from sparsepath.lab.folders import Record
from sparsepath.report.bands import band, grouped, labels
from sparsepath.report.figures import blank, cut_off
from sparsepath.report.formats import FIGURES, figure
from sparsepath.report.safe import for_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure

COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000")
"""Okabe and Ito's, which can be told apart by all eyes."""
MARKS = "osD^vPX*"
LINES = ("-", "--", "-.", ":")
SPLITS = ("validation", "test")
LABEL = 60
"""Characters of a label before it breaks."""
WIDE = 5.5
"""Inches of a panel."""
MOST_NAMED = 12
"""Labels under each other; more stand in columns."""


def comparison_figure(records: Sequence[Record]) -> "Figure":
    """Every run or group of seeds as a line, beside its dense reference, for both splits."""
    splits = [split for split in SPLITS if any(_line(r, split) for r in records)]
    if not splits:
        raise BadInput(f"The {len(records)} runs have no points yet to draw.")
    groups = grouped(records)
    names = [textwrap.fill(for_figure(name), LABEL) for name in labels(records, groups)]
    wide = WIDE * len(splits)
    longest = max(len(line) for name in names for line in name.splitlines())
    columns = 1 if len(names) <= MOST_NAMED else max(1, int(wide / (0.6 + 0.06 * longest)))
    lines = sum(1 + name.count("\n") for name in names) / columns
    drawing = blank(wide, 4.2 + 0.2 * lines)
    panels = drawing.subplots(1, len(splits), squeeze=False)[0]
    for panel, split in zip(panels, splits, strict=True):
        for (number, group), name in zip(enumerate(groups), names, strict=True):
            style = {
                "color": COLOURS[number % len(COLOURS)],
                "marker": MARKS[number % len(MARKS)],
                "linestyle": LINES[number // len(COLOURS) % len(LINES)],
                "markersize": 4,
            }
            _draw(panel, [records[n] for n in group], split, {**style, "label": name})
        reached = [100 * y for record in records for _, y in _line(record, split)]
        reached += [100 * level for level in _dense(records, split)]
        panel.set_xlabel(f"zero blocks (%){cut_off(panel, reached)}")
        panel.set_title(f"{split} (dotted: dense)")
        panel.grid(alpha=0.3)
    panels[0].set_ylabel("accuracy (%)")
    shown = dict(_legend(panels))
    drawing.legend(
        shown.values(), shown.keys(), loc="outside lower left", fontsize=8, ncols=columns
    )
    return drawing


def _legend(panels: Sequence[Any]) -> Iterator[tuple[str, Any]]:
    for panel in panels:
        handles, names = panel.get_legend_handles_labels()
        yield from zip(names, handles, strict=True)


def _draw(panel: Any, records: Sequence[Record], split: str, style: dict[str, Any]) -> None:
    """A group as the mean of its seeds with all that lies between them, or as its runs."""
    shared = band(records, split)
    if shared is not None and shared["x"]:
        x, mean, low, high = (_percent(shared[key]) for key in ("x", "mean", "low", "high"))
        panel.plot(x, mean, **style)
        panel.fill_between(x, low, high, color=style["color"], alpha=0.2, linewidth=0)
    else:
        for line in (line for record in records if (line := _line(record, split))):
            x, y = (_percent(values) for values in zip(*line, strict=True))
            panel.plot(x, y, **style)
    for level in _dense(records, split):
        panel.axhline(100 * level, color=style["color"], linestyle=":", linewidth=0.8)


def _dense(records: Sequence[Record], split: str) -> set[float]:
    found = {figure(FIGURES[split], record["dense"] or {}) for record in records}
    return {level for level in found if level is not None}


def _line(record: Record, split: str) -> list[tuple[float, float]]:
    found = (
        (figure(FIGURES["zero_blocks"], point), figure(FIGURES[split], point))
        for point in record["points"]
    )
    return sorted((x, y) for x, y in found if x is not None and y is not None)


def _percent(shares: Sequence[float]) -> list[float]:
    return [100 * share for share in shares]
