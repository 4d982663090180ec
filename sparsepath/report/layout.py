"""A table of plain cells, as text, markdown, LaTeX or CSV."""

import csv
import io
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from rich.cells import cell_len

from sparsepath.report.safe import (
    as_markdown_line,
    filled,
    for_latex,
    for_markdown,
    for_spreadsheet,
    visible,
)

MISSING = "-"
"""What a table shows of a figure that a record lacks, or that is no number."""
_GAP = "  "
_WIDTH = r"\ifdim\width>\textwidth\textwidth\else\width\fi"


@dataclass(frozen=True)
class Table:
    """Titles, rows of cells, and what is said above and below them."""

    caption: str
    titles: Sequence[str]
    rows: Sequence[Sequence[str]]
    note: str = ""

    def filled(self) -> "Table":
        """Without the columns in which no row has anything; the first says whose the rows are."""
        kept = [
            number
            for number in range(len(self.titles))
            if number == 0 or any(row[number] not in ("", MISSING) for row in self.rows)
        ]
        rows = [[row[number] for number in kept] for row in self.rows]
        return replace(self, titles=[self.titles[number] for number in kept], rows=rows)

    def whole(self, width: int | None = None) -> str:
        """In columns, with what is said above and below, no wider than the width if it is given."""
        note = [filled(line, width) for line in self.note.split("\n\n")]
        return "\n".join([filled(self.caption, width), "", self.text(width), "", *note])

    def text(self, width: int | None = None) -> str:
        """In columns, aligned to the right, without what is said above and below.

        What is wider than the width goes on below, each part with the first column; where that one
        takes most of the width itself, every row is a paragraph.
        """
        rows = [[visible(cell) for cell in row] for row in (self.titles, *self.rows)]
        columns = [_aligned(cells) for cells in zip(*rows, strict=True)]
        widths = [cell_len(cells[0]) for cells in columns]
        parts = list(_parts(widths, width))
        if width is not None and len(parts) > 1 and widths[0] > width / 2:
            return "\n".join(_paragraph(rows[0], row, width) for row in rows[1:])
        return "\n\n".join(
            "\n".join(
                _GAP.join(row).rstrip() for row in zip(*(columns[n] for n in part), strict=True)
            )
            for part in parts
        )

    def csv(self) -> str:
        """For a spreadsheet or a program: titles and cells alone."""
        file = io.StringIO()
        rows = [list(map(for_spreadsheet, row)) for row in (self.titles, *self.rows)]
        csv.writer(file, lineterminator="\n").writerows(rows)
        return file.getvalue().rstrip("\n")

    def markdown(self) -> str:
        """For a page, aligned to the right."""
        rows = [list(map(for_markdown, row)) for row in (self.titles, *self.rows)]
        rows.insert(1, ["---:"] * len(self.titles))
        lines = "\n".join(f"| {' | '.join(row)} |" for row in rows)
        note = "\n".join(map(as_markdown_line, self.note.split("\n")))
        return "\n\n".join(part for part in (as_markdown_line(self.caption), lines, note) if part)

    def latex(self) -> str:
        """For a paper that loads graphicx: no wider than the text, with its caption above."""
        head, *body = (
            f"{' & '.join(map(for_latex, row))} \\\\" for row in (self.titles, *self.rows)
        )
        said = "\n".join(map(for_latex, self.note.split("\n")))
        note = [f"\\par\\smallskip\\footnotesize {said}"] if self.note else []
        lines = [
            r"\begin{table}[htbp]",
            r"\centering",
            f"\\caption{{{for_latex(self.caption)}}}",
            f"\\resizebox{{{_WIDTH}}}{{!}}{{%",
            f"\\begin{{tabular}}{{{'r' * len(self.titles)}}}",
            r"\hline",
            head,
            r"\hline",
            *body,
            r"\hline",
            r"\end{tabular}}",
            *note,
            r"\end{table}",
        ]
        return "\n".join(lines)


def _aligned(cells: Sequence[str]) -> list[str]:
    """The cells of a column, all as wide as its widest is on a terminal."""
    width = max(map(cell_len, cells))
    return [" " * (width - cell_len(cell)) + cell for cell in cells]


def _parts(widths: Sequence[int], room: int | None) -> Iterator[list[int]]:
    """The columns that fit beside each other, each time after the first one."""
    part, used = [0], widths[0]
    for number, width in enumerate(widths[1:], start=1):
        if room is not None and len(part) > 1 and used + len(_GAP) + width > room:
            yield part
            part, used = [0], widths[0]
        part.append(number)
        used += len(_GAP) + width
    yield part


def _paragraph(titles: Sequence[str], row: Sequence[str], width: int) -> str:
    """What the row is of, and below it every figure with its title."""
    figures = zip(titles[1:], row[1:], strict=True)
    said = ", ".join(f"{title} {cell}" for title, cell in figures if cell)
    return f"{row[0]}\n{textwrap.indent(textwrap.fill(said, width - len(_GAP)), _GAP)}"
