"""The page in a real browser: picking, the slider, themes, keys, and the run's own numbers."""

import json
import re

import numpy as np
import pytest
from browser import (
    browsing,
    click_point,
    complaints,
    load,
    prefer,
    press,
    requests,
    shown,
    slide,
    text,
)
from records import LATENCY
from rival_walks import walk

from sparsepath.lab.comparisons import comparisons
from sparsepath.report import page as page_module
from sparsepath.report.maps import BlockMap
from sparsepath.report.page import write_page

pytest.importorskip("plotly", reason="plotly is not installed")
pytest.importorskip("selenium", reason="selenium is not installed")

from selenium.webdriver.common.actions.action_builder import ActionBuilder
from selenium.webdriver.common.by import By
from selenium.webdriver.support.wait import WebDriverWait

EVIL = "</script><script>window.broken = 1</script><img src=x onerror='window.broken = 1'>"


def test_it_loads_without_an_error_and_without_asking_anyone(chromium, folder):
    requests(chromium), complaints(chromium)
    load(chromium, folder / "report.html")
    inside = ("data:", "blob:", "about:")
    asked = [url for url in requests(chromium) if not url.startswith(inside)]
    assert asked == [(folder / "report.html").resolve().as_uri()]
    assert complaints(chromium) == []
    drawn = chromium.execute_script("return document.querySelectorAll('.js-plotly-plot').length")
    assert drawn == 4  # curve, bars, map, convergence


def test_the_card_shows_the_runs_own_numbers_for_every_point(page, results):
    for point in results["points"]:
        slide(page, "#point", point["index"] + 1)
        assert text(page, "#card h3").startswith(f"Point {point['index'] + 1} of 4")
        assert shown(page, "test") == f"{100 * point['test']:.2f} %"
        assert shown(page, "validation") == f"{100 * point['validation']:.2f} %"
        assert shown(page, "zero_blocks") == f"{100 * point['sparsity']['of_blocks']:.2f} %"
        assert float(shown(page, "mu")) == pytest.approx(point["mu"], rel=5e-3)
        assert text(page, '#card [data-figure="macs"]').startswith(f"{point['macs']['sparse']:,}, ")
        last = point["residuals"][-1]
        residuals = text(page, "#card [data-figure=residuals]")
        primal, dual = re.fullmatch(r"primal (\S+), dual (\S+)", residuals).groups()
        assert float(primal) == pytest.approx(last["primal"], rel=5e-3)
        assert float(dual) == pytest.approx(last["dual"], rel=5e-3)
        for layer, zero in point["sparsity"]["zero_blocks"].items():
            blocks = point["sparsity"]["blocks"][layer]
            assert text(page, f'#card [data-layer="{layer}"]') == f"{zero:,} of {blocks:,}"


def test_the_curve_has_every_point_of_the_run(page, results):
    script = "return document.getElementById('curve').data.map((t) => [t.name, t.x, t.y])"
    traces = {name: (x, y) for name, x, y in page.execute_script(script)}
    zeros = [100 * point["sparsity"]["of_blocks"] for point in results["points"]]
    for split in ("validation", "test"):
        x, y = traces[split]
        assert x == pytest.approx(zeros)
        assert y == pytest.approx([100 * point[split] for point in results["points"]])


def test_it_begins_with_the_runs_choice(page, results):
    number = (results["chosen"] or 0) + 1
    assert text(page, "#card h3").startswith(f"Point {number} of 4")


def test_a_click_picks_a_point_and_everything_follows(page):
    script = (
        "const plot = document.getElementById('curve'), { xaxis, yaxis } = plot._fullLayout;"
        "const trace = plot.data.find((t) => t.name === 'test');"
        "const box = plot.querySelector('.nsewdrag').getBoundingClientRect();"
        "return [box.x + xaxis.l2p(trace.x[2]), box.y + yaxis.l2p(trace.y[2])]"
    )
    x, y = page.execute_script(script)
    hand = ActionBuilder(page)
    hand.pointer_action.move_to_location(round(x), round(y)).pause(0.3).click()
    hand.perform()
    assert text(page, "#card h3").startswith("Point 3 of 4")
    assert page.execute_script("return document.getElementById('point').value") == "3"
    assert text(page, "tr.picked th") == "3"
    assert "at point 3:" in text(page, "#map-said")
    click_point(page, "bars", "conv2.weight", 2)
    assert text(page, "#card h3").startswith("Point 2 of 4")


def test_arrow_keys_walk_along_the_path(page):
    slide(page, "#point", 1)
    press(page, "#curve", "ARROW_RIGHT")
    assert text(page, "#card h3").startswith("Point 2 of 4")
    press(page, "#curve", "ARROW_LEFT")
    press(page, "#curve", "ARROW_LEFT")
    assert text(page, "#card h3").startswith("Point 1 of 4")
    press(page, "#point", "END")
    assert text(page, "#card h3").startswith("Point 4 of 4")


def test_a_row_of_the_table_picks_its_point(page):
    page.execute_script("document.querySelector('#table-0 tbody tr:nth-child(3) button').click()")
    assert text(page, "#card h3").startswith("Point 2 of 4")


