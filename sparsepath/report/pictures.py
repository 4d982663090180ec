"""The views of the page as pictures for a paper: PNG and SVG."""

import math
import textwrap
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from sparsepath.errors import BadInput
from sparsepath.lab.folders import Record
from sparsepath.report.curves import ABOVE, draw_residuals, mark_mus
from sparsepath.report.figures import blank, curve_figure, write_png, write_svg
from sparsepath.report.losses import Losses, loss_after
from sparsepath.report.maps import BlockMap, block_maps
from sparsepath.report.safe import for_figure
from sparsepath.report.tables import chosen_point, point_number, titled
from sparsepath.report.view import Source

if TYPE_CHECKING:
    from matplotlib.figure import Figure

HATCHES = ("", "//", "xx", "..", "--", "\\\\", "||", "++")
FLAT = 6.0
"""A map this many times as wide as high is stretched."""


def pictures(source: Source) -> dict[str, "Figure"]:
    """Every picture of a run by its name, as far as it has what is drawn there."""
    record = source.record
    found = {"curve": curve_figure(record), "layers": layers_figure(record)}
    alive = block_maps(source.folder, {**record, "points": shown_points(record)})
    if maps := {layer: each for layer, each in alive.items() if each.points}:
        kernels = record["settings"]["blocks"] == "kernels"
        found["blocks"] = blocks_figure(maps, kernels=kernels)
    if any(point.get("residuals") for point in record["points"]):
        found["convergence"] = convergence_figure(record, source.losses)
    return found


def shown_points(record: Record) -> list[Record]:
    """The points whose blocks are drawn: the chosen one, and both ends of the path."""
    points, chosen = record["points"], chosen_point(record)
    wanted = [points[0], *([] if chosen is None else [chosen]), points[-1]]
    return [point for point in points if any(point is each for each in wanted)]


def write_pictures(found: Mapping[str, "Figure"], folder: Path) -> list[Path]:
    """Write pictures into a folder, each as PNG and as SVG; the files."""
    written = []
    for name, picture in found.items():
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
        zeros = [((p.get("sparsity") or {}).get("zero_blocks") or {}).get(layer) for p in points]
        axes.bar(
            [place + (number - (len(blocks) - 1) / 2) * width for place in range(len(points))],
            [math.nan if zero is None else 100 * zero / count for zero in zeros],
            width,
            label=for_figure(layer),
            hatch=HATCHES[number % len(HATCHES)],
            edgecolor="white",
        )
    axes.set_xticks(range(len(points)), [point_number(point) for point in points])
    axes.set_xlabel("point")
    axes.set_ylabel("zero blocks (%)")
    axes.set_ylim(0, 100)
    figure.legend(loc="outside upper center", ncols=min(4, len(blocks)))
    return figure


def blocks_figure(maps: Mapping[str, BlockMap], *, kernels: bool) -> "Figure":
    """Which blocks of every layer live at the points of the maps: they are dark."""
    numbers = sorted({number for each in maps.values() for number in each.points}, key=int)
    drawn = [
        (layer, each, number)
        for layer, each in maps.items()
        for number in numbers
        if number in each.points
    ]
    columns = len(numbers) if len(numbers) > 1 else min(3, len(maps))
    rows = -(-len(drawn) // columns)
    figure = blank(3.4 * columns, 3.2 * rows + 0.4)
    panels = list(figure.subplots(rows, columns, squeeze=False).flat)
    for panel, (layer, each, number) in zip(panels, drawn, strict=False):
        _draw_map(panel, each, number, kernels=kernels)
        zero = f"point {number}: {each.count - int(each.points[number].sum()):,} of "
        panel.set_title(f"{for_figure(layer)}\n{zero}{each.count:,} zero", fontsize=9)
    for panel in panels[len(drawn) :]:
        panel.remove()
    figure.suptitle("Blocks that live (dark)", fontsize=11)
    return figure


def _draw_map(panel: Any, each: BlockMap, number: str, *, kernels: bool) -> None:
    """The map in rows and columns, lying rather than standing; what is no block is left blank."""
    whole = each.count == each.rows * each.columns
    sides = ("output i", "input j") if kernels and whole else ("row of blocks", "column of blocks")
    down, right = reversed(sides) if each.rows > each.columns else sides
    cells = np.full(each.rows * each.columns, np.nan)
    cells[: each.count] = each.points[number]
    grid = cells.reshape(each.rows, each.columns)
    grid = grid.T if each.rows > each.columns else grid
    aspect = "auto" if grid.shape[1] > FLAT * grid.shape[0] else "equal"
    panel.imshow(grid, cmap="Greys", vmin=-0.1, vmax=1.2, interpolation="nearest", aspect=aspect)
    if aspect == "auto":
        panel.set_box_aspect(0.25)
    panel.locator_params(integer=True, nbins=6, min_n_ticks=1)
    panel.tick_params(labelsize=7)
    panel.set_xlabel(right, fontsize=8)
    panel.set_ylabel(down, fontsize=8)


def convergence_figure(record: Record, losses: Losses) -> "Figure":
    """The residuals over the iterations of the path and, where it was kept, the loss."""
    settings = record["settings"]
    walked = [point for point in record["points"] if point.get("residuals")]
    loss = [
        loss_after(losses, index=point["index"], iteration=number)
        for point in walked
        for number in range(len(point["residuals"]))
    ]
    known = any(value is not None for value in loss)
    figure = blank(7, 5.2 if known else 3.2)
    panels = list(figure.subplots(2 if known else 1, 1, sharex=True, squeeze=False).flat)
    about = {name: settings[name] for name in ("network", "penalty", "data")}
    schedule = {"epsilon": settings.get("epsilon") or 0.0}
    path = {**about, "variant": "", "points": walked, "recipe": {"schedule": schedule}}
    draw_residuals(panels[0], path)
    title = textwrap.fill(for_figure(titled(record)), 70)
    panels[0].set_title(title, fontsize=10, pad=ABOVE)
    if known:
        panels[0].set_xlabel("")
        mark_mus(panels[1], walked, named=False)
        _draw_losses(panels[1], loss)
    handles, labels = panels[0].get_legend_handles_labels()
    shown = dict(zip(labels, handles, strict=True))
    figure.legend(shown.values(), shown.keys(), loc="outside lower center", ncols=4)
    return figure


def _draw_losses(panel: Any, loss: list[float | None]) -> None:
    values = [np.nan if value is None else value for value in loss]
    panel.plot(range(1, len(values) + 1), values, color="black", marker=".", markersize=3, lw=1)
    panel.set_yscale("log", nonpositive="mask")
    panel.set_ylabel("loss after the iteration")
    panel.set_xlabel("iteration of the path")
    panel.grid(alpha=0.3, axis="y")
