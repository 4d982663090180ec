"""A table of plain cells, as text, markdown, LaTeX or CSV."""

import csv
import io
import re
from collections.abc import Sequence
from dataclasses import dataclass

_LATEX = {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    "±": r"$\pm$",
    # At the start of a row these two would be read as arguments of the line break before it.
    "[": "{[}",
    "*": "{*}",
    **{character: f"\\{character}" for character in "&%$#_{}"},
}
_MINUS = re.compile(r"(?<!\w)-(?=\d)")
_NORM = re.compile(r"\bl([01])\b")
_WIDTH = r"\ifdim\width>\textwidth\textwidth\else\width\fi"


@dataclass(frozen=True)
class Table:
    """Titles, rows of cells, and what is said above and below them."""

    caption: str
    titles: Sequence[str]
    rows: Sequence[Sequence[str]]
    note: str = ""

    def text(self) -> str:
        """In columns, aligned to the right, without what is said above and below."""
        rows = [self.titles, *self.rows]
        widths = [max(map(len, cells)) for cells in zip(*rows, strict=True)]
        return "\n".join(
            "  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
            for row in rows
        )

    def csv(self) -> str:
        """For a spreadsheet or a program: titles and cells alone."""
        file = io.StringIO()
        csv.writer(file, lineterminator="\n").writerows([self.titles, *self.rows])
        return file.getvalue().rstrip("\n")

    def markdown(self) -> str:
        """For a page, aligned to the right."""
        rows = [self.titles, ["---:"] * len(self.titles), *self.rows]
        lines = "\n".join(f"| {' | '.join(map(_markdown, row))} |" for row in rows)
        return "\n\n".join(part for part in (self.caption, lines, self.note) if part)

    def latex(self) -> str:
        """For a paper that loads graphicx: no wider than the text, with its caption above."""
        head, *body = (f"{' & '.join(map(_latex, row))} \\\\" for row in (self.titles, *self.rows))
        note = [f"\\par\\smallskip\\footnotesize {_latex(self.note)}"] if self.note else []
        lines = [
            r"\begin{table}[htbp]",
            r"\centering",
            f"\\caption{{{_latex(self.caption)}}}",
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


def _markdown(cell: str) -> str:
    return cell.replace("|", r"\|")


def _latex(text: str) -> str:
    """Text in which LaTeX sees no commands; a minus and the norms l0 and l1 look as they should."""
    escaped = "".join(_LATEX.get(character, character) for character in text)
    return _NORM.sub(r"$\\ell_\1$", _MINUS.sub("$-$", escaped))
