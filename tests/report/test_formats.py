"""Every format of a run: the same numbers, also where some are missing."""

import csv
import io
import json

import pytest
from records import LATENCY, point, record, walked

from sparsepath.errors import BadInput
from sparsepath.report.formats import FORMATS, as_csv, as_json
from sparsepath.report.overview import overview
from sparsepath.report.reading import plain, read_run
from sparsepath.report.tables import finite, full_table, verdict


def rows_of(text):
    return list(csv.DictReader(io.StringIO(text)))


def test_json_is_the_record_itself_and_of_several_runs_a_list():
    assert json.loads(as_json([record()])) == record()
    assert json.loads(as_json([record(), walked(3)])) == [record(), walked(3)]


@pytest.mark.parametrize("name", ["text", "markdown", "latex"])
def test_several_runs_are_compared_first_and_explained_once(name):
    runs = [{**record(), "name": "one"}, {**walked(3), "name": "two"}]
    runs[0]["points"][1]["latency"] = LATENCY
    said = FORMATS[name](runs)
    assert said.index("2 runs compared") < said.index("one: ") < said.index("two: ")
    for once in ("Flips: ", "zero weights of the sparsified", "MACs fewer: ", "Measured: "):
        assert said.count(once) == 1
    assert said.count("Sparsest with at least") == 2
    assert "Measured: " not in FORMATS[name]([record()])  # what has no column is not explained


def test_csv_has_every_figure_in_full_and_a_column_for_each_layer():
    dense, first, second = rows_of(as_csv([record()]))
    assert (dense["point"], first["point"], second["point"]) == ("dense", "1", "2")
    assert float(second["mu"]) == record()["points"][1]["mu"]
    assert float(second["test"]) == 0.9712
    assert float(dense["validation"]) == 0.98
    assert dense["mu"] == ""
    assert float(second["macs_speedup"]) == 2.0
    assert second["flipped"] == "41"
    assert (second["zero_blocks_a.weight"], second["zero_blocks_b.weight"]) == ("1", "89")
    assert second["latency_speedup"] == ""


def test_csv_of_several_runs_names_each():
    rows = rows_of(as_csv([record(name='a "b", c'), walked(3)]))
    assert [row["run"] for row in rows] == 3 * ['a "b", c'] + 4 * ["my-run"]


def test_the_full_table_has_the_theoretical_and_where_there_is_one_the_measured_speed_up():
    assert full_table(record()).rows[2][-2] == "2.00x"
    assert "measured" not in full_table(record()).titles
    timed = {**record()["points"][0], "latency": LATENCY}
    table = full_table(record(points=[timed]))
    assert dict(zip(table.titles, table.rows[1], strict=True))["measured"] == "1.50x"
    assert dict(zip(table.titles, table.rows[0], strict=True))["measured"] == ""
    assert float(rows_of(as_csv([record(points=[timed])]))[1]["latency_speedup"]) == 1.5


def test_latex_has_the_zero_blocks_of_every_layer():
    text = FORMATS["latex"]([record()])
    assert text.startswith(r"\begin{table}")
    assert "1-89 \\\\" in text


def gaps():
    """A run most of whose figures are missing or no numbers."""
    bare = {"index": 0, "mu": None, "validation": None, "sparsity": None, "residuals": []}
    return record(points=[bare, {"index": 1}], chosen=1, dense={"validation": None})


@pytest.mark.parametrize("form", FORMATS)
def test_missing_figures_are_shown_as_missing(form):
    text = FORMATS[form]([gaps()])
    assert "nan" not in text.lower()
    assert "my-run" in text


def test_a_verdict_without_its_figures_says_so():
    assert verdict(gaps()) == "Figures that a choice needs are missing."


def test_the_overview_has_the_best_figures_of_every_run():
    table = overview([record(), record(name="none", chosen=None), record(dense=None, points=[])])
    rows = [dict(zip(table.titles, row, strict=True)) for row in table.rows]
    assert rows[0]["best"] == "2"
    assert rows[0]["test"] == "97.12"
    assert rows[0]["dense test"] == "97.65"
    assert rows[0]["zero blocks"] == "90.00"
    assert rows[1]["best"] == rows[1]["test"] == ""
    assert rows[2]["dense test"] == "-"


def test_the_overview_leaves_out_what_no_run_has():
    table = overview([record(chosen=None), record(dense=None, points=[], chosen=None)])
    assert not {"best", "zero blocks", "test", "MACs fewer"} & set(table.titles)
    assert "dense test" in table.titles
    assert "dense test" not in overview([record(dense=None, points=[], chosen=None)]).titles


@pytest.mark.parametrize(
    ("value", "number"),
    [(0.5, 0.5), (3, 3), (float("nan"), None), (float("-inf"), None), (True, None), ("1", None)],
)
def test_only_finite_numbers_are_figures(value, number):
    assert finite(value) == number


def test_plain_is_what_json_holds():
    assert plain({"a": [float("nan"), (1, float("inf"))], "b": "x"}) == {
        "a": [None, [1, None]],
        "b": "x",
    }


def write(folder, content):
    (folder / "results.json").write_text(json.dumps(content))
    return folder


def test_a_record_with_nan_is_read_with_none(tmp_path):
    read = read_run(
        write(tmp_path, record(points=[point(0, zero=0.5, validation=0.9, test=1e999)]))
    )
    assert read["points"][0]["test"] is None


@pytest.mark.parametrize(
    "changes",
    [
        {"settings": {}},
        {"points": [{}]},
        {"points": [{"index": "one"}]},
        {"points": [3]},
        {"dense": [1]},
        {"name": 3},
        {"dense": {"blocks": [1, 2]}},
        {"dense": {"blocks": {"a": 0}}},
        {"dense": {"blocks": {"a": None}}},
        {"points": [{"index": 0, "sparsity": "none"}]},
        {"points": [{"index": 0, "macs": [1]}]},
        {"points": [{"index": 0, "latency": 3}]},
        {"points": [{"index": 0, "sparsity": {"zero_blocks": [1, 2]}}]},
        {"points": [{"index": 0, "sparsity": {"zero_blocks": {"a": "one"}}}]},
        {"points": [{"index": 0, "residuals": "none"}]},
        {"points": [{"index": 0, "residuals": [1]}]},
    ],
    ids=str,
)
def test_a_damaged_record_is_refused_in_a_sentence(tmp_path, changes):
    with pytest.raises(BadInput, match=r"The figures in '.*' are damaged .*restore them"):
        read_run(write(tmp_path, record(**changes)))
