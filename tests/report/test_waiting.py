"""Which pages look for more of their run, since when, and for how long."""

import os

import pytest
from records import record

from sparsepath.report.waiting import PATIENCE, last_sign, stage_seconds, waiting


@pytest.fixture
def folder(tmp_path):
    """A run that wrote its newest file at second 5000, and was looked at later."""
    (tmp_path / "points").mkdir()
    for name, second in (("settings.toml", 1000), ("losses.json", 5000), ("points/01.json", 4000)):
        (tmp_path / name).touch()
        os.utime(tmp_path / name, (second, second))
    (tmp_path / "report.html").touch()
    return tmp_path


def test_a_page_waits_from_the_last_sign_of_its_run(folder):
    found = waiting(folder, record(finished=False))
    assert found["changed"] == last_sign(folder) == 5000
    assert found["for"] == PATIENCE


def test_a_slow_run_has_more_time(folder):
    slow = record(finished=False)
    slow["points"][0] = {**slow["points"][0], "seconds": 2 * PATIENCE}
    assert waiting(folder, slow)["for"] > 2 * PATIENCE


def test_a_long_run_of_short_points_is_no_slow_one(folder):
    long = record(finished=False)
    long["points"] = [{**long["points"][0], "index": n, "seconds": 900.0 * n} for n in range(40)]
    assert stage_seconds(long) == [20.0, 0.0, *([900.0] * 39)]
    assert waiting(folder, long)["for"] == PATIENCE


def test_nothing_more_comes_of_a_finished_run_or_a_walk(folder):
    assert waiting(folder, record()) == {}
    assert waiting(folder / "losses.json", record(finished=False)) == {}
