"""TensorBoard's log: the same numbers as the live line."""

import pytest
from records import record

from sparsepath.errors import BadInput
from sparsepath.residuals import Residuals

pytest.importorskip("tensorboard", reason="tensorboard is not installed")

from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from sparsepath.report.board import Board


def logged(folder):
    events = EventAccumulator(str(folder))
    events.Reload()
    return {
        tag: [(entry.step, entry.value) for entry in events.Scalars(tag)]
        for tag in events.Tags()["scalars"]
    }


def test_losses_residuals_and_points_are_logged(tmp_path):
    board = Board(tmp_path)
    board.epoch("dense reference", done=1, planned=9, loss=2.0)
    board.dense(record()["dense"])
    board.epoch("point 1, iteration 1", done=2, planned=9, loss=0.5)
    board.iteration(0, [Residuals(9.0, 9.0, 1.0, 1.0), Residuals(5.5, 0.25, 0.5, 0.5, 3)])
    board.point(record()["points"][0])
    found = logged(tmp_path)
    assert found["training/loss"] == [(1, 2.0), (2, 0.5)]
    assert found["residuals/primal"] == [(2, 5.5)]
    assert found["residuals/dual"] == [(2, 0.25)]
    assert found["residuals/flipped"] == [(2, 3.0)]
    assert [step for step, _ in found["path/test"]] == [0, 1]
    assert [value for _, value in found["path/test"]] == pytest.approx([0.9765, 0.975])
    assert [step for step, _ in found["path/mu"]] == [1]
    assert found["path/epochs"] == [(0, 16.0), (1, 7.0)]
    assert found["path/iterations"] == [(1, 3.0)]
    assert found["path/macs"] == [(0, 3_430_000.0), (1, 1_715_000.0)]
    assert found["zero_blocks/a.weight"] == [(1, 1.0)]
    assert found["zero_blocks/b.weight"] == [(1, 49.0)]


def test_a_folder_that_cannot_be_written_is_refused(tmp_path):
    (tmp_path / "file").write_text("mine")
    with pytest.raises(BadInput, match=r"cannot be written .*choose another folder"):
        Board(tmp_path / "file" / "board")
