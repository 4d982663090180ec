"""Takes the pictures in docs/report: python tests/report/screenshots.py RUN_PAGE COMPARISON_PAGE"""

import base64
import subprocess
import sys
import time
from pathlib import Path

from browser import browsing, load, prefer

SHOTS = {
    # name: (which page, theme, width, from the top of this, to the end of that)
    "path": (0, "light", 1200, "body", "#path"),
    "path-dark": (0, "dark", 1200, "body", "#path"),
    "layers": (0, "light", 1200, "#layers", "#layers"),
    "convergence": (0, "dark", 1200, "#convergence", "#convergence"),
    "comparison": (1, "light", 1200, "#compare", "#compare"),
    "table": (0, "light", 1200, "#tables", "#tables"),
    "phone": (0, "light", 390, "body", "#card"),
    "phone-dark": (0, "dark", 390, "#layers", "#convergence"),
}
SCALE = 0.8
TOP = "return document.querySelector(arguments[0]).getBoundingClientRect().top + scrollY"
END = "return document.querySelector(arguments[0]).getBoundingClientRect().bottom + scrollY"
SHEET = {"paperWidth": 8.27, "paperHeight": 11.69, "preferCSSPageSize": True}
DOTS = 72
"""per inch of the printed sheet"""


def take(pages: list[Path], folder: Path) -> None:
    """One picture of each view, and one of the first printed sheet."""
    for name, (number, theme, width, first, last) in SHOTS.items():
        with browsing(width=width, height=900) as opened:
            prefer(opened, theme)
            load(opened, pages[number])
            time.sleep(1)  # plotly fits its figures to the page
            top, end = opened.execute_script(TOP, first), opened.execute_script(END, last)
            clip = {"x": 0, "y": top, "width": width, "height": end - top + 16, "scale": SCALE}
            shot = {"format": "png", "captureBeyondViewport": True, "clip": clip}
            taken = opened.execute_cdp_cmd("Page.captureScreenshot", shot)
            (folder / f"{name}.png").write_bytes(base64.b64decode(taken["data"]))
    with browsing() as opened:
        prefer(opened, "light")
        load(opened, pages[0])
        printed = base64.b64decode(opened.execute_cdp_cmd("Page.printToPDF", SHEET)["data"])
    command = ["pdftoppm", "-png", "-r", str(DOTS), "-singlefile", "-", str(folder / "print")]
    subprocess.run(command, input=printed, check=True)


if __name__ == "__main__":
    place = Path(__file__).parents[2] / "docs" / "report"
    place.mkdir(exist_ok=True)
    take([Path(argument) for argument in sys.argv[1:]], place)
