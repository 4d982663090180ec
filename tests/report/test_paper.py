"""The paper's tables: its figures beside ours, each in its place, and nothing where nothing is."""

import pytest
from walks import paper, record

from sparsepath.errors import BadInput
from sparsepath.report.paper import appendix, combined, outcome, summary


def cells(table):
    """The rows by what their first cells say."""
    return [list(row) for row in table.rows]


def appendix_rows(*records):
    return cells(appendix(paper(), records, data="cifar10", network="cnn"))


def test_every_reported_point_has_both_sides_in_the_papers_order():
    rows = appendix_rows(record("l1"), record("l0"))
    points = ["dense", *(f"k = {k}" for k in (0, 2, 4, 6, 8, 10, 11))]
    assert [row[:2] for row in rows] == [[p, k] for p in ("l1", "l0") for k in points]
    theirs = ["81.00 (+1.00)", "30.00", "2-28", "45.00", "48", "2.10"]
    ours = ["91.00 (+1.00)", "36.00", "12.34", "5.67", "0-36", "132", "1.50"]
    assert rows[-1] == ["l0", "k = 11", *theirs, *ours]


def test_dense_networks_have_no_change_and_no_zeros():
    dense = appendix_rows(record())[8]
    assert dense[:4] == ["l0", "dense", "80.00", "0.00"]
    assert dense[8:] == ["90.00", "0.00", "0.00", "0.00", "0-0", "0", "1.00"]


def test_ours_is_taken_at_the_very_k_of_the_paper():
    walked = record()
    walked["points"][4]["test"] = 0.8765
    rows = appendix_rows(walked)
    assert [row[1] for row in rows if row[8] == "87.65 (-2.35)"] == ["k = 4"]


def test_what_was_not_walked_is_missing():
    rows = appendix_rows(record("l0", last=5))
    assert [row[8] for row in rows[:8]] == ["missing"] * 8
    assert [row[8] for row in rows[8:]] == ["90.00", *["91.00 (+1.00)"] * 3, *["missing"] * 4]
    assert set(rows[-1][9:]) == {""}


def test_variants_follow_their_path():
    rows = appendix_rows(record(), record(variant="unguarded", test=0.5))
    assert [row[0] for row in rows[::8]] == ["l1", "l0", "l0, no guard"]
    assert rows[-1][8] == "50.00 (-40.00)"


def test_a_change_that_rounds_to_nothing_has_no_minus():
    assert appendix_rows(record(test=0.9 - 1e-7))[-1][8] == "90.00 (+0.00)"


def test_records_of_other_data_and_networks_are_left_out():
    others = [record(data="svhn"), record(network="nin")]
    assert {row[8] for row in appendix_rows(*others)} == {"missing"}


def test_two_records_of_one_path_are_refused():
    with pytest.raises(BadInput, match="two records of one l0 path of cnn on cifar10"):
        appendix_rows(record(), record())


def test_a_record_of_another_network_is_refused():
    other = record()
    other["points"][0]["sparsity"]["blocks"]["conv1.weight"] = 11
    with pytest.raises(BadInput, match="another network"):
        appendix_rows(other)


def test_a_path_of_other_positions_is_refused():
    other = record()
    other["points"][1]["position"] = 1 / 24
    with pytest.raises(BadInput, match=r"0\.0416667, which is none of the paper's 20"):
        appendix_rows(other)


def test_the_combined_table_has_every_figure_of_both_sides_along_mu():
    table = combined(paper(), [record("l1", last=8)], data="cifar10")
    points = ["dense", "k = 0", "k = 2", "k = 4", "k = 6", "k = 8", "k = 10", "last"]
    assert table.titles[3:] == points
    rows = {tuple(row[:3]): row[3:] for row in cells(table)}
    assert len(rows) == len(table.rows) == 4 * 2 * 4
    zeros = rows["CNN", "l1", "zero kernels (%)"]
    assert zeros[:3] == ["0.00 / 0.00", "1.00 / 3.00", "3.00 / 9.00"]
    assert zeros[-2:] == ["11.00 / missing", "30.00 / missing"]
    assert rows["CNN", "l1", "accuracy (%)"][:2] == ["80.00 / 90.00", "80.50 / 91.00"]
    assert rows["CNN", "l1", "epochs"][1:3] == ["4 / 11", "12 / 33"]
    assert rows["CNN", "l1", "speed-up"][2] == "1.20 / 1.50"
    assert rows["low-rank CNN", "l0", "epochs"][0] == "0 / missing"


def summary_row(*records):
    rows = cells(summary(paper(), records))
    assert len(rows) == 24
    return next(row[3:] for row in rows if row[:3] == ["CIFAR-10", "CNN", "l0"])


