"""What the paper's epochs say of its iterations, and where ours would have stopped."""

import pytest
from walks import paper, record

from sparsepath.errors import BadInput
from sparsepath.report.iterations import fit, implied, iterations, stopped, unstopped


def walked(*histories, **about):
    """A path whose points have these residuals, the dual half the primal, at k = 0, 1, ..."""
    found = record(**about)
    found["points"] = found["points"][: len(histories)]
    for point, history in zip(found["points"], histories, strict=True):
        point["residuals"] = [{"primal": each, "dual": each / 2} for each in history]
        point["epochs"] = (point["index"] + 1) * (len(history) + 1)
    return found


def printed(*iterations_at):
    """A paper whose paths take so many iterations at k = 0, 2, 4, ..."""
    made = paper()
    for rows in made["tables"]["cifar10"]["cnn"].values():
        for row in rows if isinstance(rows[0], dict) else ():
            k = round(row["mu0"] * 19)
            if not row["baseline"] and k // 2 < len(iterations_at):
                row["epochs"] = (k + 2) * (iterations_at[k // 2] + 1)
    return made


def test_the_papers_epochs_are_iterations_and_a_fine_tune_of_as_many_epochs():
    assert implied(0, 4) == 1
    assert implied(6, 56) == 6
    assert implied(12, 140) == 9


@pytest.mark.parametrize(("k", "epochs"), [(2, 15), (2, 0), (6, 8)])
def test_epochs_that_are_none_are_refused(k, epochs):
    with pytest.raises(BadInput, match=f"{epochs} epochs at k = {k} are no whole number"):
        implied(k, epochs)


def test_a_point_stops_when_both_residuals_are_small():
    history = [{"primal": 3, "dual": 1}, {"primal": 1, "dual": 3}, {"primal": 1, "dual": 2}]
    assert [stopped(history, epsilon) for epsilon in (3, 2.9, 2, 1.9)] == [1, 3, 3, 3]


def test_the_epsilon_is_found_at_which_ours_stops_as_the_papers():
    ours = walked([4, 2, 1], [9, 9, 9], [8, 4, 2])
    found = fit(printed(2, 3), ours)
    assert (found.epsilon, found.paper, found.ours) == (2, (2, 3), (2, 3))
    # Two iterations and a fine-tune of one epoch, three of two, and three of three.
    assert (found.epochs, found.walked) == (3 + 2 * 4 + 3 * 4, 4 + 8 + 12)


def test_points_that_the_paper_does_not_report_count_for_epochs_alone():
    one, other = (walked([4, 2, 1], between, [8, 4, 2]) for between in ([2, 2, 2], [9, 9, 9]))
    assert fit(printed(2, 3), one).epsilon == fit(printed(2, 3), other).epsilon == 2
    assert fit(printed(2, 3), one).epochs == fit(printed(2, 3), other).epochs - 2 * 2


def test_where_nothing_comes_closer_than_to_go_on_there_is_no_epsilon():
    # Any epsilon that stops the second point, which the paper does not report, would be as close.
    found = fit(printed(3, 3), walked([4, 4, 4], [9, 8, 1], [5, 5, 5]))
    assert (found.epsilon, found.ours, found.epochs) == (None, (3, 3), found.walked)
    rows = iterations(printed(3, 3), [walked([4, 4, 4], [9, 8, 1], [5, 5, 5])]).rows
    assert rows[0][-2:] == ["", "24 of 24"]


def test_the_dual_residual_alone_may_keep_a_point_going():
    ours = walked([4, 2, 1])
    for each, dual in zip(ours["points"][0]["residuals"], (5, 3, 3), strict=True):
        each["dual"] = dual
    assert fit(printed(2), ours).epsilon == 3


def test_paths_that_may_stop_and_variants_that_stand_for_none_are_left_out():
    settled = walked([4, 2, 1], penalty="l1")
    settled["recipe"] = {"schedule": {"epsilon": 0.3}}
    kept = walked([4, 2, 1])
    others = [walked([4, 2, 1], variant=variant) for variant in ("decayed", "early")]
    assert list(unstopped([settled, kept, *others])) == [kept]


def test_the_table_has_a_row_a_path():
    rows = iterations(printed(2, 3), [walked([4, 2, 1], [9, 9, 9], [8, 4, 2])]).rows
    assert rows == [["CIFAR-10", "CNN", "l0", "2-3", "2-3", "2.00", "23 of 24"]]


def test_the_table_says_in_short_what_its_rows_do():
    one, other = walked([4, 2, 1], [9, 9, 9], [8, 4, 2]), walked([6, 3, 1], [9, 9, 9], [8, 4, 3])
    other["penalty"] = "l1"
    # Of a path that was walked twice the variant has a row, and no part in the medians.
    again = {**one, "variant": "unguarded"}
    table = iterations(printed(2, 3), [one, other, again])
    note = table.note
    assert len(table.rows) == 3
    # 4 and 12 epochs of ours to 2 * 3 and 4 * 4 of the paper's.
    assert note.endswith(
        " Medians (and ends) of the paths as printed: epsilon 2.5 (2.0 to 3.0), of 2; 4 (4 to 4) % "
        "fewer epochs with each path's own; at the points that the paper reports ours took -27 "
        "(-27 to -27) % more epochs than its."
    )
    assert "Medians" not in iterations(printed(2, 3), []).note
