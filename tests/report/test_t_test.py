"""The t-test's table: the paper's figures beside ours, in their places."""

import pytest
from walks import paper

from sparsepath.report.t_test import t_test

ADMM = (0.914, 0.912, 0.913)
TUNED = (0.911, 0.912, 0.910)


def trial(*, dense=(0.91, 0.91, 0.91), seeds=(0, 0, 0)):
    rows = zip(ADMM, TUNED, dense, seeds, (0.345, 0.345, 0.348), strict=True)
    return {
        "pairs": [
            {"admm": a, "fine_tuning": f, "dense": d, "dense_seed": s, "of_blocks": z}
            for a, f, d, s, z in rows
        ]
    }


def column(title, **trials):
    table = t_test(paper(), {name.replace("_", " "): record for name, record in trials.items()})
    at = table.titles.index(title)
    return {row[0]: row[at] for row in table.rows}


def test_the_papers_column_holds_what_it_prints_and_what_follows():
    theirs = column("paper", ours=trial())
    assert theirs["pairs of runs"] == "15"
    assert theirs["dense: mean accuracy"] == "90.71"
    assert theirs["ADMM: mean (sd)"] == "91.34 (0.04)"
    assert theirs["fine-tuning: mean (sd)"] == "91.09 (0.06)"
    assert theirs["ADMM: zero kernels"] == "34.50 as printed"
    assert theirs["ADMM - fine-tuning"] == "+0.25"
    assert theirs["ADMM - dense"] == "+0.63"
    # Two means of 15 with deviations of 0.04 and 0.06, 0.25 apart.
    assert theirs["p (Welch)"] == "0.001 as printed, 9.2e-13 from its figures"
    assert (
        theirs["Cohen's d"] == f"{0.25 / (0.5 * (0.04**2 + 0.06**2)) ** 0.5:.2f} from its figures"
    )
    assert theirs["p (paired)"] == ""


def test_our_column_is_in_percent_and_points():
    ours = column("ours", ours=trial())
    assert ours["pairs of runs"] == "3"
    assert ours["dense networks"] == "1"
    assert ours["dense: mean accuracy"] == "91.00"
    assert ours["ADMM: mean (sd)"] == "91.30 (0.10)"
    assert ours["fine-tuning: mean (sd)"] == "91.10 (0.10)"
    assert ours["ADMM: zero kernels"] == "34.60"
    # Differences 0.3, 0.0, 0.3: mean 0.2, sd 0.1 sqrt 3, t = 2, and 4.30 the point of t.
    assert ours["ADMM - fine-tuning"] == "+0.20"
    assert ours["its 95 % interval"] == "-0.23 to +0.63"
    assert ours["p (paired)"] == f"{1 - 2 / 6**0.5:.2g}"
    # Welch's t is sqrt 6 here, with 4 degrees of freedom.
    assert ours["p (Welch)"] == "0.07"
    assert (ours["Cohen's d"], ours["paired d"]) == ("2.00", "1.15")
    assert ours["ADMM - dense"] == "+0.30"


def test_several_dense_networks_are_counted_and_each_run_is_paired_with_its_own():
    several = column(
        "five networks", five_networks=trial(dense=(0.91, 0.90, 0.92), seeds=(1, 2, 2))
    )
    assert several["dense networks"] == "2"
    # Gains 0.4, 1.2, -0.7 over their own networks, whose mean is not their median.
    assert several["ADMM - dense"] == "+0.30"
    assert float(several["p (ADMM - dense)"]) == pytest.approx(0.64, abs=0.01)


def test_each_trial_has_a_column_and_without_any_ours_is_missing():
    assert t_test(paper(), {"a": trial(), "b": trial()}).titles == ["figure", "paper", "a", "b"]
    assert set(column("ours").values()) == {"missing"}


def test_pairs_that_do_not_vary_leave_their_cells_empty():
    record = trial()
    for pair, tuned in zip(record["pairs"], (0.913, 0.911, 0.912), strict=True):
        pair["fine_tuning"] = tuned  # always 0.1 points below
    ours = column("ours", ours=record)
    assert ours["ADMM - fine-tuning"] == "+0.10"
    assert ours["its 95 % interval"] == ours["p (paired)"] == ours["paired d"] == ""
    assert ours["p (Welch)"] != "" != ours["Cohen's d"]
    for pair in record["pairs"]:
        pair["admm"] = pair["fine_tuning"] = -0.5  # no two runs differ
    still = column("ours", ours=record)
    assert still["p (Welch)"] == still["Cohen's d"] == ""
