"""The views as pictures for a paper."""

import json

import numpy as np
import pytest
import torch
from records import point, record, walked

from sparsepath.errors import BadInput
from sparsepath.report.comparison import comparison_figure
from sparsepath.report.figures import curve
from sparsepath.report.maps import BlockMap
from sparsepath.report.pictures import (
    blocks_figure,
    convergence_figure,
    layers_figure,
    pictures,
    write_pictures,
)
from sparsepath.report.view import Source
from sparsepath.storage import write_tensors

pytest.importorskip("matplotlib", reason="matplotlib is not installed")

NAMES = {"curve", "layers", "blocks", "convergence"}
LAYER = "conv1.weight"
HOSTILE = "_$x$ \x1b[31m <script> {\\frac 中 \n"


def with_weights(folder, whole, *, index):
    """The record of a run of the digit network, with the weights of one of its points."""
    weights = torch.ones(24, 1, 3, 3)
    weights[3:] = 0
    about = {"network": "digit-net", "classes": 10, "image_shape": [1, 28, 28]}
    file = folder / "points" / f"{index + 1:02d}.safetensors"
    write_tensors(file, {LAYER: weights}, {"sparsepath": json.dumps(about)})
    for row in (whole["dense"], *(each["sparsity"] for each in whole["points"])):
        row["blocks"] = {LAYER: 24}
    return Source(folder, {**whole, "chosen": index}, {})


def test_every_view_is_written_as_png_and_svg_with_the_same_bytes_each_time(tmp_path):
    source = with_weights(tmp_path, walked(3), index=1)
    files = write_pictures(pictures(source), tmp_path / "one")
    assert {path.name for path in files} == {
        f"{name}.{ending}" for name in NAMES for ending in ("png", "svg")
    }
    write_pictures(pictures(source), tmp_path / "two")
    for path in files:
        content = path.read_bytes()
        assert content.startswith(b"\x89PNG" if path.suffix == ".png" else b"<?xml")
        assert content == (tmp_path / "two" / path.name).read_bytes()


def test_the_map_is_that_of_the_chosen_point(tmp_path):
    drawn = pictures(with_weights(tmp_path, walked(3), index=1))["blocks"]
    (panel,) = drawn.axes
    cells = np.asarray(panel.images[0].get_array())
    assert cells.shape == (1, 24)  # one input; it lies rather than stands
    assert cells[0].tolist() == [1.0] * 3 + [0.0] * 21
    assert panel.get_title() == "conv1.weight\npoint 2: 21 of 24 zero"
    assert (panel.get_ylabel(), panel.get_xlabel()) == ("input j", "output i")


def test_a_map_leaves_blank_what_is_no_block_and_carries_100_000(tmp_path):
    few = BlockMap(2, 3, 5, {"1": np.array([True, False, True, True, False])})
    many = BlockMap(313, 320, 100_000, {"1": np.arange(100_000) % 7 == 0})
    drawn = blocks_figure({"few": few, HOSTILE: many, "other": few, "more": few}, kernels=True)
    cells = np.asarray(drawn.axes[0].images[0].get_array().filled(np.nan))
    assert np.array_equal(cells, [[1, 0, 1], [1, 0, np.nan]], equal_nan=True)
    assert len(drawn.axes) == 4
    assert drawn.axes[0].get_ylabel() == "row of blocks"  # the last is no whole one
    write_pictures({"blocks": drawn}, tmp_path)


def test_bars_are_as_high_as_the_share_of_zero_blocks():
    (axes,) = layers_figure(record()).axes
    heights = [[bar.get_height() for bar in bars] for bars in axes.containers]
    assert heights == [[10.0, 10.0], [pytest.approx(100 * 49 / 90), pytest.approx(100 * 89 / 90)]]


def test_the_convergence_picture_has_every_iteration_and_the_loss_where_it_was_kept():
    losses = {"point 2, iteration 1": {"5": 9.0, "6": 0.5}, "point 3, iteration 2": {"9": 0.25}}
    residuals, loss = convergence_figure(walked(3), losses).axes
    lines = {line.get_label(): list(line.get_ydata()) for line in residuals.lines}
    assert lines[r"primal $\|W - F\|$"] == 3 * [2.0, 1.5]
    assert residuals.get_title().startswith("my-run: digit-net")
    assert [mark.get_text() for mark in residuals.texts] == [
        rf"$\mu$ {point['mu']:.3g}" for point in walked(3)["points"]
    ]
    styles = {line.get_label(): line.get_linestyle() for line in residuals.lines}
    assert styles[r"primal $\|W - F\|$"] != styles[r"dual $\|F - F_{previous}\|$"]
    drawn = loss.lines[-1].get_ydata()
    assert np.array_equal(drawn, [np.nan, np.nan, 0.5, np.nan, np.nan, 0.25], equal_nan=True)
    assert list(loss.lines[-1].get_xdata()) == [1, 2, 3, 4, 5, 6]  # as the page and the CSV count
    marked = [line.get_xdata()[0] for line in loss.lines[:-1]]
    assert marked == [0.5, 2.5, 4.5]
    assert len(convergence_figure(walked(3), {}).axes) == 1


