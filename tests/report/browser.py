"""A headless browser for the page: the system's own, or a reason to skip."""

import json
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from sparsepath.report.page import write_page

BROWSERS = ("chromium", "chromium-browser", "google-chrome")


@contextmanager
def browsing(*, width: int = 1280, height: int = 1000, dark: bool = False) -> Iterator[object]:
    """A browser of this size, with the log of its console and of its network."""
    webdriver = pytest.importorskip("selenium.webdriver", reason="selenium is not installed")
    browser = next(filter(None, map(shutil.which, BROWSERS)), None)
    driver = shutil.which("chromedriver")
    if browser is None or driver is None:
        pytest.skip("no chromium with its chromedriver is installed")
    options = webdriver.ChromeOptions()
    options.binary_location = browser
    switches = ["headless=new", "no-sandbox", "disable-gpu", "disable-dev-shm-usage"]
    switches += [f"window-size={width},{height}", "hide-scrollbars"]
    switches += ["force-dark-mode", "enable-features=WebUIDarkMode"] if dark else []
    for switch in switches:
        options.add_argument(f"--{switch}")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    service = webdriver.ChromeService(executable_path=driver)
    opened = webdriver.Chrome(options=options, service=service)
    try:
        if width < 500:  # a window is never as narrow as a phone
            phone = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": True}
            opened.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", phone)
        yield opened
    finally:
        opened.quit()


def prefer(opened: object, theme: str) -> None:
    """Tell the page which colours the user prefers."""
    features = [{"name": "prefers-color-scheme", "value": theme}]
    opened.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})


def load(opened: object, page: Path) -> None:
    """Open a page from disk, and wait until its script has filled the card."""
    from selenium.webdriver.support.wait import WebDriverWait

    opened.get("about:blank")  # or the page that is open already could be taken for the new one
    opened.get(page.resolve().as_uri())
    filled = "return document.querySelector('#card')?.childElementCount > 0"
    WebDriverWait(opened, 90).until(lambda opened: opened.execute_script(filled))


def text(page, selector):
    """What an element says."""
    return page.execute_script("return document.querySelector(arguments[0]).textContent", selector)


def shown(page, figure):
    """A figure of the card, up to what is said beside it."""
    return re.split(r" \(| of |, ", text(page, f'#card [data-figure="{figure}"]'))[0]


def press(page, selector, key):
    """A key on an element."""
    from selenium.webdriver.common.keys import Keys

    page.find_element("css selector", selector).send_keys(getattr(Keys, key))


def slide(page, selector, value):
    """A slider moved to a value."""
    script = "const e = document.querySelector(arguments[0]); e.value = arguments[1]; "
    page.execute_script(script + "e.dispatchEvent(new Event('input'))", selector, str(value))


def click_point(page, plot, trace, number):
    """What plotly tells the page when a mark is clicked."""
    page.execute_script(
        "const plot = document.getElementById(arguments[0]);"
        "const trace = plot.data.find((t) => t.name === arguments[1]);"
        "const customdata = trace.customdata[arguments[2] - 1];"
        "plot.emit('plotly_click', { points: [{ customdata }] })",
        plot,
        trace,
        number,
    )


def complaints(page):
    """What the console said that is no mere news."""
    return [entry["message"] for entry in page.get_log("browser") if entry["level"] != "INFO"]


def requests(page):
    """Every address that was asked for since the last call."""
    told = [json.loads(entry["message"])["message"] for entry in page.get_log("performance")]
    return [
        message["params"]["request"]["url"]
        for message in told
        if message["method"] == "Network.requestWillBeSent"
    ]


def choose(page, selector, value):
    """An option chosen, or a box ticked or not."""
    script = "const e = document.querySelector(arguments[0]); "
    script += "if (e.type === 'checkbox') e.checked = arguments[1]; else e.value = arguments[1]; "
    page.execute_script(script + "e.dispatchEvent(new Event('change'))", selector, value)


def made(folder, *records):
    """The page of runs with these figures: in the one's own folder, or above several."""
    folders = [folder] if len(records) == 1 else [folder / str(n) for n in range(len(records))]
    for place, whole in zip(folders, records, strict=True):
        place.mkdir(exist_ok=True)
        (place / "results.json").write_text(json.dumps(whole))
    write_page(folders, folder / "report.html")
    return folder / "report.html"


def heard(page, beginning):
    """Wait for what is said aloud to begin like this; all of it."""
    from selenium.webdriver.support.wait import WebDriverWait

    WebDriverWait(page, 20).until(lambda page: text(page, "#said").startswith(beginning))
    return text(page, "#said")
