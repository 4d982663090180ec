"""The views as pictures for a paper."""

import pytest
from records import record, walked

from sparsepath.errors import BadInput
from sparsepath.report.figures import curve
from sparsepath.report.pictures import layers_figure, pictures, write_pictures

pytest.importorskip("matplotlib", reason="matplotlib is not installed")


def test_every_view_is_written_as_png_and_svg_with_the_same_bytes_each_time(tmp_path):
    files = write_pictures(walked(3), tmp_path / "one")
    assert {path.name for path in files} == {
        f"{name}.{ending}"
        for name in ("curve", "layers", "convergence")
        for ending in ("png", "svg")
    }
    write_pictures(walked(3), tmp_path / "two")
    for path in files:
        content = path.read_bytes()
        assert content.startswith(b"\x89PNG" if path.suffix == ".png" else b"<?xml")
        assert content == (tmp_path / "two" / path.name).read_bytes()


def test_bars_are_as_high_as_the_share_of_zero_blocks():
    (axes,) = layers_figure(record()).axes
    heights = [[bar.get_height() for bar in bars] for bars in axes.containers]
    assert heights == [[10.0, 10.0], [pytest.approx(100 * 49 / 90), pytest.approx(100 * 89 / 90)]]


def test_the_convergence_picture_has_every_iteration():
    (axes,) = pictures(walked(3))["convergence"].axes
    lines = {line.get_label(): list(line.get_ydata()) for line in axes.lines}
    assert lines[r"$\|W - F\|$"] == 3 * [2.0, 1.5]


def test_missing_figures_leave_gaps(tmp_path):
    gaps = walked(3)
    gaps["points"][1] = {"index": 1}
    assert len(write_pictures(gaps, tmp_path)) == 6


def test_what_cannot_be_drawn_is_said(tmp_path):
    with pytest.raises(BadInput, match="has no points yet"):
        write_pictures(record(points=[]), tmp_path)
    with pytest.raises(BadInput, match=r"as \.png or \.svg, not as 'curve.pdf'"):
        curve(record(), tmp_path / "curve.pdf")
