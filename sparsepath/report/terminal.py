"""A run in the terminal: its table, and its curve drawn with characters."""

import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sparsepath.lab.folders import Record
from sparsepath.report.formats import FIGURES, figure
from sparsepath.report.tables import as_text, percent

WIDTH, HEIGHT = 64, 14
MARGIN = 8
"""Columns to the left of the plot's inside."""
LEAST = 12
"""Columns of the narrowest plot."""
REACH = 0.15
"""Accuracies further below the highest one are drawn in the lowest row."""


@dataclass(frozen=True)
class Marks:
    """The characters of a plot."""

    validation: str
    test: str
    both: str
    dense: str
    edge: str


PRETTY = Marks(validation="○", test="●", both="◉", dense="┄", edge="│")
ASCII = Marks(validation="o", test="x", both="*", dense="-", edge="|")


def marks_for(encoding: str) -> Marks:
    """The characters that an encoding can show."""
    try:
        "".join(vars(PRETTY).values()).encode(encoding)
    except (UnicodeEncodeError, LookupError):
        return ASCII
    return PRETTY


def show(record: Record, *, marks: Marks = PRETTY, width: int | None = None) -> str:
    """The table of a run, and below it its curve, no wider than the width where it is given."""
    inside = WIDTH if width is None else min(WIDTH, max(LEAST, width - MARGIN))
    return f"{as_text(record, width=width)}\n\n{plot(record, marks=marks, width=inside)}"


def plot(record: Record, *, marks: Marks = PRETTY, width: int = WIDTH, height: int = HEIGHT) -> str:
    """Accuracy over zero blocks, with the dense reference as a line, in characters."""
    splits = {"validation": marks.validation, "test": marks.test}
    drawn = {
        mark: [
            (x, y)
            for point in record["points"]
            if (x := figure(FIGURES["zero_blocks"], point)) is not None
            and (y := figure(FIGURES[split], point)) is not None
        ]
        for split, mark in splits.items()
    }
    line = figure(FIGURES["test"], record["dense"] or {})
    if not any(drawn.values()):
        return "There are no points yet to draw."
    heights = [y for points in drawn.values() for _, y in points]
    heights += [] if line is None else [line]
    high = max(heights)
    # A network that has collapsed would press all others into one row.
    low = max(min(heights), high - REACH)
    below = sum(y < low for points in drawn.values() for _, y in points)
    rows = _canvas(drawn, line, marks, low=low, high=high, size=(width, height))
    labels = {0: percent(high), height - 1: percent(low)}
    body = [
        f"{labels.get(number, ''):>{MARGIN - 2}} {marks.edge}{row}"
        for number, row in enumerate(rows)
    ]
    axis = f"0 %{'zero blocks':^{max(0, width - 8)}}100 %"
    legend = f"{marks.validation} validation  {marks.test} test  {marks.both} both  "
    legend += f"{marks.dense} dense reference in the test; accuracy in percent"
    cut = f"{below} marks in the lowest row lie below it" if below else ""
    margin = " " * MARGIN
    said = textwrap.wrap(legend, max(width, LEAST)) + textwrap.wrap(cut, max(width, LEAST))
    return "\n".join([*body, *(f"{margin}{line}" for line in (axis, *said))])


def _canvas(
    drawn: Mapping[str, Sequence[tuple[float, float]]],
    line: float | None,
    marks: Marks,
    *,
    low: float,
    high: float,
    size: tuple[int, int],
) -> list[str]:
    """The plot's inside: zero blocks to the right, accuracy from low to high upwards."""
    width, height = size
    cells = [[" "] * width for _ in range(height)]

    def row(y: float) -> int:
        return 0 if high == low else round((high - max(y, low)) / (high - low) * (height - 1))

    if line is not None:
        cells[row(line)] = [marks.dense] * width
    taken: dict[tuple[int, int], str] = {}
    for mark, points in drawn.items():
        for x, y in points:
            place = row(y), round(min(max(x, 0.0), 1.0) * (width - 1))
            taken[place] = mark if taken.get(place, mark) == mark else marks.both
    for (down, right), mark in taken.items():
        cells[down][right] = mark
    return ["".join(cell).rstrip() for cell in cells]
