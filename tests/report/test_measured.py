"""The table of measured times: the last point of what was measured, and by which network."""

from walks import record

from sparsepath.report.measured import measured

GAINS = {
    "batch 1": {"over dense in sparsepath": 1.5, "over dense in onnxruntime": 3.25},
    "batch 64": {"over dense in sparsepath": 1.75},
}


def timed(**about):
    stand_in = about.pop("stand_in", None)
    found = record(**about)
    latency = {"machine": "a machine", "gains": GAINS}
    found["points"][-1]["latency"] = latency | ({} if stand_in is None else {"stand_in": stand_in})
    return found


def test_the_last_points_that_were_measured_stand_in_the_table():
    table = measured([record("l1"), timed()])
    row = ["CIFAR-10", "CNN", "l0", "36.00", "1.50", "1.50", "3.25", "1.75", "", "1"]
    assert table.rows == [row]
    assert "One thread of machine 1: a machine; gains on two cannot be compared." in table.note


def test_each_row_says_which_machine_it_was_measured_on():
    walks = [timed(), timed(penalty="l1"), timed(variant="early")]
    walks[1]["points"][-1]["latency"]["machine"] = "another"
    table = measured(walks)
    assert [row[-1] for row in table.rows] == ["1", "2", "1"]
    assert "1: a machine; 2: another;" in table.note
    assert "machine 1" not in measured([record()]).note


def test_what_a_stand_in_was_measured_for_says_so():
    walks = [timed(variant="early", stand_in=True), timed(penalty="l1", stand_in=False), timed()]
    table = measured(walks)
    assert [row[2] for row in table.rows] == ["l0, early start, stand-in", "l1", "l0"]
    assert "Stand-in: the weights were not kept" in table.note
    assert "Stand-in" not in measured(walks[1:]).note
