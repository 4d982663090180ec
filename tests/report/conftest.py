"""One browser and one small finished run for all tests of the page."""

import json

import pytest
from browser import browsing, complaints, load, prefer
from tiny import tiny_data, tiny_settings

from sparsepath.lab.runs import execute
from sparsepath.report.losses import LossLog
from sparsepath.report.page import write_page


@pytest.fixture(scope="session")
def folder(tmp_path_factory):
    """A finished run of four points, with its page and its losses."""
    place = tmp_path_factory.mktemp("browser")
    settings = tiny_settings(tiny_data(place), points=4, first_share=0.2, last_share=0.9)
    execute(settings, place / "run", watch=LossLog())
    write_page([place / "run"], place / "run" / "report.html")
    return place / "run"


@pytest.fixture(scope="session")
def results(folder):
    return json.loads((folder / "results.json").read_text())


@pytest.fixture(scope="session")
def chromium():
    with browsing() as opened:
        yield opened


@pytest.fixture
def page(chromium, folder):
    """The run's page, freshly opened and with nothing remembered."""
    prefer(chromium, "light")
    load(chromium, folder / "report.html")
    yield chromium
    chromium.execute_script("sessionStorage.clear(); localStorage.clear()")


@pytest.fixture
def browser(chromium):
    """A browser for pages of the test's own, which must not complain about any of them."""
    complaints(chromium)
    yield chromium
    assert complaints(chromium) == []
    chromium.execute_script("sessionStorage.clear(); localStorage.clear()")
