"""The figures show the records' numbers: what is drawn is read back from the axes."""

import statistics

import numpy as np
import pytest
from walks import paper, record

from sparsepath.errors import BadInput
from sparsepath.report.curves import along_the_path, bands, convergence
from sparsepath.report.figures import write_png

pytest.importorskip("matplotlib")


def lines(panel):
    """What is drawn in a panel, by label."""
    drawn = [line for line in panel.get_lines() if not line.get_label().startswith("_")]
    return {line.get_label(): (list(line.get_xdata()), list(line.get_ydata())) for line in drawn}


def panels(figure, row):
    """The panels of one row, by the network in their titles' first line (of the first row)."""
    names = [panel.get_title().split("\n")[0] for panel in figure.axes[:4]]
    return dict(zip(names, figure.axes[4 * row : 4 * row + 4], strict=True))


def test_both_sides_of_both_penalties_are_drawn_over_mu_and_over_zeros():
    records = [record("l1", test=0.89), record("l0", last=3)]
    figure = along_the_path(paper(), records, data="cifar10")
    over_mu, over_zeros = (lines(panels(figure, row)["CNN"]) for row in (0, 1))
    assert set(over_mu) == {"l1, paper", "l1, ours", "l0, paper", "l0, ours"} == set(over_zeros)
    assert over_mu["l0, ours"] == (
        pytest.approx([k / 19 for k in range(4)]),
        pytest.approx([1.0] * 4),
    )
    assert over_zeros["l0, ours"][0] == pytest.approx([3, 6, 9, 12])
    assert over_mu["l1, ours"][1] == pytest.approx([-1.0] * 12)
    assert over_mu["l0, paper"][0] == pytest.approx([k / 19 for k in (0, 2, 4, 6, 8, 10, 11)])
    assert over_zeros["l0, paper"] == (
        pytest.approx([1, 3, 5, 7, 9, 11, 30]),
        pytest.approx([0.5] * 6 + [1.0]),
    )


def test_a_variant_that_stands_for_a_path_is_a_line_of_its_own_kind():
    variants = ("", "decayed", "early", "short", "unguarded", "unguarded-1", "unguarded-short")
    records = [record("l0", variant=variant) for variant in variants]
    for row in (0, 1):
        panel = panels(along_the_path(paper(), records, data="cifar10"), row)["CNN"]
        drawn = {line.get_label(): line.get_linestyle() for line in panel.get_lines()}
        styles = {label: drawn[label] for label in lines(panel)}
        assert styles == {
            "l1, paper": ":",
            "l0, paper": ":",
            "l0, ours": "-",
            "l0, shorter range, ours": "--",
            "l0, no guard, ours": "-.",
            "l0, no guard, shorter range, ours": ":",
        }


def test_a_network_that_was_not_walked_shows_the_paper_alone_and_says_so():
    figure = along_the_path(paper(), [record()], data="cifar10")
    panel = panels(figure, 0)["low-rank NIN"]
    assert set(lines(panel)) == {"l1, paper", "l0, paper"}
    assert panel.get_title().endswith("paper 80.00 %, ours missing")
    assert panels(figure, 0)["CNN"].get_title().endswith("paper 80.00 %, ours 90.00 %")


def test_a_collapse_is_cut_off_so_that_the_rest_can_be_seen():
    figure = along_the_path(paper(), [record(test=0.1)], data="cifar10")
    assert panels(figure, 0)["CNN"].get_ylim()[0] == -4
    assert panels(figure, 0)["NIN"].get_ylim()[0] > -4


def test_a_start_that_was_not_trained_out_is_cut_off_too():
    walked = record(test=0.99)
    walked["dense"]["test"] = 0.8
    figure = along_the_path(paper(), [walked], data="cifar10")
    assert panels(figure, 0)["CNN"].get_ylim()[1] == 4
    assert panels(figure, 0)["NIN"].get_ylim()[1] < 4


def test_residuals_follow_each_other_over_the_whole_path_with_every_mu_marked():
    walked = record(last=2)
    walked["points"][1]["residuals"] = walked["points"][1]["residuals"][:2]
    (panel,) = convergence([walked]).axes
    drawn = lines(panel)
    expected = [row["primal"] for p in walked["points"] for row in p["residuals"]]
    assert drawn[r"primal $\|W - F\|$"] == (list(range(1, 9)), expected)
    assert drawn[r"dual $\|F - F_{previous}\|$"][1] == [value / 2 for value in expected]
    marks = [line.get_xdata()[0] for line in panel.get_lines() if line.get_label() == "next mu"]
    assert marks == [0.5, 3.5, 5.5]
    assert drawn[r"$\epsilon$"][1] == [0.01, 0.01]
    assert panel.get_yscale() == "log"


