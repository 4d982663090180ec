"""Takes the pictures in docs/report: python tests/report/screenshots.py RUN_PAGE COMPARISON_PAGE"""

import base64
import sys
import time
from pathlib import Path

from browser import browsing, load, prefer

SHOTS = {
    # name: (which page, theme, width, height, the view)
    "path": (0, "light", 1200, 1010, "body"),
    "path-dark": (0, "dark", 1200, 1010, "body"),
    "layers": (0, "light", 1200, 900, "#layers"),
    "convergence": (0, "dark", 1200, 900, "#convergence"),
    "comparison": (1, "light", 1200, 900, "#compare"),
    "phone": (0, "light", 390, 844, "body"),
    "phone-dark": (0, "dark", 390, 844, "body"),
}
SCALE = 0.8
BOX = "const r = document.querySelector(arguments[0]).getBoundingClientRect(); "
BOX += "return [r.x, r.y + scrollY, r.width, r.height]"


def take(pages: list[Path], folder: Path) -> None:
    """One picture of each view; the first screen of a whole page."""
    for name, (number, theme, width, height, view) in SHOTS.items():
        with browsing(width=width, height=height) as opened:
            prefer(opened, theme)
            load(opened, pages[number])
            time.sleep(1)  # plotly fits its figures to the page
            x, y, wide, high = opened.execute_script(BOX, view)
            if view == "body":
                x, y, wide, high = 0, 0, width, 2 * height if width < 500 else height
            else:  # with the page's own margin around it
                x, wide = 0, width
            clip = {"x": x, "y": y, "width": wide, "height": high, "scale": SCALE}
            shot = {"format": "png", "captureBeyondViewport": True, "clip": clip}
            taken = opened.execute_cdp_cmd("Page.captureScreenshot", shot)
            (folder / f"{name}.png").write_bytes(base64.b64decode(taken["data"]))


if __name__ == "__main__":
    place = Path(__file__).parents[2] / "docs" / "report"
    place.mkdir(exist_ok=True)
    take([Path(argument) for argument in sys.argv[1:]], place)
