"""A run as it goes: every line has what is worth knowing, however narrow the terminal is."""

import fcntl
import io
import os
import pty
import re
import struct
import subprocess
import sys
import termios
from pathlib import Path

import pytest
from records import record
from rich.console import Console
from tiny import tiny_data, tiny_options

from sparsepath.lab.bench import DENSE, stage_name, stage_place
from sparsepath.report.live import live
from sparsepath.report.standing import Standing, clock
from sparsepath.residuals import Residuals

TURN = re.compile(r"\x1b\[[\d;?]*[A-Za-z]|\r")
"""What moves the cursor or colours."""


def residuals(*, primal, dual):
    return Residuals(primal, dual, primal_relative=0.5, dual_relative=0.5, flipped=3, guarded=())


def standing(stage="point 3, iteration 2", **changes):
    pull = residuals(primal=5.5, dual=0.25)
    figures = {"points": 10, "done": 34, "planned": 80, "loss": 0.75, "left": 83.0} | changes
    return Standing(stage, **{"residuals": pull, **figures})


@pytest.fixture
def time(monkeypatch):
    """A clock that is set by hand."""
    now = [0.0]
    monkeypatch.setattr("sparsepath.report.live.time.monotonic", lambda: now[0])
    return now


def walk(console, time):
    """A run of one point, an epoch every ten seconds."""
    with live(console, points=2) as watch:
        watch.begin(Path("runs/one"))
        for done in (1, 2):
            time[0] += 10
            watch.epoch(DENSE, done=done, planned=8, loss=1 / done)
        watch.dense(record()["dense"])
        for iteration in (0, 1):
            time[0] += 10
            watch.epoch(stage_name(0, iteration), done=3 + iteration, planned=8, loss=0.75)
            watch.iteration(0, [residuals(primal=5.5 - iteration, dual=0.25)])
        time[0] += 10
        watch.epoch(stage_name(0, None), done=5, planned=8, loss=0.5)
        yield watch
        watch.point(record()["points"][0])
        time[0] += 10
        watch.epoch(stage_name(1, 0), done=6, planned=8, loss=0.25)
        yield watch


def test_anything_but_a_terminal_gets_one_line_per_stage_and_per_result(time):
    file = io.StringIO()
    list(walk(Console(file=file, width=40), time))
    assert file.getvalue().splitlines() == [
        "folder: runs/one",
        "dense reference, epoch 2 of at most 8 of the run, loss 0.5, at most 1:00 left",
        "images: 3,500 train, 500 validation, 1,000 test",
        "dense: validation 98.00 %, test 97.65 %, 44,138 weights, 100 blocks, 3.43 M MACs",
        "mu 1 of 2, iteration 1, epoch 3 of at most 8 of the run, loss 0.75, "
        "primal 5.5, dual 0.25, "
        "at most 0:50 left",
        "mu 1 of 2, iteration 2, epoch 4 of at most 8 of the run, loss 0.75, "
        "primal 4.5, dual 0.25, "
        "at most 0:40 left",
        "mu 1 of 2, fine-tune, epoch 5 of at most 8 of the run, loss 0.5, primal 4.5, dual 0.25, "
        "at most 0:30 left",
        "point  1/2: mu 1.23e-03, zero blocks 50.00 %, validation 98.10 %, test 97.50 %, "
        "3 iterations, 12 s",
    ]


@pytest.mark.parametrize("width", [40, 60, 80, 120, 200])
def test_a_terminal_shows_one_line_with_the_time_left(time, width):
    file = io.StringIO()
    console = Console(file=file, force_terminal=True, width=width, height=20, highlight=False)
    run = walk(console, time)
    next(run)
    time[0] += 3
    lines = [line for line in drawn(console, file).splitlines() if "mu 1" in line]
    assert lines
    for line in lines:
        assert len(line) <= width
        assert "0:27" in line
        assert "4.5" in line
    next(run)
    now = drawn(console, file)
    assert "mu 2" in now
    assert "4.5" not in now  # those were the residuals of the mu before
    run.close()


def drawn(console, file):
    """What the console draws now."""
    before = len(file.getvalue())
    console.print(end="")
    return TURN.sub("", file.getvalue()[before:])


@pytest.mark.parametrize("stage", [DENSE, "point 3, iteration 2", "point 10, fine-tune"])
def test_every_width_has_the_stage_the_epoch_the_loss_and_the_time_left(stage):
    for width in range(40, 200):
        line = standing(stage).said(width)
        assert len(line) <= width
        assert "34/80" in line or "34 of at most 80" in line
        assert ".75" in line
        assert "1:23" in line
        assert "5.5" in line
        if stage != DENSE:
            assert re.search(r"mu \d+(/| of )10\b", line)
            assert re.search(r"(i|iter |iteration )2\b|tune", line)
        else:
            assert "dense" in line


