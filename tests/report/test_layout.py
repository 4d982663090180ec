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
