"""The plot in the terminal: marks where the numbers are."""

from records import point, record

from sparsepath.report.terminal import ASCII, PRETTY, marks_for, plot, show


def rows(text, height):
    return [line[8:] for line in text.splitlines()[:height]]


def test_marks_stand_at_their_zeros_and_accuracies():
    points = [
        point(0, zero=0.0, validation=0.9, test=1.0),
        point(1, zero=1.0, validation=0.9, test=0.9),
    ]
    drawn = plot(record(points=points, dense=None), marks=ASCII, width=11, height=5)
    assert rows(drawn, 5) == ["x", "", "", "", "o" + " " * 9 + "*"]
    assert drawn.startswith("100.00 |x")
    assert drawn.splitlines()[4].startswith(" 90.00 |o")


def test_the_dense_reference_is_a_line():
    points = [point(0, zero=0.5, validation=0.9, test=0.9)]
    drawn = plot(record(points=points), marks=ASCII, width=11, height=5)
    assert rows(drawn, 5)[0] == "-" * 11


def test_a_collapsed_network_does_not_press_the_others_together():
    points = [point(n, zero=0.5, validation=y, test=y) for n, y in enumerate((1.0, 0.9, 0.1))]
    drawn = plot(record(points=points, dense=None), marks=ASCII, width=40, height=4)
    assert [row.strip() for row in rows(drawn, 4)] == ["*", "", "*", "*"]
    assert "2 marks in the lowest row lie below it" in drawn


def test_one_point_and_none_can_be_drawn():
    points = [point(0, zero=0.5, validation=0.9, test=0.9)]
    assert "*" in plot(record(points=points, dense=None), marks=ASCII)
    assert plot(record(points=[])) == "There are no points yet to draw."
    assert plot(record(points=[{"index": 0}])) == "There are no points yet to draw."


def test_an_encoding_without_circles_gets_letters():
    assert marks_for("utf-8") is PRETTY
    assert marks_for("ascii") is ASCII
    assert marks_for("no-such") is ASCII


def test_show_has_the_table_and_the_plot():
    shown = show(record())
    assert "Sparsest with at least" in shown
    assert PRETTY.test in shown


def test_a_narrow_terminal_has_room_for_everything():
    for width in (40, 60, 80):
        for marks in (ASCII, PRETTY):
            lines = show(record(), marks=marks, width=width).splitlines()
            assert max(map(len, lines)) <= width
    assert PRETTY.test in show(record(), width=40)


def test_a_name_does_not_act_on_the_terminal():
    assert "\x1b" not in show(record(name="a\x1b[2Jb\nc"))
    assert r"a\x1b[2Jb\nc: digit-net" in show(record(name="a\x1b[2Jb\nc"))
