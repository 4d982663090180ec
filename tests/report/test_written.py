"""What a run leaves beside its page: the run's own numbers, in every format."""

import csv
import io
import json
import re
import shutil
import subprocess
import sys

import pytest
from records import LATENCY, record, walked

from sparsepath.report.formats import FORMATS
from sparsepath.report.written import FOLDER, write_report, write_tables

TABLES = {"report.md", "report.tex", "report.csv", "convergence.csv"}
HOSTILE = 'a|b $x$ \\input{y} <script> "q", \x1b[1m\n=c'


def written(folder, whole):
    (folder / "results.json").write_text(json.dumps(whole))
    return write_report(folder), {path.name for path in (folder / FOLDER).iterdir()}


def rows_of(file):
    return list(csv.DictReader(io.StringIO(file.read_text())))


def test_a_run_has_its_pictures_and_tables(tmp_path):
    pytest.importorskip("matplotlib")
    (tmp_path / "losses.json").write_text('{"point 2, iteration 1": {"4": 0.125}}')
    missing, files = written(tmp_path, walked(3))
    views = {
        f"{name}.{end}" for name in ("curve", "layers", "convergence") for end in ("png", "svg")
    }
    assert (missing, files) == ("", TABLES | views)
    markdown = (tmp_path / FOLDER / "report.md").read_text()
    assert markdown.startswith(FORMATS["markdown"]([walked(3)]))
    assert re.findall(r"\]\((.*?)\)", markdown) == ["curve.svg", "layers.svg", "convergence.svg"]
    rows = rows_of(tmp_path / FOLDER / "convergence.csv")
    assert [(row["point"], row["iteration"]) for row in rows] == [
        (str(k), str(n)) for k in (1, 2, 3) for n in (1, 2)
    ]
    assert float(rows[3]["dual"]) == 0.25
    assert [row["loss"] for row in rows] == ["", "", "0.125", "", "", ""]


def test_without_matplotlib_there_are_the_tables_and_a_reason(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    missing, files = written(tmp_path, walked(3))
    assert "needs matplotlib" in missing
    assert files == TABLES
    assert "![" not in (tmp_path / FOLDER / "report.md").read_text()


def test_what_was_measured_later_comes_into_the_tables(tmp_path):
    written(tmp_path, whole := walked(2))
    whole["points"][0]["latency"] = LATENCY
    (tmp_path / "results.json").write_text(json.dumps(whole))
    write_tables(tmp_path)
    assert "1.50x" in (tmp_path / FOLDER / "report.md").read_text()
    (_, first, _) = rows_of(tmp_path / FOLDER / "report.csv")
    assert float(first["latency_speedup"]) == 1.5


@pytest.mark.parametrize("points", [[], [{"index": 0, "residuals": [{"primal": None}]}]], ids=str)
def test_a_run_with_little_to_show_has_its_tables(tmp_path, points):
    _, files = written(tmp_path, record(points=points, chosen=None))
    assert files >= TABLES


@pytest.mark.skipif(shutil.which("pdflatex") is None, reason="pdflatex is not installed")
def test_the_latex_compiles_with_its_pictures(tmp_path):
    pytest.importorskip("matplotlib")
    whole = walked(3, data=HOSTILE)
    for row in (whole["dense"], *(each["sparsity"] for each in whole["points"])):
        row["blocks"] = {HOSTILE: 10, "_b_%": 90}
    written(tmp_path, {**whole, "name": HOSTILE})
    folder = tmp_path / FOLDER
    (folder / "all.tex").write_text(
        "\\documentclass{article}\\usepackage{graphicx}\\begin{document}"
        "\\input{report}\\end{document}"
    )
    command = ["pdflatex", "-no-shell-escape", "-halt-on-error", "-interaction=batchmode", "all"]
    done = subprocess.run(command, cwd=folder, capture_output=True, check=False)
    log = (folder / "all.log").read_text(errors="replace")
    assert done.returncode == 0, log[-800:]
    assert log.count(".png Graphic file") == 3


def shown(form, whole):
    """The rows of points in a format, cells by title, as they stand there."""
    text = FORMATS[form]([whole])
    if form == "markdown":
        lines = [line for line in text.splitlines() if line.startswith("|")]
        cells = [[cell.strip() for cell in line.split("|")[1:-1]] for line in lines]
        del cells[1]
    elif form == "latex":
        lines = [line.removesuffix(r" \\") for line in text.splitlines() if line.endswith(r"\\")]
        cells = [[cell.strip() for cell in line.split("&")] for line in lines]
    else:
        cells = list(csv.reader(io.StringIO(text)))
    titles, _, *rows = cells
    return [dict(zip(titles, row, strict=True)) for row in rows]


@pytest.mark.parametrize("form", ["markdown", "latex"])
def test_printed_tables_have_the_papers_figures_from_the_record(form):
    whole = record()
    whole["points"][1]["latency"] = LATENCY
    for row, point in zip(shown(form, whole), whole["points"], strict=True):
        counts = point["sparsity"]["zero_blocks"].values()
        assert float(row["mu"]) == pytest.approx(point["mu"], rel=5e-3)
        assert row["val"] == f"{100 * point['validation']:.2f}"
        assert row["test"] == f"{100 * point['test']:.2f}"
        assert row["zero blocks"] == f"{100 * point['sparsity']['of_blocks']:.2f}"
        assert row["zero blocks by layer"] == "-".join(map(str, counts))
        assert row["epochs"] == str(point["epochs"])
        assert row["MACs fewer"] == f"{point['macs']['speedup']:.2f}x"
    assert [row["measured"] for row in shown(form, whole)] == ["-", "1.50x"]


def test_the_csv_has_the_papers_figures_in_full():
    whole = record()
    whole["points"][1]["latency"] = LATENCY
    for row, point in zip(shown("csv", whole), whole["points"], strict=True):
        found = {name: float(row[name]) for name in ("mu", "validation", "test", "epochs")}
        assert found == {name: point[name] for name in found}
        assert float(row["zero_blocks"]) == point["sparsity"]["of_blocks"]
        assert float(row["zero_of_model"]) == point["sparsity"]["of_model"]
        assert float(row["macs_speedup"]) == point["macs"]["speedup"]
        for layer, zeros in point["sparsity"]["zero_blocks"].items():
            assert int(row[f"zero_blocks_{layer}"]) == zeros
    assert [row["latency_speedup"] for row in shown("csv", whole)] == ["", "1.5"]
