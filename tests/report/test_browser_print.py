"""The page on paper: every table open, every card with its run, and no half-empty first sheet."""

import base64
import re
import shutil
import subprocess

import pytest
from browser import load, made, prefer, text
from records import walked

pytest.importorskip("plotly", reason="plotly is not installed")
pytest.importorskip("selenium", reason="selenium is not installed")


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    """Two runs, of which one table is closed on the screen."""
    place = tmp_path_factory.mktemp("print")
    first, second = walked(6), walked(6, seed=17)
    return made(place, first, {**second, "name": "the-second"})


def opened(page):
    return page.execute_script(
        "return [...document.querySelectorAll('details')].map((e) => e.open)"
    )


def test_everything_is_open_on_paper_and_as_before_afterwards(chromium, pages):
    prefer(chromium, "dark")
    load(chromium, pages)
    before = opened(chromium)
    assert before == [True, False, False, False]
    chromium.execute_script("dispatchEvent(new Event('beforeprint'))")
    assert all(opened(chromium))
    theme = "return document.documentElement.dataset.theme"
    assert chromium.execute_script(theme) == "light"
    chromium.execute_script("dispatchEvent(new Event('afterprint'))")
    assert opened(chromium) == before
    assert chromium.execute_script(theme) == "dark"
    assert text(chromium, "#card .run") == "my-run"


@pytest.fixture(scope="module")
def sheets(chromium, pages, tmp_path_factory):
    """The text of every printed sheet."""
    if shutil.which("pdftotext") is None:
        pytest.skip("no pdftotext is installed")
    prefer(chromium, "light")
    load(chromium, pages)
    paper = {"paperWidth": 8.27, "paperHeight": 11.69, "preferCSSPageSize": True}
    printed = chromium.execute_cdp_cmd("Page.printToPDF", paper)
    file = tmp_path_factory.mktemp("sheets") / "page.pdf"
    file.write_bytes(base64.b64decode(printed["data"]))
    command = ["pdftotext", "-layout", str(file), "-"]
    found = subprocess.run(command, capture_output=True, check=True, text=True).stdout
    return found.split("\f")[:-1]


def test_the_first_sheet_holds_the_curve_and_the_whole_card(sheets):
    first = sheets[0]
    assert "Accuracy along the path" in first
    card = first[first.index("Point 1 of 6") :]
    assert card.splitlines()[1].strip() == "my-run"
    for part in ("Zero blocks by layer", "Deploy", "Walk on from it"):
        assert part in card


def test_no_heading_stands_alone_at_the_foot_of_a_sheet(sheets):
    headings = ("Convergence", "Which blocks live", "Comparison", "Table", "Settings")
    for sheet in sheets:
        lines = [line.strip() for line in sheet.splitlines() if line.strip()]
        assert lines[-1] not in headings
        assert not lines[-1].startswith("Every vertical line")


def test_closed_tables_and_settings_are_printed(sheets):
    whole = "\n".join(sheets)
    assert len(re.findall(r"tolerance +0\.01", whole)) == 2  # the settings of both runs
    rows = [line.split()[0] for line in whole.splitlines() if line.split()[1:2] == ["0.00741"]]
    assert rows == ["6", "6"]  # mu of the last point, in the tables of both runs


def test_what_only_a_screen_can_use_is_not_printed(sheets):
    whole = "\n".join(sheets)
    for control in ("Copy", "Show all", "Least accuracy I accept", "Skip to the path"):
        assert control not in whole
