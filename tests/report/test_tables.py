"""Tables and figures: the right numbers in the right places."""

import pytest
from records import record

from sparsepath.errors import BadInput
from sparsepath.report.figures import curve
from sparsepath.report.tables import as_markdown, as_text, full_table, heading, verdict

ROW = ["2", "0.00247", "90.00", "43.21", "32.19", "1.72 M", "90.12", "80.34", "97.50"]
ROW += ["97.12", "41", "7"]


def test_the_text_has_a_row_for_dense_and_for_every_point_with_its_numbers():
    lines = as_text(record()).splitlines()
    assert lines[0] == "my-run: digit-net on digits, l0 over kernels, seed 0 (finished)"
    dense = next(line for line in lines if line.startswith("dense"))
    shown = "dense 1.00 2.00 3.00 3.43 M 98.00 97.65 16 1.00x of 10-90"
    assert dense.split() == shown.split()
    assert lines[5].split() == " ".join([*ROW, "2.00x", "1-89"]).split()
    assert "By layer: a.weight, b.weight." in lines


def test_a_narrow_terminal_gets_the_columns_in_parts_and_loses_none():
    whole = as_text(record()).split()
    for width in (40, 80):
        text = as_text(record(), width=width)
        assert max(map(len, text.splitlines())) <= width
        assert set(whole) <= set(text.split())
        titles = [line for line in text.splitlines() if line.startswith("point ")]
        assert len(titles) > 1


def test_columns_that_no_row_has_are_left_out_with_what_is_said_of_them():
    kept = {"index", "mu", "test", "sparsity", "macs", "epochs"}
    points = [{k: v for k, v in p.items() if k in kept} for p in record()["points"]]
    dense = {k: v for k, v in record()["dense"].items() if k != "validation"}
    table = full_table(record(points=points, dense=dense))
    assert not {"val W", "val F", "val", "flips", "measured"} & set(table.titles)
    assert not {"", "-"} & {cell for row in table.rows[1:] for cell in row}
    assert "(val)" not in table.note
    assert "Flips" not in table.note
    assert {"val W", "val", "flips"} < set(full_table(record()).titles)
    assert "(val)" in full_table(record()).note


def test_a_figure_that_one_point_has_keeps_its_column():
    first, second = record()["points"]
    table = full_table(record(points=[{**first, "validation_F": None}, second]))
    column = [dict(zip(table.titles, row, strict=True))["val F"] for row in table.rows]
    assert column == ["", "-", "80.34"]


def test_the_text_stands_in_columns():
    header, dense, first, second = as_text(record()).splitlines()[2:6]
    assert len({len(line) for line in (header, dense, first, second)}) == 1


def test_markdown_has_the_same_numbers_and_the_zero_blocks_of_every_layer():
    lines = as_markdown(record()).splitlines()
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in lines if line[:1] == "|"]
    assert len({len(row) for row in rows}) == 1
    header, rule, dense, first, second = rows
    assert header[-1] == "zero blocks by layer"
    assert set(rule) == {"---:"}
    assert dense[-1] == "of 10-90"
    assert second == [*ROW, "1-89"]
    assert first[-1] == "1-49"


def test_the_verdict_names_the_chosen_point_and_its_test_accuracy():
    said = verdict(record())
    assert said.startswith("Sparsest with at least 97.00 % in validation (dense less 1): ")
    assert "point 2, 90.00 % zero blocks, test 97.12 % (dense 97.65 %)" in said
    assert "2.0 times fewer MACs in theory" in said


def test_the_verdict_says_when_no_point_is_good_enough():
    said = verdict(record(chosen=None))
    assert said == "No point has at least 97.00 % in validation (dense less 1)."


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"points": record()["points"][:1], "chosen": 0}, "unfinished: 1 of 2 points"),
        ({"points": [], "chosen": None}, "unfinished: 0 of 2 points"),
        ({"dense": None, "points": [], "chosen": None}, "unfinished: the dense reference"),
    ],
)
def test_an_unfinished_run_says_so(changes, said):
    unfinished = record(finished=False, **changes)
    assert said in heading(unfinished)
    assert said in as_text(unfinished)
    assert said in as_markdown(unfinished)


def test_the_curve_is_a_png(tmp_path):
    pytest.importorskip("matplotlib")
    curve(record(), tmp_path / "curve.png")
    assert (tmp_path / "curve.png").read_bytes().startswith(b"\x89PNG")


def test_a_point_far_below_dense_is_counted_and_does_not_flatten_the_picture(tmp_path, monkeypatch):
    pytest.importorskip("matplotlib")
    drawn = []
    monkeypatch.setattr(
        "sparsepath.report.figures.write_png", lambda figure, path: drawn.append(figure)
    )
    curve(record(), tmp_path / "curve.png")
    low = record()
    low["points"][-1].update(validation=0.1, test=0.1)
    curve(low, tmp_path / "curve.png")
    usual, cut = (figure.axes[0] for figure in drawn)
    assert usual.get_xlabel() == "zero blocks (%)"
    assert "below 83 % and off the figure" in cut.get_xlabel()
    assert cut.get_ylim()[0] > 80


def test_there_is_no_curve_without_points(tmp_path):
    pytest.importorskip("matplotlib")
    with pytest.raises(BadInput, match="'my-run' has no points yet"):
        curve(record(points=[]), tmp_path / "curve.png")


def test_a_choice_without_its_macs_is_still_said_and_of_a_going_run_so_far():
    torn = record()
    del torn["points"][1]["macs"]
    assert verdict(torn).startswith("Sparsest with at least 97.00 % in validation")
    assert verdict(torn).endswith("test 97.12 % (dense 97.65 %).")
    assert verdict(record(finished=False)).startswith("Sparsest so far with at least")
