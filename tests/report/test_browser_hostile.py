"""The page of runs that nobody would make on purpose: all are shown, and nothing breaks."""

import json

import pytest
from browser import choose, load, made, slide, text
from records import point, record, walked
from rival_walks import walk

from sparsepath.lab.comparisons import comparisons
from sparsepath.report.page import LIMIT, write_page

pytest.importorskip("plotly", reason="plotly is not installed")
pytest.importorskip("selenium", reason="selenium is not installed")

TURNED = "<b>\u202egnp.\u202c\x1b[31m \u05e9\u05dc\u05d5\u05dd %{x}"
SEEN = "<b>\\u202egnp.\\u202c\\x1b[31m \u05e9\u05dc\u05d5\u05dd %{x}"


@pytest.fixture
def page(browser):
    return browser


def test_names_hide_nothing_and_turn_nothing(page, tmp_path):
    whole = walked(2)
    dense = {**whole["dense"], "blocks": {TURNED: 10, "b.weight": 90}}
    for each in whole["points"]:
        each["sparsity"]["zero_blocks"] = {TURNED: 1, "b.weight": 5}
    settings = {**whole["settings"], "network": TURNED}
    whole |= {"name": TURNED, "dense": dense, "settings": settings}
    load(page, made(tmp_path, whole, {**walked(3), "name": "b"}))
    for place in ("#card .run bdi", "#runs-table tbody th bdi", "summary bdi"):
        assert text(page, place) == SEEN
    assert text(page, "#run option") == SEEN
    zeros = "return document.querySelector('#card .layers dd')"
    assert page.execute_script(f"{zeros}.dataset.layer") == SEEN
    assert page.execute_script(f"{zeros}.textContent") == "1 of 10"
    assert text(page, "#layer option") == SEEN
    drawn = "return document.querySelector('#bars .legendtext').textContent"
    assert page.execute_script(drawn) == f"\u2068{SEEN}\u2069"
    body = page.execute_script("return document.documentElement.outerHTML")
    assert not {"\u202e", "\u202c", "\x1b"} & set(body)
    hovered = "return document.getElementById('runs').data.map((t) => t.hovertemplate).join()"
    assert "%{x}:" not in page.execute_script(hovered)  # a name is no template


def test_a_walk_has_no_rows_and_columns_of_dashes(page, tmp_path):
    jobs = [job for arm in comparisons("cnn", seeds=1).values() for job in arm][:2]
    files = []
    for job in jobs:
        bare = walk(job)
        del bare["dense"]["validation"]
        for each in bare["points"]:
            for name in ("validation", "validation_W", "validation_F", "residuals", "iterations"):
                each.pop(name, None)
        files.append(tmp_path / f"{job.name}.json")
        files[-1].write_text(json.dumps(bare))
    write_page(files, tmp_path / "all.html")
    load(page, tmp_path / "all.html")
    cells = "return [...document.querySelectorAll('#card dd')].map((e) => e.textContent)"
    said = page.execute_script(cells)
    assert len(said) > 5
    assert not [cell for cell in said if cell == "-" or "(dense -)" in cell]
    titles = "return [...document.querySelectorAll('#runs-table thead th')]"
    assert "best" not in page.execute_script(f"{titles}.map((e) => e.textContent)")
    legend = "return document.getElementById('curve').data.map((t) => t.name)"
    assert not [name for name in page.execute_script(legend) if name.startswith("validation")]
    assert not page.execute_script("return document.getElementById('inner').checkVisibility()")
    options = "return [...document.querySelectorAll('#split option')].map((e) => e.textContent)"
    assert page.execute_script(options) == ["test"]


LOG_LABELS = """
const found = {};
for (const plot of document.querySelectorAll(".js-plotly-plot")) {
  for (const [name, tick] of [["xaxis", ".xtick"], ["yaxis", ".ytick"], ["yaxis2", ".y2tick"]]) {
    if (plot._fullLayout[name]?.type !== "log") continue;
    found[`${plot.id} ${name}`] = [...plot.querySelectorAll(tick)].map((e) => e.textContent);
  }
}
return found;
"""


@pytest.mark.parametrize(
    "speedups", [[1.2, 1.9], [2.0], [1.0, 40.0], [1.01, 1.012]], ids=lambda each: str(each)
)
def test_a_logarithmic_axis_has_numbers_to_read_it_by(page, tmp_path, speedups):
    whole = walked(len(speedups))
    for each, speedup in zip(whole["points"], speedups, strict=True):
        each["macs"] = {**each["macs"], "speedup": speedup}
        each["residuals"] = [{"primal": 2.5 * speedup, "dual": 3.0}]
    load(page, made(tmp_path, whole))
    choose(page, "#across", "macs_speedup")
    found = page.execute_script(LOG_LABELS)
    assert set(found) == {"curve xaxis", "residuals yaxis"}
    for labels in found.values():
        assert 3 <= len(labels) <= 10
        assert len(set(labels)) == len(labels)
        assert [float(label) for label in labels] == sorted(map(float, labels))


def test_zooming_in_keeps_numbers_on_a_logarithmic_axis(page, tmp_path):
    load(page, made(tmp_path, walked(3)))
    script = "Plotly.relayout('residuals', { 'yaxis.range': [0.31, 0.33] })"
    page.execute_script(script)
    assert len(page.execute_script(LOG_LABELS)["residuals yaxis"]) >= 3


def test_fifty_runs_are_shown(page, tmp_path):
    runs = [{**walked(20, seed=n), "name": f"run-{n}"} for n in range(48)]
    runs.append(record(name="one point", points=record()["points"][:1], chosen=0))
    runs.append(record(name="none", points=[], dense=None, chosen=None, finished=False))
    place = made(tmp_path, *runs)
    assert place.stat().st_size < LIMIT
    load(page, place)
    choose(page, "#run", "49")
    assert text(page, "#card").startswith("No points yet.")
    slide(page, "#floor", 97)
    assert "with at least 97.00 %" in text(page, "#best")


def test_one_point_without_a_single_figure(page, tmp_path):
    torn = record(points=[{"index": 0}], dense={}, chosen=None)
    load(page, made(tmp_path, torn))
    assert text(page, "#curve-instead") == "No point of this run has an accuracy."
    assert text(page, "#floor-said") == "no point has an accuracy and zero blocks"
    assert text(page, "#point-said") == "1"
    for word in ("NaN", "undefined", "null", "Infinity"):
        assert word not in text(page, "main")


def test_a_network_of_many_layers_keeps_its_commands_near(page, tmp_path):
    layers = {f"stage.{n}.conv.weight": 64 for n in range(120)}
    whole = walked(3)
    whole["dense"] |= {"blocks": layers}
    for each in whole["points"]:
        each["sparsity"] |= {"blocks": layers, "zero_blocks": dict.fromkeys(layers, 7)}
    load(page, made(tmp_path, whole))
    height = "return document.getElementById('card').getBoundingClientRect().height"
    assert page.execute_script(height) < 1300  # not 120 layers long
    assert page.execute_script("return document.querySelector('.many').tabIndex") == 0


def test_points_of_equal_numbers_and_odd_values(page, tmp_path):
    points = [point(n, zero=1.0, validation=1.0, test=0.0) for n in range(3)]
    for each in points:
        each["mu"] = 0.0
        each["residuals"] = [{"primal": 0.0, "dual": 0.0}]
    load(page, made(tmp_path, record(points=points, chosen=0)))
    most = "return document.getElementById('floor').max"
    assert float(page.execute_script(most)) == 100
    slide(page, "#floor", 100)
    assert text(page, "#best").startswith("Sparsest with at least 100.00 %: point 1, ")
