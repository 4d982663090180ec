"""A headless browser for the page: the system's own, or a reason to skip."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

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
    WebDriverWait(opened, 30).until(lambda opened: opened.execute_script(filled))
