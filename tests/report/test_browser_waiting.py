"""The page of a run that goes on: it looks for more, keeps the reader's place, and gives up."""

import os
import time

import pytest
from browser import choose, complaints, heard, load, made, slide, text
from records import walked

from sparsepath.report import waiting
from sparsepath.report.page import NAME, write_page

pytest.importorskip("plotly", reason="plotly is not installed")
pytest.importorskip("selenium", reason="selenium is not installed")

from selenium.webdriver.support.wait import WebDriverWait


@pytest.fixture(autouse=True)
def impatient(monkeypatch, chromium):
    monkeypatch.setattr(waiting, "EVERY", 1.0)
    yield
    chromium.execute_script("sessionStorage.clear()")
    chromium.get("about:blank")  # or it would go on


def going(count):
    return {**walked(9), "finished": False, "points": walked(9)["points"][:count]}


def mark(page):
    """Something that is gone when the page is loaded again."""
    page.execute_script("window.marked = true")


def reloaded(page):
    filled = "return !window.marked && document.querySelector('#card')?.childElementCount > 0"
    WebDriverWait(page, 60).until(lambda page: page.execute_script(filled))


def stays(page):
    """Whether the page is still the same after several looks would have been due."""
    time.sleep(5)
    return page.execute_script("return window.marked === true")


def state(page):
    return page.execute_script(
        "const value = (id) => document.getElementById(id).value;"
        "return { layer: value('layer'), across: value('across'), floor: value('floor'),"
        " scroll: scrollY, open: [...document.querySelectorAll('details')].map((e) => e.open),"
        " focus: document.activeElement.textContent, low: document.getElementById('curve')"
        "._fullLayout.yaxis.range[0], inner: document.getElementById('inner').checked }"
    )


def scrolled(page, top):
    page.execute_script(f"window.scrollTo({{ top: {top}, behavior: 'instant' }})")
    return state(page)["scroll"] == top


def test_new_points_come_and_the_reader_stays_where_they_are(chromium, tmp_path):
    collapsed = going(4)
    collapsed["points"][2] |= {"validation": 0.1, "test": 0.1}
    load(chromium, made(tmp_path, collapsed))
    slide(chromium, "#floor", 96.5)
    slide(chromium, "#point", 2)
    choose(chromium, "#layer", "a.weight")
    choose(chromium, "#across", "zero_of_model")
    choose(chromium, "#inner", True)
    chromium.execute_script(
        "document.querySelector('#curve-cut button').click();"
        "document.querySelector('details details').open = true;"
        "const button = document.querySelector('#table-0 tbody tr:nth-child(3) button');"
        "button.focus({ preventScroll: true });"  # which would glide on behind our back
    )
    # A page that is still being drawn is too short to be scrolled.
    WebDriverWait(chromium, 60).until(lambda page: scrolled(page, 700))
    before = state(chromium)
    assert (before["layer"], before["focus"], before["scroll"]) == ("a.weight", "2", 700)
    assert before["low"] < 10
    mark(chromium)
    more = going(5)
    more["points"][2] = collapsed["points"][2]
    made(tmp_path, more)
    WebDriverWait(chromium, 90).until(lambda page: "of 5" in (text(page, "#card h3") or ""))
    assert not chromium.execute_script("return window.marked")
    assert text(chromium, "#card h3").startswith("Point 2 of 5")
    # Figures that are drawn late push the page about for a moment.
    WebDriverWait(chromium, 60).until(lambda page: state(page)["scroll"] == before["scroll"])
    after = state(chromium)
    assert after.pop("low") == pytest.approx(before.pop("low"))
    assert after == before
    assert complaints(chromium) == []


def test_what_is_new_is_said_once(chromium, tmp_path):
    load(chromium, made(tmp_path, going(2)))
    made(tmp_path, going(4))
    assert heard(chromium, "2 new points") == "2 new points: 4 so far."


def test_a_pick_by_the_least_accuracy_goes_on_to_better_points(chromium, tmp_path):
    load(chromium, made(tmp_path, going(2)))
    slide(chromium, "#floor", 97)
    assert text(chromium, "#card h3").startswith("Point 2 of 2")
    more = going(4)
    more["points"][3] |= {"validation": 0.975}
    made(tmp_path, more)
    WebDriverWait(chromium, 90).until(lambda page: "of 4" in (text(page, "#card h3") or ""))
    assert text(chromium, "#card h3").startswith("Point 4 of 4")
    assert text(chromium, "#best").startswith("Sparsest with at least 97.00 %: point 4, ")


def test_a_page_is_not_exchanged_under_the_readers_hands(chromium, tmp_path):
    load(chromium, made(tmp_path, going(2)))
    mark(chromium)
    # Someone who selects a command is about to copy it.
    chromium.execute_script("getSelection().selectAllChildren(document.querySelector('code'))")
    assert stays(chromium)
    chromium.execute_script("getSelection().removeAllRanges()")
    reloaded(chromium)


def test_a_run_that_was_killed_is_not_waited_for(chromium, tmp_path):
    made(tmp_path, going(2))
    long_ago = (tmp_path / "results.json").stat().st_mtime - 3 * 86400
    os.utime(tmp_path / "results.json", (long_ago, long_ago))
    write_page([tmp_path], tmp_path / NAME)
    load(chromium, tmp_path / NAME)
    assert text(chromium, "#stopped").startswith("The run wrote nothing for 3 days: it has")
    assert not chromium.execute_script("return document.getElementById('reload').checked")
    mark(chromium)
    assert stays(chromium)
    chromium.execute_script("document.getElementById('reload').click()")  # wait once more
    reloaded(chromium)
    assert chromium.execute_script("return document.getElementById('reload').checked")
    assert chromium.execute_script("return document.getElementById('stopped').hidden")
