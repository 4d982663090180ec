"""The views of the page as pictures for a paper: PNG and SVG."""

from pathlib import Path
from typing import TYPE_CHECKING

from sparsepath.errors import BadInput
from sparsepath.lab.folders import Record
from sparsepath.report.curves import convergence
from sparsepath.report.figures import blank, curve_figure, write_png, write_svg

if TYPE_CHECKING:
    from matplotlib.figure import Figure

HATCHES = ("", "//", "xx", "..", "--", "\\\\", "||", "++")


def pictures(record: Record) -> dict[str, "Figure"]:
    """Every picture of a run by its name."""
    return {
        "curve": curve_figure(record),
        "layers": layers_figure(record),
        "convergence": convergence_figure(record),
    }


def write_pictures(record: Record, folder: Path) -> list[Path]:
    """Write every picture of a run into a folder, as PNG and as SVG; the files."""
    written = []
    for name, picture in pictures(record).items():
        for ending, write in (("png", write_png), ("svg", write_svg)):
            written.append(folder / f"{name}.{ending}")
            write(picture, written[-1])
    return written


def layers_figure(record: Record) -> "Figure":
    """The share of zero blocks of every layer along the path, as bars."""
    dense, points = record["dense"], record["points"]
    blocks = (dense or {}).get("blocks") or {}
    if not blocks or not points:
        raise BadInput(f"The run {record['name']!r} has no points yet to draw.")
    figure = blank(max(7, 0.12 * len(blocks) * len(points)), 4.2)
    axes = figure.add_subplot()
    width = 0.8 / len(blocks)
    for number, (layer, count) in enumerate(blocks.items()):
        zeros = [((p.get("sparsity") or {}).get("zero_blocks") or {}).get(layer, 0) for p in points]
        axes.bar(
            [place + (number - (len(blocks) - 1) / 2) * width for place in range(len(points))],
            [100 * zero / count for zero in zeros],
            width,
            label=layer,
            hatch=HATCHES[number % len(HATCHES)],
            edgecolor="white",
        )
    axes.set_xticks(range(len(points)), [str(point["index"] + 1) for point in points])
    axes.set_xlabel("point")
    axes.set_ylabel("zero blocks (%)")
    axes.set_ylim(0, 100)
    figure.legend(loc="outside upper center", ncols=min(4, len(blocks)))
    return figure


def convergence_figure(record: Record) -> "Figure":
    """The residuals over the iterations of the path."""
    settings = record["settings"]
    about = {name: settings[name] for name in ("network", "penalty", "data")}
    schedule = {"epsilon": settings.get("epsilon") or 0.0}
    walked = [point for point in record["points"] if point.get("residuals")]
    path = {**about, "variant": "", "points": walked, "recipe": {"schedule": schedule}}
    return convergence([path])