def test_the_least_accuracy_picks_the_sparsest_point_that_has_it(page, results):
    points = results["points"]
    for floor in sorted({round(100 * point["validation"], 2) for point in points}):
        slide(page, "#floor", floor)
        placed = float(page.execute_script("return document.getElementById('floor').value"))
        good = [point for point in points if 100 * point["validation"] >= placed - 1e-9]
        if not good:
            assert text(page, "#best").startswith(f"No point has {placed:.2f} %")
            continue
        best = max(good, key=lambda point: (point["sparsity"]["of_blocks"], point["validation"]))
        assert text(page, "#card h3").startswith(f"Point {best['index'] + 1} of 4")
        assert f"point {best['index'] + 1}, " in text(page, "#best")


def test_more_than_any_point_has_is_said(page, results):
    page.execute_script("document.getElementById('floor').max = 101")
    slide(page, "#floor", 101)
    best = max(100 * point["validation"] for point in results["points"])
    assert text(page, "#best") == f"No point has 101.00 %; the most is {best:.2f} %."


def test_the_map_shows_which_blocks_live(page, folder, results):
    from sparsepath.storage import read_tensors

    weights, _ = read_tensors(folder / "points" / "03.safetensors")
    slide(page, "#point", 3)
    for layer in ("conv2.weight", "conv3.weight"):
        script = "const e = document.getElementById('layer'); e.value = arguments[0]; "
        page.execute_script(script + "e.dispatchEvent(new Event('change'))", layer)
        cells = page.execute_script("return document.getElementById('map').data[0].z")
        alive = (weights[layer] != 0).any(dim=(2, 3))
        turned = alive.T if alive.shape[0] > alive.shape[1] else alive
        assert cells == turned.int().tolist()


def test_the_convergence_view_has_every_iteration_and_its_loss(page, folder, results):
    script = "return document.getElementById('residuals').data.map((t) => t.y)"
    primal, dual, loss = page.execute_script(script)
    rows = [row for point in results["points"] for row in point["residuals"]]
    assert primal == pytest.approx([row["primal"] or None for row in rows], rel=1e-5)
    assert dual == pytest.approx([row["dual"] or None for row in rows], rel=1e-5)
    losses = json.loads((folder / "losses.json").read_text())
    stages = [stage for stage in losses if "iteration" in stage]
    assert loss == pytest.approx([list(losses[stage].values())[-1] for stage in stages], rel=1e-5)


def background(page):
    return page.execute_script("return getComputedStyle(document.body).backgroundColor")


def brightness(colour):
    return sum(map(int, re.findall(r"\d+", colour)))


def test_dark_follows_the_system_and_the_switch(page, folder):
    light = background(page)
    assert brightness(light) > 600
    prefer(page, "dark")
    WebDriverWait(page, 10).until(lambda page: brightness(background(page)) < 150)
    font = "return document.getElementById('curve').layout.font.color"
    ink = page.execute_script(font)
    page.execute_script("document.getElementById('theme').click()")
    assert background(page) == light
    assert page.execute_script(font) != ink
    assert text(page, "#theme") == "Dark"
    load(page, folder / "report.html")  # the switch is remembered
    assert background(page) == light


def test_a_phone_needs_no_sideways_scrolling(folder):
    with browsing(width=390, height=844) as phone:
        load(phone, folder / "report.html")
        assert phone.execute_script("return document.documentElement.scrollWidth") <= 390
        assert complaints(phone) == []


def test_everything_that_can_be_used_has_a_name(page):
    used = page.find_elements(By.CSS_SELECTOR, "button, select, input, [tabindex], [role=img]")
    nameless = [
        e.get_attribute("outerHTML")[:80]
        for e in used
        if e.is_displayed() and not e.accessible_name
    ]
    assert nameless == []


def test_several_runs_are_compared_and_a_name_is_only_a_name(chromium, folder, results, tmp_path):
    for number, seed in enumerate((0, 1, 1)):
        place = tmp_path / str(number)
        place.mkdir()
        changed = {**results, "name": f"{EVIL}{number}"}
        penalty = "l1" if number == 2 else "l0"
        changed["settings"] = {**results["settings"], "seed": seed, "penalty": penalty}
        (place / "results.json").write_text(json.dumps(changed))
    folders = [tmp_path / str(number) for number in range(3)]
    write_page(folders, tmp_path / "all.html")
    complaints(chromium)
    load(chromium, tmp_path / "all.html")
    assert complaints(chromium) == []
    assert chromium.execute_script("return window.broken === undefined")
    assert text(chromium, "#run option:nth-child(2)") == f"{EVIL}1"
    script = "return document.getElementById('runs').data.map((t) => t.name)"
    names = chromium.execute_script(script)
    assert {"l0, 2 runs", "l1"} <= set(names)
    click_point(chromium, "runs", "l1", 2)
    assert chromium.execute_script("return document.getElementById('run').value") == "2"
    assert text(chromium, "#card h3").startswith("Point 2 of 4")
    assert text(chromium, "#map-instead").startswith("There are no weights")
    opened = "return [...document.querySelectorAll('details.table')].map((table) => table.open)"
    assert chromium.execute_script(opened) == [False, False, True]


