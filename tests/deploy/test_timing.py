"""Turns and quantiles, by a clock that the test moves."""

from hashlib import pbkdf2_hmac
from pathlib import Path
from threading import Event, Thread

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


@pytest.mark.skipif(not timing.TASKS.is_dir(), reason="this system does not tell what threads do")
def test_no_turn_begins_while_a_thread_works_on(monkeypatch):
    monkeypatch.setattr(timing, "MOST_NAPS", 10**9)  # however slow the machine is
    spinning = Thread(target=pbkdf2_hmac, args=("sha256", b"", b"", 300_000))  # without the GIL
    spinning.start()
    timing.settle()
    assert not spinning.is_alive()


@pytest.mark.skipif(not timing.TASKS.is_dir(), reason="this system does not tell what threads do")
def test_a_thread_that_sleeps_is_not_waited_for(monkeypatch):
    monkeypatch.setattr(timing, "MOST_NAPS", 10**9)
    end = Event()
    sleeping = Thread(target=end.wait)
    sleeping.start()
    timing.settle()
    assert sleeping.is_alive()
    end.set()
    sleeping.join()


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
