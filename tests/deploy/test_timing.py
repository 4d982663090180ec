"""Turns and quantiles, by a clock that the test moves."""

from hashlib import pbkdf2_hmac
from pathlib import Path
from threading import Event, Thread, get_native_id

import pytest

from sparsepath.deploy.measuring import timing
from sparsepath.deploy.measuring.timing import Speed, by_turns


class Clock:
    """Moves only where work is done."""

    def __init__(self):
        self.now, self.log = 0.0, []

    def __call__(self):
        return self.now

    def work(self, name, seconds):
        def run():
            self.log.append(name)
            self.now += seconds

        return run


@pytest.fixture
def clock(monkeypatch):
    made = Clock()
    monkeypatch.setattr(timing.time, "perf_counter", made)
    return made


def test_every_call_is_timed_by_itself_and_a_turn_is_as_long_for_all(clock):
    works = {"slow": clock.work("slow", 0.01), "quick": clock.work("quick", 0.002)}
    times = by_turns(works, seconds=0.0, clock=clock)
    assert [len(times[name]) for name in works] == [7, 7]
    assert [len(turn) for turn in times["slow"]] == 7 * [2]
    assert [len(turn) for turn in times["quick"]] == 7 * [10]
    assert times["quick"][3] == pytest.approx(10 * [0.002])


def test_who_comes_first_moves_on(clock):
    works = {name: clock.work(name, 0.02) for name in "abc"}
    by_turns(works, seconds=0.0, clock=clock)
    turns = clock.log[9:]  # after three calls of each to settle
    firsts = [turns[k] for k in range(0, len(turns), 6)]
    assert firsts == list("abcabca")


def test_it_goes_on_until_the_seconds_are_over_but_not_for_ever(clock):
    works = {"a": clock.work("a", 0.02)}
    assert len(by_turns(works, seconds=0.79, clock=clock)["a"]) == 20  # of 0.04 seconds each
    assert len(by_turns(works, seconds=1e9, clock=clock)["a"]) == timing.MOST


def test_quantiles_are_those_of_all_calls():
    speed = Speed.of(64, [[float(k) for k in range(1, 51)], [float(k) for k in range(51, 101)]])
    assert (speed.p50, speed.p95) == (50.5, 95.0)
    assert speed.throughput == 64 / 50.5
    assert Speed.of(1, [[2.0]]) == Speed(1, 2.0, 2.0)


class Spinner:
    """A process whose threads work on for some naps after every call."""

    def __init__(self, naps):
        self.naps, self.left, self.cpu, self.slept = naps, 0, 0.0, 0

    def work(self):
        self.left = self.naps

    def sleep(self, seconds):
        self.slept += 1
        self.cpu += seconds * (self.left > 0)
        self.left -= 1


# A look takes a nap, and so does the time until the next look.
@pytest.mark.parametrize(("naps", "slept"), [(0, 1), (3, 5), (10**9, 2 * timing.MOST_NAPS)])
def test_where_threads_are_not_told_apart_the_time_of_all_tells(naps, slept, monkeypatch):
    spinner = Spinner(naps)
    monkeypatch.setattr(timing, "TASKS", Path("nowhere"))
    monkeypatch.setattr(timing.time, "process_time", lambda: spinner.cpu)
    monkeypatch.setattr(timing.time, "sleep", spinner.sleep)
    spinner.work()
    timing.settle()
    assert spinner.slept == slept


@pytest.fixture
def tasks(tmp_path, monkeypatch):
    """Threads of which the system says what the test wants, beside the one that asks."""
    monkeypatch.setattr(timing, "TASKS", tmp_path)

    def told(**states):
        for task, state in {str(get_native_id()): "R", **states}.items():
            (tmp_path / task).mkdir(exist_ok=True)
            (tmp_path / task / "stat").write_text(f"{task} (odd) R (name) {state} 1 R")

    return told


def test_no_turn_begins_while_a_thread_works_on(tasks, monkeypatch):
    naps = []

    def sleep(seconds):
        naps.append(seconds)
        tasks(one="S", two="R" if len(naps) < 3 else "S")

    monkeypatch.setattr(timing.time, "sleep", sleep)
    tasks(one="S", two="R")
    timing.settle()
    assert naps == 3 * [timing.NAP]


def test_threads_that_sleep_or_have_ended_are_not_waited_for(tasks, tmp_path, monkeypatch):
    monkeypatch.setattr(timing.time, "sleep", lambda _: pytest.fail("it waits"))
    tasks(one="S", two="D")
    (tmp_path / "ended").mkdir()
    timing.settle()


@pytest.mark.skipif(not timing.TASKS.is_dir(), reason="this system does not tell what threads do")
def test_the_system_tells_of_a_thread_that_works():
    end = Event()

    def spin():
        while not end.is_set():
            pbkdf2_hmac("sha256", b"", b"", 10_000)  # without the GIL

    spinning = Thread(target=spin)
    spinning.start()
    seen = any(timing._others_work() for _ in range(10_000))
    end.set()
    spinning.join()
    assert seen


def test_a_thread_that_works_for_ever_is_not_waited_for(monkeypatch):
    naps = []
    monkeypatch.setattr(timing, "_others_work", lambda: True)
    monkeypatch.setattr(timing.time, "sleep", naps.append)
    timing.settle()
    assert len(naps) == timing.MOST_NAPS


def test_no_turn_begins_while_threads_of_the_one_before_spin(clock, monkeypatch):
    monkeypatch.setattr(timing, "settle", lambda: clock.log.append("settled"))
    by_turns({name: clock.work(name, 0.02) for name in "ab"}, seconds=0.0, clock=clock)
    assert clock.log[6:12] == ["settled", "a", "a", "settled", "b", "b"]