def test_figures_that_are_long_leave_the_time_left_in_place():
    pull = residuals(primal=123456.0, dual=1.23456e-7)
    line = standing("point 100, iteration 10", points=200, done=12345, planned=23456, loss=1e9)
    for width in (*range(12, 40), 40, 80):
        said = Standing(**{**vars(line), "residuals": pull, "left": 86399.0}).said(width)
        assert len(said) <= width
        assert "23:59:59" in said
    assert standing().said(2) == ""


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0:00"),
        (9.4, "0:09"),
        (83, "1:23"),
        (3599.4, "59:59"),
        (3599.9, "1:00:00"),
        (3723, "1:02:03"),
        (90000, "1d1:00:00"),
        (180000, "2d2:00:00"),
    ],
)
def test_a_time_is_as_short_as_it_can_be(seconds, text):
    assert clock(seconds) == text


def test_a_stage_is_found_again_by_its_name():
    for place in ((0, 0), (9, 11), (3, None)):
        assert stage_place(stage_name(*place)) == place
    assert stage_place(DENSE) is None


def test_what_an_earlier_process_did_says_nothing_of_the_speed(time):
    file = io.StringIO()
    with live(Console(file=file), points=2) as watch:
        watch.begin(Path("run"))
        watch.dense(record()["dense"])
        watch.point(record()["points"][0])
        time[0] = 10.0
        watch.epoch(stage_name(1, 0), done=50, planned=53, loss=0.5)
        watch.iteration(1, [residuals(primal=1.0, dual=2.0)])
    assert file.getvalue().splitlines()[-1].endswith("at most 0:30 left")
    assert sum(line.startswith("mu") for line in file.getvalue().splitlines()) == 1


def test_a_long_stage_says_now_and_then_that_it_lives(time):
    file = io.StringIO()
    with live(Console(file=file, width=100), points=2) as watch:
        for epoch, now in ((1, 10.0), (2, 31.0), (3, 40.0)):
            time[0] = now
            watch.epoch(DENSE, done=epoch, planned=60, loss=1 / epoch)
    assert file.getvalue() == (
        "dense reference, epoch 2 of at most 60 of the run, loss 0.5, at most 14:59 left\n"
    )


def test_a_terminal_that_cannot_move_its_cursor_gets_lines(time, monkeypatch):
    monkeypatch.setenv("TERM", "dumb")
    file = io.StringIO()
    list(walk(Console(file=file, force_terminal=True, width=80), time))
    assert "\x1b" not in file.getvalue()
    assert "mu 1 of 2, iteration 1, epoch 3" in file.getvalue()


def test_a_folder_is_shown_without_what_would_act_on_the_terminal():
    file = io.StringIO()
    with live(Console(file=file), points=2) as watch:
        watch.begin(Path("a\x1b[31m\nb"))
    assert file.getvalue() == "folder: a\\x1b[31m\\nb\n"


def test_a_point_says_its_own_seconds_and_one_iteration():
    file = io.StringIO()
    with live(Console(file=file), points=2) as watch:
        for number, point in enumerate(record()["points"], 1):
            watch.point({**point, "seconds": 60.0 * number + number**2, "iterations": number})
    first, second = file.getvalue().splitlines()
    assert first.endswith("1 iteration, 61 s")
    assert second.endswith("2 iterations, 63 s")


def on_a_terminal(command, *, columns, **variables):
    """What a command writes to a terminal of so many columns."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    kept = {key: value for key, value in os.environ.items() if key not in ("COLUMNS", "LINES")}
    process = subprocess.Popen(
        command,
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        env={**kept, "TERM": "xterm-256color", **variables},
    )
    os.close(theirs)
    content = b""
    while True:
        try:
            part = os.read(ours, 65536)
        except OSError:  # the other side is closed
            break
        if not part:
            break
        content += part
    os.close(ours)
    assert process.wait() == 0, content.decode(errors="replace")
    return content.decode()


def test_a_real_terminal_of_40_columns_shows_the_time_left_in_every_line(tmp_path):
    command = [sys.executable, "-m", "sparsepath", "run", "--no-deploy"]
    command += [*tiny_options(tiny_data(tmp_path)), "--out", str(tmp_path / "run")]
    seen = on_a_terminal(command, columns=40, NO_COLOR="1", PYTHONIOENCODING="ascii")
    frames = re.findall(r"(?:mu \d/2 |dense ).*?(?=[\r\n\x1b])", seen.partition("zero weights")[0])
    frames = [frame for frame in frames if re.search(r"\d/8\b", frame)]
    assert frames
    for frame in frames:
        assert len(frame) <= 40
        assert re.search(r"\d:\d\d\b", frame), frame
    assert not re.search(r"\x1b\[3\dm", seen)
    assert seen.isascii()
