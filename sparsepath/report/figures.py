"""The picture of a run: accuracy over zero blocks."""

import math
import textwrap
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sparsepath.errors import BadInput
from sparsepath.lab.folders import Record
from sparsepath.report.formats import FIGURES
from sparsepath.report.formats import figure as figure_of
from sparsepath.report.safe import for_figure
from sparsepath.report.tables import titled
from sparsepath.storage import write_atomically

if TYPE_CHECKING:
    from matplotlib.figure import Figure


REACH = 15.0
"""So many points below the best a picture ends, as the page does: a collapsed network would press
all others into one line."""
EDGE = 0.06
"""Of the height, left above and below."""


def cut_off(axes: Any, accuracies: Sequence[float]) -> str:
    """Show the upper part of these accuracies, and say how many lie below it."""
    known = [accuracy for accuracy in accuracies if math.isfinite(accuracy)]
    if not known:
        return ""
    high = max(known)
    low = max(min(known), high - REACH)
    edge = EDGE * ((high - low) or 1.0)
    axes.set_ylim(low - edge, high + edge)
    below = sum(accuracy < low - edge for accuracy in known)
    lie = "accuracy lies" if below == 1 else "accuracies lie"
    return f"; {below} {lie} below {low:.0f} % and off the figure" if below else ""


def blank(width: float, height: float) -> "Figure":
    """An empty figure of so many inches."""
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise BadInput("The figure needs matplotlib: pip install 'sparsepath[figures]'.") from error
    return Figure(figsize=(width, height), layout="constrained")


def write_png(figure: "Figure", path: Path) -> None:
    """Write a figure as PNG, whole or not at all, and with the same bytes each time."""
    _write(figure, path, format="png", dpi=150, metadata={"Software": None})


def write_svg(figure: "Figure", path: Path) -> None:
    """Write a figure as SVG, whole or not at all, and with the same bytes each time."""
    import matplotlib

    with matplotlib.rc_context({"svg.hashsalt": "sparsepath"}):
        _write(figure, path, format="svg", metadata={"Date": None})


def _write(figure: "Figure", path: Path, **how: Any) -> None:
    with warnings.catch_warnings():
        # A letter that the font lacks is drawn as a box; the tables have it.
        warnings.filterwarnings("ignore", message="Glyph .* missing from")
        write_atomically(path, lambda neighbour: figure.savefig(neighbour, **how))


def write_figure(figure: "Figure", path: Path) -> None:
    """Write a figure as what its name ends in: .png or .svg."""
    writers = {".png": write_png, ".svg": write_svg}
    if path.suffix.lower() not in writers:
        raise BadInput(f"A figure is written as .png or .svg, not as {path.name!r}.")
    writers[path.suffix.lower()](figure, path)


def curve(record: Record, path: Path) -> None:
    """Draw validation and test accuracy over zero blocks, beside the dense reference."""
    write_figure(curve_figure(record), path)


def curve_figure(record: Record) -> "Figure":
    """Validation and test accuracy over zero blocks, beside the dense reference."""
    figure = blank(7, 4.2)
    dense, points = record["dense"], record["points"]
    if dense is None or not points:
        raise BadInput(f"The run {record['name']!r} has no points yet to draw.")
    axes = figure.add_subplot()
    zeros = [_hundredfold(FIGURES["zero_blocks"], point) for point in points]
    reached = []
    for split, colour, mark in (("validation", "tab:blue", "o"), ("test", "tab:orange", "s")):
        base = _hundredfold(FIGURES[split], dense)
        axes.axhline(base, color=colour, linestyle=":", linewidth=1)
        accuracies = [_hundredfold(FIGURES[split], point) for point in points]
        reached += [base, *accuracies]
        axes.plot(zeros, accuracies, color=colour, marker=mark, markersize=4, label=split)
    axes.plot([], [], color="grey", linestyle=":", label="dense reference")
    axes.set_xlabel(f"zero blocks (%){cut_off(axes, reached)}")
    axes.set_ylabel("accuracy (%)")
    axes.set_title(textwrap.fill(for_figure(titled(record)), 70), fontsize=11)
    axes.grid(alpha=0.3)
    axes.legend(loc="lower left")
    return figure


def _hundredfold(show: Callable[[Record], object], record: Record) -> float:
    """A share in percent; where it is missing NaN, which leaves a gap."""
    share = figure_of(show, record)
    return math.nan if share is None else 100 * share
