"""What a run leaves beside its page: the same content as pictures, markdown, LaTeX and CSV."""

from pathlib import Path

from sparsepath.errors import BadInput
from sparsepath.lab.folders import Record
from sparsepath.report.formats import FORMATS, in_full
from sparsepath.report.layout import Table
from sparsepath.report.losses import Losses, loss_after, read_losses
from sparsepath.report.pictures import pictures, write_pictures
from sparsepath.report.reading import read_run
from sparsepath.report.tables import finite, point_number
from sparsepath.report.view import Source
from sparsepath.storage import write_text

FOLDER = "report"
CAPTIONS = {
    "curve": "Accuracy over zero blocks, beside the dense reference.",
    "layers": "Zero blocks of every layer along the path.",
    "blocks": "Which blocks live at the ends of the path and at the chosen point.",
    "convergence": "Residuals and loss over the iterations; every next mu is marked.",
}
RESIDUALS = ("primal", "dual", "flipped")


def write_report(folder: Path) -> str:
    """Write all of it into the run's folder; why there are no pictures, if there can be none."""
    source = Source(folder, read_run(folder), read_losses(folder))
    missing = ""
    try:
        write_pictures(pictures(source), folder / FOLDER)
    except BadInput as error:
        missing = str(error)
    write_tables(folder)
    return missing


def write_tables(folder: Path) -> None:
    """Write the tables alone, with the pictures that are there; for what was measured later."""
    record, place = read_run(folder), folder / FOLDER
    drawn = {name: says for name, says in CAPTIONS.items() if (place / f"{name}.png").exists()}
    shown = "".join(f"\n\n![{says}]({name}.svg)" for name, says in drawn.items())
    write_text(place / "report.md", f"{FORMATS['markdown']([record])}{shown}\n")
    figures = "".join(f"\n\n{_latex(name, says)}" for name, says in drawn.items())
    head = "% The document loads graphicx; its \\graphicspath names this folder."
    write_text(place / "report.tex", f"{head}\n{FORMATS['latex']([record])}{figures}\n")
    write_text(place / "report.csv", f"{FORMATS['csv']([record])}\n")
    iterations = _iterations(record, read_losses(folder))
    write_text(place / "convergence.csv", f"{iterations.csv()}\n")


def _latex(name: str, says: str) -> str:
    return "\n".join(
        [
            r"\begin{figure}[htbp]",
            r"\centering",
            f"\\includegraphics[width=\\linewidth]{{{name}.png}}",
            f"\\caption{{{says}}}",
            r"\end{figure}",
        ]
    )


def _iterations(record: Record, losses: Losses) -> Table:
    """One row for every ADMM iteration of the path, in full precision."""
    rows = []
    for point in record["points"]:
        for number, row in enumerate(point.get("residuals") or []):
            loss = loss_after(losses, index=point["index"], iteration=number)
            figures = [point.get("mu"), number + 1, *map(row.get, RESIDUALS), loss]
            rows.append([point_number(point), *(in_full(finite(value)) for value in figures)])
    return Table("", ["point", "mu", "iteration", *RESIDUALS, "loss"], rows)
