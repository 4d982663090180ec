"""Names that anyone may choose act on nothing that shows them."""

import csv
import io
import shutil
import subprocess

import pytest
from markdown_it import MarkdownIt

from sparsepath.report.layout import Table
from sparsepath.report.safe import (
    for_figure,
    for_latex,
    for_markdown,
    for_spreadsheet,
    for_terminal,
    visible,
)

HOSTILE = [
    "\x1b[31mred\x1b[0m\x07",
    "two\nlines\r\tand a tab",
    "<script>alert(1)</script> &amp; <b>",
    r"a|b \| c \\| d",
    "*a* _b_ __c__ `d` [e](http://f) ![g](h) ~~i~~ $j$",
    "# heading",
    "- item",
    "1. first",
    "> quote",
    "    code",
    r"\input{/etc/passwd} 50 % #1 {x} ^~",
    "=1+1",
    "@SUM(A1)",
    "-1+cmd|' /C calc'!A0",
    "中文 é ± ﷽ \U0001f600 ą",
    "\u202eevil\u2028x\udcff",
]


@pytest.mark.parametrize("name", HOSTILE)
def test_a_terminal_gets_no_control_character(name):
    shown = for_terminal(f"one {name}", "utf-8")
    assert all(c.isprintable() or c == "\n" for c in shown)
    assert shown.encode()
    assert for_terminal(name, "ascii").isascii()


def test_what_is_not_seen_is_spelled_out():
    assert visible("a\x1b[31m\n\tb\u202e") == r"a\x1b[31m\n\tb\u202e"
    assert for_terminal("é\nü", "ascii") == "\\xe9\n\\xfc"
    assert for_terminal("é", "no-such") == r"\xe9"
    assert visible("an é, 中 and ±") == "an é, 中 and ±"


@pytest.mark.parametrize("name", HOSTILE)
def test_markdown_shows_a_name_as_it_is(name):
    """Also where it stands alone, as the caption does, and is no heading, list, or markup."""
    shown = visible(name).strip()
    tokens = MarkdownIt("gfm-like", {"linkify": False}).parse(
        Table(name, ["x", "y"], [[name, "1"]], note=visible(name)).markdown()
    )
    blocks = [token.type for token in tokens if token.level == 0]
    paragraph = ["paragraph_open", "paragraph_close"]
    assert blocks == [*paragraph, "table_open", "table_close", *paragraph]
    caption, _, _, cell, _, note = (token for token in tokens if token.type == "inline")
    for inline in (caption, cell, note):
        assert {child.type for child in inline.children} <= {"text", "text_special"}
        assert "".join(child.content for child in inline.children) == shown


def test_usual_names_stay_as_they_are_in_markdown():
    for name in ("digits-digit-net-l0-0a1b", "conv1.weight", "x86_64", "0.5 ± 0.1", "-", "3."):
        assert for_markdown(name) == name


@pytest.mark.parametrize("name", HOSTILE)
def test_a_row_stays_one_row_in_csv_and_no_formula(name):
    titles, row = csv.reader(io.StringIO(Table("", ["run", "mu"], [[name, "-0.5"]]).csv()))
    assert titles == ["run", "mu"]
    assert row[0].removeprefix("'") == visible(name)
    assert row[0][0] not in "=+-@\t\r"
    assert row[1] == "-0.5"


def test_numbers_are_no_formulas():
    for number in ("-0.5", "-1e-05", "+3", "-", "-0.50 ± 0.12", "-3 (2.1x)", ""):
        assert for_spreadsheet(number) == number
    for formula in ("-A1", "+cmd", "-1+A1", "=1", "@x", "-1|x", "-1!A0"):
        assert for_spreadsheet(formula) == f"'{formula}"


def test_latex_names_a_character_that_its_fonts_lack():
    assert for_latex("中é") == "(U+4E2D)é"
    assert for_latex("\x1b") == r"\textbackslash{}x1b"


@pytest.mark.skipif(shutil.which("pdflatex") is None, reason="pdflatex is not installed")
def test_latex_compiles_whatever_a_name_holds(tmp_path):
    every = "".join(map(chr, range(0xA1, 0x180)))
    rows = [[name, "1"] for name in [*HOSTILE, every, "[x", "*y"]]
    body = "\n".join(
        Table(name, ["x", "y"], rows, note=f"{name}\n\nl0 -5 %").latex() for name in HOSTILE
    )
    head = "\\documentclass{article}\\usepackage{graphicx}\\begin{document}"
    (tmp_path / "t.tex").write_text(f"{head}\n{body}\n\\clearpage\\end{{document}}")
    command = ["pdflatex", "-no-shell-escape", "-halt-on-error", "-interaction=batchmode", "t.tex"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    log = (tmp_path / "t.log").read_text(errors="replace")
    assert done.returncode == 0, [line for line in log.splitlines() if line.startswith("!")]


def test_a_figure_shows_dollars_and_leading_underscores():
    assert for_figure("$x$") == r"\$x\$"
    assert for_figure("_hidden\x1b") == r" _hidden\x1b"