def test_the_summary_compares_the_last_point_and_finds_the_first_with_the_papers_count():
    row = summary_row(record())
    assert row == ["11", "30.00", "+1.00", "36.00", "+1.00", "reached", "k = 9", "30.00", "+1.00"]


def test_the_summary_says_by_how_much_the_aim_is_missed():
    assert summary_row(record(test=0.897))[5] == "reached"
    assert summary_row(record(test=0.8969))[5] == "missed by 0.01 points"
    few = record(test=0.89)
    few["points"][11]["sparsity"] |= {
        "zero_blocks": {"conv1.weight": 9, "conv2.weight": 20},
        "of_blocks": 0.29,
    }
    assert summary_row(few)[5] == "missed by 1.00 % of kernels and 0.70 points"


def test_the_summary_says_how_far_a_path_has_come():
    row = summary_row(record(last=9))
    assert row[3:] == ["missing (walked to k = 9)", "", "", "k = 9", "30.00", "+1.00"]
    assert summary_row(record(last=8))[3:] == ["missing (walked to k = 8)", *[""] * 5]
    assert summary_row()[3:] == ["missing", *[""] * 5]


def test_a_path_that_never_gets_there_says_so():
    short = record()
    short["points"][8:] = [{**short["points"][7], "index": 11, "position": 11 / 19}]
    assert summary_row(short)[6:] == ["never", "", ""]


def outcome_rows(*records):
    rows = cells(outcome(paper(), records))
    return [row[2:] for row in rows if row[:2] == ["CIFAR-10", "CNN"]]


def test_the_outcome_has_ours_with_the_papers_in_brackets():
    assert outcome_rows(record())[1] == [
        "l0",
        "90.00 (80.00)",
        "36.0 (30.0)",
        "+1.00 (+1.00)",
        "reached",
        "k = 9: 30.0, +1.00",
        "",
    ]


def test_the_outcome_says_how_far_a_path_has_come():
    half, none = outcome_rows(record(last=5))[1], outcome_rows()[1]
    zeros = 100 * record()["points"][5]["sparsity"]["of_blocks"]
    assert half[2:] == [
        f"{zeros:.1f} at k = 5 (30.0)",
        "+1.00 (+1.00)",
        "not at its end yet",
        "",
        "",
    ]
    assert none[1:] == ["(80.00)", "missing (30.0)", "missing (+1.00)", "", "", ""]


def test_a_path_has_one_row_of_the_outcome_with_the_variant_that_comes_closest():
    def other(*variants):
        rows = outcome_rows(record(test=0.5), *variants)
        assert [row[0] for row in rows] == ["l1", "l0"]
        return rows[1][-1]

    low, high = record(variant="unguarded", test=0.89), record(variant="short", test=0.899)
    assert other(low) == "no guard: 36.0, -1.00, missed by 0.70 points"
    assert other(low, high) == other(high, low) == "shorter range: 36.0, -0.10, reached"
    # One percent of the kernels weighs as one point.
    dense = record(variant="unguarded-short", test=0.95)
    few = {"zero_blocks": {"conv1.weight": 9, "conv2.weight": 20}, "of_blocks": 0.29}
    dense["points"][11]["sparsity"] |= few
    assert other(dense, low) == other(low)
    lower = record(variant="unguarded", test=0.886)
    assert other(dense, lower).startswith("no guard, shorter range: 29.0, +5.00, missed by 1.00 %")
    assert other(record(variant="short", last=5)) == "", "not at its end"
    assert other(record(variant="decayed"), record(variant="early")) == "", "no standing"


def test_the_outcome_counts_paths_and_how_clearly_they_reach_the_aim():
    def said(*records):
        note = outcome(paper(), records).note
        return note.partition("percent and points. ")[2].partition(" The variant")[0]

    counts = (
        "Of 24 paths {} are walked to their end. {} of these reach the aim as printed, {} of them "
        "by more than 0.3 points; {} more in another variant, {} of them by as much."
    )
    short = [record(penalty, variant="short") for penalty in ("l1", "l0")]
    assert said(record()) == counts.format(1, 1, 1, 0, 0)
    assert said(record(test=0.899), record("l1", last=5)) == counts.format(1, 1, 0, 0, 0)
    assert said(record(test=0.5), record("l1"), *short) == counts.format(2, 1, 1, 1, 1)
    assert said(record(test=0.5), record(variant="short", test=0.9)) == counts.format(1, 0, 0, 1, 0)
    assert said(record(test=0.5), record(variant="decayed")) == counts.format(1, 0, 0, 0, 0)
