"""A table keeps its cells apart in markdown and LaTeX, whatever is in them."""

import re

from sparsepath.report.layout import Table

HOSTILE = r"a|b & 50 % $x_1$ #{1} \input{/etc/passwd} ~^ <c> [d] *e"
TABLE = Table("One caption.", ["x", "y"], [["1-2", "-3.50"], [HOSTILE, ""]], "A note: 5 %.")


def test_markdown_has_caption_rows_and_note():
    caption, _, titles, rule, first, second, _, note = TABLE.markdown().splitlines()
    assert (caption, note) == ("One caption.", "A note: 5 %.")
    assert titles == "| x | y |"
    assert rule == "| ---: | ---: |"
    assert first == "| 1-2 | -3.50 |"
    assert len(re.findall(r"(?<!\\)\|", second)) == 3


def test_latex_has_a_line_for_every_row_and_escapes_every_cell():
    lines = TABLE.latex().splitlines()
    assert r"\begin{tabular}{rr}" in lines
    assert r"1-2 & $-$3.50 \\" in lines
    assert r"\caption{One caption.}" in lines
    assert r"\par\smallskip\footnotesize A note: 5 \%." in lines
    hostile = next(line for line in lines if line.startswith("a"))
    assert hostile == (
        r"a\textbar{}b \& 50 \% \$x\_1\$ \#\{1\} \textbackslash{}input\{/etc/passwd\} "
        r"\textasciitilde{}\textasciicircum{} \textless{}c\textgreater{} {[}d] {*}e &  \\"
    )


def test_latex_shows_norms_and_minus_as_mathematics():
    lines = Table("l0 and l1", ["x"], [["l0, odd"], ["al0 (-1) 2-3 ± 4"]]).latex().splitlines()
    assert r"\caption{$\ell_0$ and $\ell_1$}" in lines
    assert r"$\ell_0$, odd \\" in lines
    assert r"al0 ($-$1) 2-3 $\pm$ 4 \\" in lines


def test_latex_without_a_note_has_none():
    assert "footnotesize" not in Table("c", ["x"], [["1"]]).latex()


WIDE = Table("", ["run", *"abcdef"], [["one", *["12.34"] * 6], ["two", "", *["5.67"] * 5]])


def test_text_that_is_too_wide_goes_on_below_with_the_first_column():
    assert WIDE.text() == WIDE.text(200)
    assert WIDE.text(22).split("\n\n") == [
        "run      a      b\none  12.34  12.34\ntwo          5.67",
        "run      c      d\none  12.34  12.34\ntwo   5.67   5.67",
        "run      e      f\none  12.34  12.34\ntwo   5.67   5.67",
    ]


def test_rows_with_long_names_are_paragraphs_where_there_is_no_room_for_columns():
    named = Table("", WIDE.titles, [["a-name-of-some-length", *row[1:]] for row in WIDE.rows])
    assert named.text(30).splitlines()[3:] == [
        "a-name-of-some-length",
        "  b 5.67, c 5.67, d 5.67, e",
        "  5.67, f 5.67",
    ]


def test_wide_characters_take_their_place():
    lines = Table("", ["x", "y"], [["中", "1"], ["ab", "2"], ["a\x1b", "3"]]).text().splitlines()
    assert lines == ["    x  y", "   中  1", "   ab  2", "a\\x1b  3"]


def test_columns_that_are_empty_in_every_row_are_left_out():
    table = Table("c", ["a", "b", "d", "e"], [["1", "-", "", "-"], ["2", "", "-", "3"]], "n")
    assert table.filled() == Table("c", ["a", "e"], [["1", "-"], ["2", "3"]], "n")
