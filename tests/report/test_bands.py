"""Groups of runs that differ in their seed alone, and the bands between them."""

import pytest
from records import point, record, walked
from rival_walks import walk

from sparsepath.lab.comparisons import comparisons
from sparsepath.lab.experiments import t_test
from sparsepath.report.bands import band, grouped, labels
from sparsepath.report.walked import as_run


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


def test_of_several_points_with_as_many_zeros_the_last_counts():
    stuck = curve((0.2, 0.7), (0.2, 0.9), (0.4, 0.5))
    assert band([stuck, stuck], "test")["mean"] == pytest.approx([0.9, 0.5])


def walks(jobs):
    return [as_run(walk(job), job.name) for job in jobs]


@pytest.mark.parametrize(
    ("finetune", "own", "points"),
    [
        (
            5,
            {3: "magnitude, gradual-late, 3 runs", 4: "l0, divided, 3 runs"},
            [7, 7, 7, 7, 7, 7, 2],
        ),
        (40, {5: "magnitude, one-shot, 9 runs"}, [7, 7, 7, 7, 2, 3]),
    ],
)
def test_peers_are_series_of_their_own_beside_l0_and_l1(finetune, own, points):
    arms = comparisons("cnn", seeds=3, finetune=finetune)
    runs = walks([job for arm in arms.values() for job in arm])
    groups = grouped(runs)
    expected = [f"{name}, 3 runs" for name in ("l0", "l1", "magnitude, gradual", "ssl")]
    expected.append("fine-tuning, 3 runs")
    for place, label in own.items():
        expected.insert(place, label)
    assert labels(runs, groups) == expected
    for group in groups:
        assert {runs[n]["settings"]["seed"] for n in group} == {0, 1, 2}
    bands = [band([runs[n] for n in group], "test") for group in groups]
    assert [len(found["x"]) for found in bands] == points
    for found in bands:
        for mean, low, high in zip(found["mean"], found["low"], found["high"], strict=True):
            assert high - low == pytest.approx(0.002)
            assert mean == pytest.approx((high + low) / 2)


def test_a_method_without_zeros_is_a_level_after_its_last_epoch():
    runs = walks(comparisons("cnn", seeds=2)["fine-tuning"])
    found = band(runs, "test")
    assert found["x"] == [0.0, 1.0]
    assert found["mean"] == pytest.approx(2 * [0.9 - 0.06 - 0.0005])
    assert band(runs[:1], "test")["high"] == pytest.approx(2 * [0.84])


def test_the_pairs_of_a_t_test_are_grouped_by_their_dense_network():
    runs = walks(t_test(pairs=2, networks=1))
    assert labels(runs, grouped(runs)) == [
        "l0, variant 0, 2 runs",
        "fine-tuning, variant 0, 2 runs",
        "l0, variant 1",
        "fine-tuning, variant 1",
    ]


def test_walks_that_their_names_do_not_tell_apart_are_told_by_their_settings():
    runs = walks([job for net in ("cnn", "nin") for job in comparisons(net, seeds=1)["l0"]])
    assert labels(runs, grouped(runs)) == ["l0, network cnn", "l0, network nin"]
    other = walks(comparisons("cnn", seeds=1)["l0"])
    other[0]["settings"]["rho"] = 7.0
    runs = [*walks(comparisons("cnn", seeds=1)["l0"]), *other]
    usual = runs[0]["settings"]["rho"]
    assert labels(runs, grouped(runs)) == [f"l0, rho {usual:g}", "l0, rho 7"]


def test_a_number_is_said_as_people_write_it_and_a_run_of_many_settings_by_its_name():
    runs = [{**record(), "name": f"run {n}"} for n in range(2)]
    for number, run in enumerate(runs):
        run["settings"] = {**run["settings"], "rho": 0.1 + 0.2 * number}
    assert labels(runs, grouped(runs)) == ["l0, rho 0.1", "l0, rho 0.3"]
    for number, run in enumerate(runs):
        run["settings"] |= {"xi": number, "epsilon": 0.1 * number}
    assert labels(runs, grouped(runs)) == ["l0, run 0", "l0, run 1"]
