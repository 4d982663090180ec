"""What the figures of the page hold: l0 beside l1, the dense level, every layer, iterations."""

import pytest
from browser import choose, load, made, text
from records import walked

pytest.importorskip("plotly", reason="plotly is not installed")
pytest.importorskip("selenium", reason="selenium is not installed")


@pytest.fixture
def page(browser):
    return browser


def drawn(page, plot, what):
    """Something of every trace of a figure."""
    script = f"return document.getElementById(arguments[0]).data.map((t) => t.{what} ?? null)"
    return page.execute_script(script, plot)


def levels(page, plot):
    """The heights of the lines across a figure."""
    script = "return document.getElementById(arguments[0]).layout.shapes.map((s) => s.y0)"
    return page.execute_script(script, plot)


def test_l0_and_l1_are_drawn_together_in_both_splits_with_the_dense_level(page, tmp_path):
    other = {**walked(4, penalty="l1"), "name": "other"}
    other["dense"] = {**other["dense"], "validation": 0.93}
    load(page, made(tmp_path, walked(4), other))
    names = drawn(page, "curve", "name")
    assert {f"{run}: {split}" for run in ("l0", "l1") for split in ("validation", "test")} <= {
        *names
    }
    assert "dense" in names
    assert {98.0, 97.65, 93.0} <= set(levels(page, "curve"))
    beside = drawn(page, "curve", "y")[names.index("l1: validation")]
    assert beside == pytest.approx([98, 97, 96, 95])
    assert drawn(page, "runs", "name") == ["l0", "l1", "dense", "picked run"]
    assert levels(page, "runs") == pytest.approx([97.65])  # both began alike
    choose(page, "#split", "validation")
    assert sorted(levels(page, "runs")) == pytest.approx([93, 98])


def test_fifty_different_runs_leave_room_for_their_curves(page, tmp_path):
    runs = [{**walked(3, rho=0.1 * n), "name": f"run-{n}-{'long-' * 12}"} for n in range(50)]
    load(page, made(tmp_path, *runs))
    sizes = "const { height, _size } = document.getElementById('runs')._fullLayout; "
    inside, whole = page.execute_script(sizes + "return [_size.h, height]")
    assert inside > 0.75 * whole
    legend = "return document.querySelectorAll('#runs .legend').length"
    assert page.execute_script(legend) == 0
    assert page.execute_script("return document.getElementById('runs-names').checkVisibility()")
    cut = "const e = document.querySelector('#runs-table tbody th'); "
    assert page.execute_script(cut + "return e.scrollWidth <= e.clientWidth + 1")
    page.execute_script("document.querySelectorAll('#runs-table tbody button')[7].click()")
    assert text(page, "#card .run") == runs[7]["name"]
    assert drawn(page, "runs", "y")[-1] == pytest.approx([97.5, 96.5, 95.5])
    assert drawn(page, "runs", "line.width")[-1] == 3


def with_layers(count, points):
    whole, layers = walked(points), {f"conv{n}.weight": 50 for n in range(count)}
    whole["dense"] |= {"blocks": layers}
    for each in whole["points"]:
        zeros = {name: (n + each["index"]) % 50 for n, name in enumerate(layers)}
        each["sparsity"] |= {"blocks": layers, "zero_blocks": zeros}
    return whole


def test_every_layer_of_a_network_in_network_has_bars(page, tmp_path):
    load(page, made(tmp_path, with_layers(10, 15)))
    assert drawn(page, "bars", "type") == ["bar"] * 10
    assert drawn(page, "bars", "y")[9] == pytest.approx([2 * (9 + n) for n in range(15)])


def test_many_layers_have_bars_of_the_picked_point_beside_their_map(page, tmp_path):
    load(page, made(tmp_path, with_layers(30, 15)))
    assert drawn(page, "bars", "type") == ["heatmap", "bar"]
    click = "document.getElementById('bars').emit('plotly_click', { points: [{ customdata: "
    where = "document.getElementById('bars').data[0].customdata[3][4]"
    page.execute_script(f"{click}{where} }}] }})")
    assert text(page, "#card h3").startswith("Point 5 of 15")
    assert drawn(page, "bars", "x")[1] == pytest.approx([2 * (n + 4) for n in range(30)])
    frame = "return document.getElementById('bars').layout.shapes.map((s) => [s.x0, s.layer])"
    ((left, layer),) = page.execute_script(frame)
    assert left == pytest.approx(4 - 0.48)
    assert layer == "above"


def ticks(page):
    script = "return [...document.querySelectorAll('#residuals .xtick')].map((e) => e.textContent)"
    return page.execute_script(script)


def test_few_iterations_are_counted_in_whole_numbers_and_none_in_a_sentence(page, tmp_path):
    whole = walked(1)
    for rows, seen in ((1, ["1"]), (3, ["1", "2", "3"])):
        whole["points"][0]["residuals"] = [{"primal": 2.0, "dual": 1.0}] * rows
        load(page, made(tmp_path, whole))
        assert ticks(page) == seen
    whole["points"][0]["residuals"] = [{"flipped": 3}, {"primal": None, "dual": 0.0}]
    load(page, made(tmp_path, whole))
    assert text(page, "#residuals-instead").startswith("The residuals of this run are missing")
    assert not page.execute_script("return document.getElementById('residuals').checkVisibility()")


def test_the_zero_blocks_of_every_layer_are_in_sight_and_rows_can_be_touched(page, tmp_path):
    load(page, made(tmp_path, with_layers(10, 3)))
    box = "return document.querySelector(arguments[0]).getBoundingClientRect()"
    cell = page.execute_script(box, "#table-0 tbody tr:nth-child(2) td:last-child")
    assert cell["right"] <= page.execute_script(box, ".scroll")["right"] + 1
    assert text(page, "#table-0 tbody tr:nth-child(2) td:last-child") == "0-1-2-3-4-5-6-7-8-9"
    assert page.execute_script(box, "#table-0 tbody button")["height"] >= 24