def test_every_path_has_a_panel():
    figure = convergence([record("l1"), record("l0"), record("l0", variant="unguarded")])
    titles = [panel.get_title() for panel in figure.axes]
    assert titles == [f"cnn-{name} on CIFAR-10" for name in ("l1", "l0", "l0-unguarded")]
    with pytest.raises(BadInput, match="no record"):
        convergence([])


ARMS = {
    "l0": {0: [(0.5, 0.90), (0.9, 0.86)], 1: [(0.9, 0.88), (0.5, 0.92)]},
    "magnitude": {0: [(0.4, 0.90), (0.8, 0.80)], 1: [(0.6, 0.86), (0.9, 0.70)]},
}


def test_bands_are_the_mean_of_the_seeds_and_one_deviation_around_it():
    controls = {
        "dense": {0: [(0.0, 0.92), (1.0, 0.92)], 1: [(0.0, 0.94), (1.0, 0.94)]},
        "trained on": {1: [(0.5, 0.94), (0.9, 0.96)]},
    }
    axes = bands(ARMS, title="a title", controls=controls).axes[0]
    drawn = lines(axes)
    assert axes.get_title() == "a title"
    assert drawn["dense (n = 2)"][1] == pytest.approx([93, 93])
    assert drawn["trained on (n = 1)"] == (pytest.approx([50, 90]), pytest.approx([94, 96]))
    assert min(axes.get_xlim()) > 30, "as far as the arms go"
    grey = [line.get_linestyle() for line in axes.lines if line.get_color() == "grey"]
    assert len(grey) == len(set(grey)) == 2, "not by colour alone"
    assert drawn["l0 (n = 2)"] == (pytest.approx([50, 90]), pytest.approx([91, 87]))
    edge = axes.collections[0].get_paths()[0].vertices
    deviation = statistics.stdev([90, 92])
    at_50 = edge[np.isclose(edge[:, 0], 50), 1]
    assert (at_50.min(), at_50.max()) == pytest.approx((91 - deviation, 91 + deviation))


def test_seeds_at_other_sparsities_are_interpolated_and_never_beyond_their_ends():
    drawn = lines(bands(ARMS, title="").axes[0])
    # At 60 %: 85 and 86; at 80 %: 80 and 86 - 16 * 2 / 3.
    assert drawn["magnitude (n = 2)"] == (
        pytest.approx([60, 80]),
        pytest.approx([85.5, (80 + 86 - 32 / 3) / 2]),
    )


def test_one_seed_has_no_band():
    axes = bands({"l0": {0: [(0.1, 0.9), (0.2, 0.8)]}}, title="").axes[0]
    edge = axes.collections[0].get_paths()[0].vertices
    assert set(np.round(edge[np.isclose(edge[:, 0], 10), 1], 9)) == {90.0}


@pytest.mark.parametrize(
    ("seeds", "says"),
    [
        ({}, "or no seed"),
        ({0: []}, "without points"),
    ],
)
def test_arms_without_a_curve_are_named(seeds, says):
    with pytest.raises(BadInput, match=says) as caught:
        bands({"gradual": seeds}, title="")
    assert "'gradual'" in str(caught.value)


def test_seeds_without_a_sparsity_in_common_are_points_alone():
    arms = {"l0": {0: [(0.1, 0.9)], 1: [(0.2, 0.8)]}, "l1": {0: [(0.1, 0.9), (0.2, 0.8)]}}
    axes = bands(arms, title="").axes[0]
    line, *dots = [line for line in axes.lines if line.get_color() == axes.lines[0].get_color()]
    assert len(line.get_xdata()) == 0
    assert [float(dot.get_xdata()[0]) for dot in dots] == pytest.approx([10, 20])
    assert [text.get_text() for text in axes.get_legend().get_texts()] == [
        "l0 (n = 2)",
        "l1 (n = 1)",
    ]


def test_a_figure_written_twice_has_the_same_bytes(tmp_path):
    for name in ("a.png", "b.png"):
        write_png(bands(ARMS, title="a title"), tmp_path / name)
    first = (tmp_path / "a.png").read_bytes()
    assert first.startswith(b"\x89PNG")
    assert first == (tmp_path / "b.png").read_bytes()