def test_peers_are_drawn_as_bands_beside_l0_and_l1(chromium, tmp_path):
    files = []
    for job in (job for arm in comparisons("cnn", seeds=2).values() for job in arm):
        files.append(tmp_path / f"{job.name}.json")
        files[-1].write_text(json.dumps(walk(job)))
    write_page(files, tmp_path / "all.html")
    complaints(chromium)
    load(chromium, tmp_path / "all.html")
    assert complaints(chromium) == []
    script = (
        "return document.getElementById('runs').data.filter((t) => t.mode === 'lines' && t.name)"
    )
    lines = chromium.execute_script(f"{script}.map((t) => [t.name, t.x.length, t.y[0], t.line])")
    assert lines.pop()[0] == "dense"
    assert [name for name, *_ in lines] == [
        "l0, 2 runs",
        "l1, 2 runs",
        "magnitude, gradual, 2 runs",
        "ssl, 2 runs",
        "fine-tuning, 2 runs",
        "magnitude, one-shot, 6 runs",
    ]
    assert [length for _, length, *_ in lines] == [7, 7, 7, 7, 2, 3]
    assert lines[0][2] == pytest.approx(100 * (0.9 - 0.0005))
    styles = {(line["color"], line["dash"]) for *_, line in lines}
    assert len(styles) == len(lines)


def test_the_card_has_the_measured_latency_and_how_to_deploy(chromium, folder, results, tmp_path):
    timed = json.loads(json.dumps(results))
    timed["points"][1]["latency"] = LATENCY
    (tmp_path / "results.json").write_text(json.dumps(timed))
    write_page([tmp_path], tmp_path / "report.html")
    load(chromium, tmp_path / "report.html")
    slide(chromium, "#point", 2)
    said = "20.0 ms in sparsepath (dense 30.0 ms in torch)"
    assert text(chromium, "#card [data-figure=latency]") == said
    said = "8,001 in sparsepath (dense 4,000 in onnxruntime)"
    assert text(chromium, "#card [data-figure=throughput]") == said
    commands = "return [...document.querySelectorAll('#card code')].map((e) => e.textContent)"
    assert f"sparsepath deploy {tmp_path} --point 2" in chromium.execute_script(commands)
    slide(chromium, "#point", 1)
    assert text(chromium, "#card [data-figure=latency]") == "not measured: deploy this point"


def test_a_layer_of_a_hundred_thousand_blocks_is_drawn(chromium, results, tmp_path, monkeypatch):
    layer, count = next(iter(results["dense"]["blocks"])), 100_000
    whole = json.loads(json.dumps(results))
    for row in (whole["dense"], *(point["sparsity"] for point in whole["points"])):
        row["blocks"][layer] = count
    alive = np.arange(count) % 7 == 0
    map_ = BlockMap(313, 320, count, {str(number): alive for number in range(1, 5)})
    monkeypatch.setattr(page_module, "block_maps", lambda folder, record: {layer: map_})
    (tmp_path / "results.json").write_text(json.dumps(whole))
    write_page([tmp_path], tmp_path / "report.html")
    complaints(chromium)
    load(chromium, tmp_path / "report.html")
    assert complaints(chromium) == []
    assert chromium.execute_script("return document.getElementById('layer').value") == layer
    cells = chromium.execute_script("return document.getElementById('map').data[0].z")
    assert (len(cells), len(cells[0])) == (313, 320)
    flat = [cell for row in cells for cell in row]
    assert flat[:count] == alive.astype(int).tolist()
    assert set(flat[count:]) == {None}


def test_a_run_whose_figures_are_missing_is_shown_with_gaps(chromium, results, tmp_path):
    bare = [{"index": 0}, {"index": 1, "test": float("nan"), "sparsity": None, "macs": {}}]
    torn = {**results, "points": bare, "dense": {"validation": None}, "chosen": 1}
    (tmp_path / "results.json").write_text(json.dumps(torn))
    write_page([tmp_path], tmp_path / "report.html")
    complaints(chromium)
    load(chromium, tmp_path / "report.html")
    assert complaints(chromium) == []
    assert text(chromium, "#card h3").startswith("Point 2 of 2")
    assert "This run has no figures of its points." in text(chromium, "#card")
    assert "NaN" not in text(chromium, "main")
    assert "undefined" not in text(chromium, "main")


@pytest.mark.parametrize("kept", [0, 1], ids=["no points", "one point"])
def test_an_unfinished_run_is_shown_as_far_as_it_is(chromium, results, tmp_path, kept):
    points = results["points"][:kept]
    unfinished = {**results, "finished": False, "points": points, "chosen": None}
    (tmp_path / "results.json").write_text(json.dumps(unfinished))
    write_page([tmp_path], tmp_path / "report.html")
    complaints(chromium)
    load(chromium, tmp_path / "report.html")
    assert complaints(chromium) == []
    assert "unfinished" in text(chromium, ".going")
    assert text(chromium, "#card").startswith("Point 1 of 1" if kept else "No points yet.")
    assert chromium.execute_script("return document.getElementById('reload').checked")
