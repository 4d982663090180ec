"""Groups of runs that differ in their seed alone, and the bands between them."""

import pytest
from records import point, record, walked

from sparsepath.report.bands import band, grouped, labels


def curve(*pairs):
    points = [point(n, zero=x, validation=y, test=y) for n, (x, y) in enumerate(pairs)]
    return record(points=points)


def test_runs_that_differ_in_their_seed_alone_are_one_group():
    runs = [walked(3, seed=0), walked(3, penalty="l1"), walked(3, seed=1, threads=2)]
    assert grouped(runs) == [[0, 2], [1]]


def test_groups_are_called_by_what_differs():
    runs = [walked(3, rho=0.1), walked(3, rho=0.2), walked(3, rho=0.1, seed=4)]
    assert labels(runs, grouped(runs)) == ["l0, rho 0.1, 2 runs", "l0, rho 0.2"]
    runs = [walked(3, guard=None), walked(3, guard=0.5)]
    assert labels(runs, grouped(runs)) == ["l0, guard unset", "l0, guard 0.5"]


def test_a_band_has_mean_and_extremes_where_all_runs_have_points():
    found = band([curve((0.2, 1.0), (0.6, 0.6)), curve((0.4, 0.4), (0.8, 0.2))], "test")
    assert found["x"] == [0.4, 0.6]
    assert found["mean"] == pytest.approx([(0.8 + 0.4) / 2, (0.6 + 0.3) / 2])
    assert found["low"] == pytest.approx([0.4, 0.3])
    assert found["high"] == pytest.approx([0.8, 0.6])


@pytest.mark.parametrize(
    "runs",
    [
        [curve((0.2, 1.0))],
        [curve((0.2, 1.0)), curve()],
        [curve((0.1, 1.0), (0.2, 1.0)), curve((0.3, 1.0), (0.4, 1.0))],
    ],
    ids=["one run", "one run with points", "nothing in common"],
)
def test_there_is_no_band_without_two_runs_that_share_some_sparsity(runs):
    assert band(runs, "test") is None


def test_points_without_their_figures_are_passed_over():
    torn = curve((0.2, 1.0), (0.4, 0.5), (0.6, 0.8))
    torn["points"][1]["test"] = None
    found = band([torn, curve((0.2, 1.0), (0.6, 0.8))], "test")
    assert found["mean"] == pytest.approx([1.0, 0.8])
