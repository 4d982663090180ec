"""Methods side by side at equal sparsity: means, deviations, differences and their errors."""

import pytest

from sparsepath.errors import BadInput
from sparsepath.report.arms import accuracies_at, arms_table

ARMS = {
    "l0": {
        0: [(0.5, 0.92), (0.9, 0.88)],
        1: [(0.5, 0.92), (0.9, 0.90)],
        2: [(0.9, 0.92), (0.5, 0.92)],
    },
    "magnitude": {0: [(0.4, 0.90), (0.8, 0.82)], 1: [(0.4, 0.92), (0.8, 0.84)]},
    "one run": {7: [(0.7, 0.9)]},
}


LEVELS = (0.5, 0.7, 0.8, 0.9)


def row(name, *, levels=LEVELS, **options):
    table = arms_table(ARMS, title="t", against="l0", levels=levels, **options)
    return next(list(cells[1:]) for cells in table.rows if cells[0] == name)


def test_every_arm_has_its_mean_and_deviation_at_every_level_it_reaches():
    assert row("l0") == ["3", "92.00 (0.00)", "91.00 (1.00)", "90.50 (1.50)", "90.00 (2.00)"]
    # Two points apart everywhere: sd is sqrt 2.
    assert row("magnitude") == ["2", "89.00 (1.41)", "85.00 (1.41)", "83.00 (1.41)", ""]
    assert row("one run") == ["1", "", "90.00", "", ""]


def test_the_other_arms_alone_are_compared_with_the_one():
    names = [cells[0] for cells in arms_table(ARMS, title="t", against="l0").rows]
    assert names == [
        *("l0", "magnitude", "one run", "l0 - magnitude", "its 95 % interval, p"),
        "l0 - one run",
    ]


def test_differences_are_taken_by_pairs_of_the_same_seed():
    # At 70 %: 90 and 91 % in the seeds that both have, and 84 and 86 %: 6 and 5 points.
    assert row("l0 - magnitude")[2] == "+5.50 ± 0.50"
    assert row("l0 - magnitude")[4:] == [""]
    assert row("l0 - one run")[2] == "", "they share no seed"


def test_the_interval_and_p_are_those_of_a_t_test_of_the_pairs():
    # At 70 %: 6 and 5 points, so t = 5.5 / 0.5 with one degree of freedom, whose t distribution is
    # Cauchy's: p = 1 - 2/pi arctan 11, and 95 % lie within tan(0.475 pi) = 12.71 errors.
    assert row("its 95 % interval, p")[2] == "-0.85 to +11.85, 0.058"
    assert row("its 95 % interval, p")[4:] == [""]


def test_the_arm_is_compared_with_its_dense_networks_by_pairs_too():
    # At 90 %: 88, 90 and 92 %; the third seed has no dense network, and the fourth no path.
    dense = {seed: [(0.0, x), (1.0, x)] for seed, x in ((0, 0.90), (1, 0.93), (3, 0.5))}
    controls = {"dense": dense, "trained on": {0: [(0.8, 0.90), (1.0, 0.92)]}}
    how = {"title": "t", "against": "l0", "levels": (0.9,), "controls": controls}
    assert row("l0 - dense", levels=(0.9,), controls=controls) == ["", "-2.50 ± 0.50"]
    alone = arms_table({"l0": ARMS["l0"]}, **how)
    names = ["l0", "l0 - dense", "its 95 % interval, p", "l0 - trained on"]
    assert [cells[0] for cells in alone.rows] == names
    assert alone.rows[-1][-1] == "-3.00", "one seed has no error"
    assert "not corrected for the columns" in alone.note


def test_differences_that_do_not_vary_have_no_interval():
    same = {seed: [(0.5, 0.9)] for seed in range(3)}
    table = arms_table({"l0": same, "l1": same}, title="t", against="l0", levels=[0.5])
    assert list(table.rows[-1]) == ["its 95 % interval, p", "", ""]


def test_of_several_points_with_as_many_zeros_the_last_walked_counts():
    stuck = {0: [(0.0, 0.95), (1.0, 0.31), (1.0, 0.10)]}
    assert accuracies_at(stuck, 1.0) == [0.10]
    assert accuracies_at({0: [(1.0, 0.10), (1.0, 0.31), (0.0, 0.95)]}, 1.0) == [0.31]


def test_levels_are_those_that_are_asked_for():
    table = arms_table(ARMS, title="t", against="l0", levels=(0.6,))
    assert list(table.titles) == ["arm", "seeds", "60% zero"]
    assert row("magnitude", levels=(0.6,)) == ["2", "87.00 (1.41)"]


def test_the_usual_levels_are_all_that_counting_methods_stop_at():
    long = {"l0": {0: [(0.4, 0.9), (1.0, 0.8)]}}
    shares = [
        title.removesuffix("% zero")
        for title in arms_table(long, title="t", against="l0").titles[2:]
    ]
    assert shares == ["50", "60", "70", "80", "85", "90", "95", "100"]


def test_the_last_level_is_where_the_first_path_of_the_arm_ends():
    short = {"l0": {0: [(0.5, 0.9), (0.943, 0.8)], 1: [(0.5, 0.9), (0.97, 0.8)]}}
    titles = arms_table(short, title="t", against="l0").titles
    assert list(titles[-2:]) == ["90% zero", "94.3% zero"]
    ended = {"l0": {0: [(0.5, 0.9), (0.9495, 0.8)]}}  # a block short of 95 %
    assert list(arms_table(ended, title="t", against="l0").titles[-2:]) == ["90% zero", "95% zero"]


def test_a_path_that_ends_a_block_short_of_a_level_counts_as_there():
    assert accuracies_at({0: [(0.5, 0.9), (0.8995, 0.8)]}, 0.9) == [0.8]
    assert accuracies_at({0: [(0.5, 0.9), (0.89, 0.8)]}, 0.9) is None


def test_an_arm_that_is_not_there_is_named():
    with pytest.raises(BadInput, match="no arm 'l2' among 'l0', 'magnitude', 'one run'"):
        arms_table(ARMS, title="t", against="l2")


@pytest.mark.parametrize("seeds", [{}, {0: []}])
def test_an_arm_without_points_is_named(seeds):
    with pytest.raises(BadInput, match="'gradual' has a seed without points, or no seed"):
        arms_table({**ARMS, "gradual": seeds}, title="t", against="l0")