def test_missing_figures_leave_gaps(tmp_path):
    gaps = walked(3)
    gaps["points"][1] = {"index": 1}
    gaps["points"][2]["residuals"] = [{"flipped": 3}]
    found = pictures(Source(tmp_path, gaps, {}))
    assert set(found) == NAMES - {"blocks"}
    assert len(write_pictures(found, tmp_path)) == 6
    bare = {**gaps, "points": [{"index": 0}]}
    assert set(pictures(Source(tmp_path, bare, {}))) == {"curve", "layers"}


def test_what_cannot_be_drawn_is_said(tmp_path):
    with pytest.raises(BadInput, match="has no points yet"):
        pictures(Source(tmp_path, record(points=[], chosen=None), {}))
    with pytest.raises(BadInput, match=r"as \.png or \.svg, not as 'curve.pdf'"):
        curve(record(), tmp_path / "curve.pdf")
    with pytest.raises(BadInput, match="2 runs have no points yet"):
        comparison_figure([record(points=[]), record(points=[], dense=None)])


def test_names_are_no_mathematics_and_none_is_hidden(tmp_path):
    whole = walked(3, data=HOSTILE)
    for row in (whole["dense"], *(each["sparsity"] for each in whole["points"])):
        row["blocks"] = {HOSTILE: 10, "b": 90}
    found = pictures(Source(tmp_path, whole, {}))
    (legend,) = found["layers"].legends
    assert [text.get_text() for text in legend.get_texts()] == [
        " _\\$x\\$ \\x1b[31m <script> {\\frac 中 \\n",
        "b",
    ]
    other = walked(3, data=HOSTILE, penalty="l1")
    found["comparison"] = comparison_figure([whole, other, record()])
    write_pictures(found, tmp_path)
    for file in tmp_path.glob("*.svg"):
        assert "<script" not in file.read_text()


def lines_of(panel):
    return {
        line.get_label(): (list(line.get_xdata()), list(line.get_ydata()))
        for line in panel.lines
        if not line.get_label().startswith("_")
    }


def test_a_comparison_has_every_run_and_repeated_seeds_as_a_band():
    seeds = [walked(3, seed=seed) for seed in (0, 1)]
    for each in seeds[1]["points"]:
        each["test"] -= 0.02
    drawn = comparison_figure([*seeds, walked(2, penalty="l1")])
    validation, test = drawn.axes
    assert (validation.get_title(), test.get_title()) == tuple(
        f"{split} (dotted: dense)" for split in ("validation", "test")
    )
    lines = lines_of(test)
    assert set(lines) == {"l0, points 3, 2 runs", "l1, points 2"}
    x, y = lines["l1, points 2"]
    assert x == pytest.approx([50, 70])
    assert y == pytest.approx([97.5, 96.5])
    assert lines["l0, points 3, 2 runs"][1][0] == pytest.approx(96.5)
    (band,) = test.collections
    assert band.get_paths()[0].vertices[:, 1].min() == pytest.approx(100 * (0.955 - 0.02))
    (legend,) = drawn.legends
    assert {text.get_text() for text in legend.get_texts()} == set(lines)


def test_fifty_runs_and_runs_without_validation_are_compared(tmp_path):
    many = [walked(2, rho=0.1 * n) for n in range(50)]
    drawn = comparison_figure(many)
    assert len(lines_of(drawn.axes[0])) == 50
    write_pictures({"comparison": drawn}, tmp_path)
    bare = point(0, zero=0.5, validation=None, test=0.9)
    (only,) = comparison_figure([record(points=[bare]), record(points=[])]).axes
    assert only.get_title().startswith("test")


def test_blocks_are_drawn_at_both_ends_of_the_path_and_at_the_chosen_point(tmp_path):
    whole = walked(5)
    for index in (0, 1, 2, 4):
        source = with_weights(tmp_path, whole, index=index)
    drawn = pictures(Source(tmp_path, {**source.record, "chosen": 2}, {}))["blocks"]
    assert [panel.get_title().split("\n")[1][:7] for panel in drawn.axes] == [
        "point 1",
        "point 3",
        "point 5",
    ]


def test_a_collapsed_network_does_not_flatten_a_comparison():
    fallen = walked(3)
    fallen["points"][2]["test"] = 0.1
    validation, test = comparison_figure([fallen, walked(3, penalty="l1")]).axes
    low, high = test.get_ylim()
    assert 81 < low < 97.65 < high < 100
    assert test.get_xlabel().endswith("; 1 accuracy lies below 83 % and off the figure")
    assert validation.get_xlabel() == "zero blocks (%)"
