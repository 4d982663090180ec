"""Times are measured once, kept, and thrown away when they do not fit; the fastest way is taken."""

import json
import logging
import math
import os
import sys
from dataclasses import replace

import pytest
import torch
from torch import nn
from tracing import untraced

from sparsepath.deploy.capture.capture import capture
from sparsepath.deploy.graph.fold import folded
from sparsepath.deploy.graph.reference import run
from sparsepath.deploy.running import kernels, stamp, tuning
from sparsepath.deploy.running import planned as planning
from sparsepath.deploy.running.choices import Lanes, Weights
from sparsepath.deploy.running.dense import in_onnxruntime, in_torch
from sparsepath.deploy.running.plan import MANY, ONE, Planner
from sparsepath.deploy.running.planned import images_in_a_batch
from sparsepath.deploy.running.runtime import compile
from sparsepath.deploy.running.tuner import Tuner
from sparsepath.deploy.running.tuning import Times
from sparsepath.errors import BadInput

from .cases import network, sizes
from .test_runtime import BUILT, error, exact, small

IMAGES = torch.randn(4, 3, 16, 16)
native = pytest.mark.skipif(not kernels.available(), reason="the kernels are not built")


def never(candidates, **options):
    raise AssertionError(f"measured again: {list(candidates)}")


@native
def test_what_was_measured_is_not_measured_again(tmp_path, monkeypatch):
    first = compile(small(), IMAGES, cache=tmp_path)
    monkeypatch.setattr(tuning, "measured", never)
    second = compile(small(), IMAGES, cache=tmp_path)
    assert str(first.report()) == str(second.report())
    with pytest.raises(AssertionError, match="measured again"):
        compile(small(), torch.randn(4, 3, 20, 20), cache=tmp_path)
    with pytest.raises(AssertionError, match="measured again"):
        compile(small(channels=4), torch.randn(4, 4, 16, 16), cache=tmp_path)


def written(folder):
    times = Times(folder)
    times.of("question", {"answer": lambda: None})
    times.keep()
    return times.path


def changed(path, **changes):
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


DAMAGES = {
    "cut": lambda path: path.write_text(path.read_text()[:-40]),
    "empty": lambda path: path.write_text(""),
    "bytes": lambda path: path.write_bytes(b"\xff\x00\xfe" * 100),
    "a list": lambda path: path.write_text("[1, 2]"),
    "deep": lambda path: path.write_text("[" * 100_000),
    "another format": lambda path: changed(path, format="sparsepath tuning 99"),
    "another version": lambda path: changed(path, sparsepath="99.0"),
    "another torch": lambda path: changed(path, torch="1.0"),
    "another machine": lambda path: changed(path, machine="a calculator"),
    "a pipe": lambda path: (path.unlink(), os.mkfifo(path)),
    "no times": lambda path: changed(path, times=None),
    "times of a kind": lambda path: changed(path, times={"question": {"answer": "soon"}}),
    "a list of times": lambda path: changed(path, times={"question": [1.0]}),
    "negative": lambda path: changed(path, times={"question": {"answer": -1.0}}),
    "not a number": lambda path: path.write_text(
        path.read_text().replace('"answer": ', '"answer": NaN, "x": ')
    ),
}


@pytest.mark.parametrize("name", DAMAGES)
def test_a_file_that_is_damaged_or_foreign_is_ignored_in_one_line_and_made_anew(
    name, tmp_path, caplog
):
    path = written(tmp_path)
    DAMAGES[name](path)
    with caplog.at_level(logging.WARNING, "sparsepath"):
        times = Times(tmp_path)
    (said,) = [record.getMessage() for record in caplog.records]
    assert "is ignored and made anew" in said
    assert "restore or delete" not in said
    assert "question" not in said
    assert len(said.splitlines()) == 1
    asked = []
    times.of("question", {"answer": lambda: asked.append(1)})
    assert asked
    times.keep()
    caplog.clear()
    Times(tmp_path).of("question", {"answer": lambda: never(["answer"])})
    assert not caplog.records


@pytest.mark.parametrize(
    ("owner", "name", "value"),
    [
        (stamp, "_kernels", lambda: "of another build"),
        (stamp, "_onnxruntime", lambda: "99.0"),
        (torch, "__version__", "99.0"),
        (os.environ, "ONEDNN_MAX_CPU_ISA", "SSE41"),
    ],
)
def test_installs_that_differ_keep_their_times_apart(owner, name, value, tmp_path, monkeypatch):
    path = written(tmp_path)
    with monkeypatch.context() as other:
        if owner is os.environ:
            other.setenv(name, value)
        else:
            other.setattr(owner, name, value)
        asked = []
        times = Times(tmp_path)
        times.of("question", {"answer": lambda: asked.append(1)})
        times.keep()
        assert asked
        assert times.path != path
    Times(tmp_path).of("question", {"answer": lambda: never(["answer"])})


def test_the_version_of_onnxruntime_is_part_of_the_file(tmp_path, monkeypatch):
    onnxruntime = pytest.importorskip("onnxruntime")
    assert json.loads(written(tmp_path).read_text())["onnxruntime"] == onnxruntime.__version__
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    assert json.loads(written(tmp_path).read_text())["onnxruntime"] == "none"


@pytest.mark.parametrize("given", [True, False], ids=["argument", "variable"])
def test_a_folder_may_lie_in_the_home(given, tmp_path, monkeypatch):
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setattr(tuning, "measured", lambda candidates, **_: dict.fromkeys(candidates, 1.0))
    monkeypatch.setenv("SPARSEPATH_CACHE", "elsewhere" if given else "~/times")
    compile(small(), IMAGES, cache="~/times" if given else None)
    assert not list((tmp_path / "here").iterdir())
    if kernels.available():
        assert len(list((tmp_path / "home" / "times").glob("tuning-*.json"))) == 1


def test_a_folder_in_the_home_of_nobody_gets_a_sentence():
    with pytest.raises(BadInput, match="no home for '~nobody-of-that-name/times'; name the folder"):
        compile(small(), IMAGES, cache="~nobody-of-that-name/times")


def test_a_place_that_cannot_be_written_costs_only_a_line(tmp_path, caplog):
    (tmp_path / "file").write_text("")
    with caplog.at_level(logging.WARNING, "sparsepath"):
        runtime = compile(small(), IMAGES, cache=tmp_path / "file")
    assert error(runtime(IMAGES), exact(small(), IMAGES)) < 1e-5
    if kernels.available():
        (said,) = [record.getMessage() for record in caplog.records]
        assert said.startswith("The tuning file is not kept: ")


@pytest.mark.parametrize("place", ["a" * 5000, None], ids=["a name too long", "no home"])
def test_a_place_that_cannot_be_costs_only_a_line(place, tmp_path, caplog, monkeypatch):
    def homeless():
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("SPARSEPATH_CACHE", raising=False)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr(tuning.Path, "home", homeless)
    with caplog.at_level(logging.WARNING, "sparsepath"):
        times = Times(place and tmp_path / place)
        assert times.of("question", {"answer": lambda: None})["answer"] > 0
        times.keep()
    (said,) = [record.getMessage() for record in caplog.records]
    assert said.startswith("The tuning file is not kept: ")


@native
@pytest.mark.parametrize("first", [True, False])
def test_an_input_without_axes_is_measured_too(first, tmp_path):
    class Scaled(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv = nn.Conv2d(3, 4, 3)

        def forward(self, a, b):
            return self.conv(b) * a if first else self.conv(a) * b

    number, model = torch.tensor(2.0), Scaled().eval()
    inputs = (number, IMAGES) if first else (IMAGES, number)
    runtime = compile(model, inputs, cache=tmp_path)
    with torch.no_grad():
        torch.testing.assert_close(runtime(*inputs), model(*inputs), rtol=1e-4, atol=1e-5)


@native
@pytest.mark.parametrize("images", [4, 20])
def test_an_input_that_is_no_batch_is_measured_as_it_is(images, tmp_path):
    class Looked(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv = nn.Conv2d(3, 20, 3)

        def forward(self, x, table):
            return self.conv(x).mean((2, 3)) @ table

    model = Looked().eval()
    inputs = torch.randn(images, 3, 16, 16), torch.randn(20, 8)
    runtime = compile(model, inputs, cache=tmp_path)
    with torch.no_grad():
        torch.testing.assert_close(runtime(*inputs), model(*inputs), rtol=1e-4, atol=1e-5)


def test_two_processes_that_measure_keep_both_answers(tmp_path):
    one, two = Times(tmp_path), Times(tmp_path)
    one.of("first", {"a": lambda: None})
    two.of("second", {"b": lambda: None})
    one.keep()
    two.keep()
    both = Times(tmp_path)
    both.of("first", {"a": lambda: never(["a"])})
    both.of("second", {"b": lambda: never(["b"])})


def test_candidates_take_turns_and_the_best_round_counts():
    clock = iter(range(10_000))
    ticks = {"slow": 5, "fast": 2}
    order = []

    def work(name):
        def run():
            order.append(name)
            for _ in range(ticks[name]):
                next(clock)

        return run

    works = {name: work(name) for name in ticks}
    found = tuning.measured(works, clock=lambda: float(next(clock)), patience=9.0)
    assert found == {"slow": 6.0, "fast": 3.0}
    assert order[4:10] == ["slow", "fast"] * 3, "two calls each tell how many make a turn"


def test_threads_that_spin_on_are_waited_for_unless_there_is_only_one(tmp_path, monkeypatch):
    for alone in (True, False):
        order = []
        monkeypatch.setattr(tuning, "settle", lambda own=order: own.append("settled"))
        times = Times(tmp_path, alone=alone)
        times.of("question", {name: lambda own=order, n=name: own.append(n) for name in "ab"})
        assert ("settled" in order) is not alone
        if not alone:
            first = order.index("settled")
            assert order[first + 1] == "a", "each turn begins with it"
            assert order[order.index("b", first) - 1] == "settled"


def test_the_call_that_wakes_threads_does_not_count():
    clock, order = iter(range(10_000)), []

    def work():
        order.append("call")
        for _ in range(9 if order[-2] == "settled" else 2):
            next(clock)

    def settle():
        order.append("settled")

    order.append("begin")
    found = tuning.measured(
        {"a": work}, clock=lambda: float(next(clock)), patience=30.0, settle=settle
    )
    assert found == {"a": 3.0}
    assert order[3:] == ["settled", "call", "call"] * 3


class Told(Times):
    """Times that are told, by words that the candidate's name begins with."""

    def __init__(self, **seconds):
        self.seconds = seconds

    def of(self, question, candidates, patience=0.0):
        found = {}
        for name in candidates:
            known = [x for word, x in self.seconds.items() if name.startswith(word)]
            found[name] = known[0] if known else 1.0
        return found


def planned(model, images, times, lanes=MANY, threads=1):
    graph = folded(capture(model))
    shapes = {graph.inputs[0]: tuple(images.shape)}
    run(graph, images, watch=lambda node, x: shapes.__setitem__(node.name, tuple(x.shape)))
    planner = Planner(graph, Weights(), threads)
    dense = {"torch": in_torch(graph)}
    return Tuner(planner, [images], [images], shapes, dense, times).plan(lanes)


@native
def test_the_fastest_method_of_a_layer_is_taken():
    for method in ("winograd4", "winograd2", "direct"):
        times = Told(**{method: 0.5, "torch": 9.0, "Lanes": 0.1, "way": 0.01})
        assert planned(small(), IMAGES, times).choices["0"].method == method


@native
def test_a_layer_goes_to_torch_only_if_that_pays_for_the_way():
    fast = Told(torch=0.1, way=0.01, native=0.01)
    assert planned(small(), IMAGES, fast).choices["0"].method == "torch"
    slow_way = Told(torch=0.1, way=0.5, native=0.01)
    assert planned(small(), IMAGES, slow_way).choices["0"].method != "torch"


@native
def test_the_fastest_lanes_are_taken():
    times = Told(**{str(Lanes(2, 16)): 0.1, "way": 0.01})
    plan = planned(small(), IMAGES, times)
    assert (plan.lanes, plan.runner) == (Lanes(2, 16), "native")


@native
def test_a_dense_runtime_that_is_faster_takes_the_whole():
    plan = planned(small(), IMAGES, Told(torch=0.01, way=0.5, Lanes=3.0), ONE)
    assert plan.runner == "torch"
    assert all("faster for the whole" in choice.why for choice in plan.choices.values())


@native
@pytest.mark.parametrize(
    ("several", "one", "taken"), [(0.5, 1.0, 3), (0.89, 1.0, 3), (0.95, 1.0, 1), (1.0, 0.5, 1)]
)
def test_threads_are_used_where_they_gain_something(several, one, taken):
    times = {f"native{way}, one thread": one for way in ("", ", by layer", ", by rule")}
    told = Told(**times, native=several, way=0.01, torch=9.0)
    for lanes in (ONE, MANY):
        assert planned(small(), IMAGES, told, lanes, threads=3).threads == taken


@native
def test_a_dense_runtime_takes_the_whole_even_from_one_thread():
    told = Told(native=1.0, torch=0.95, way=9.0)
    assert planned(small(), IMAGES, told, ONE, threads=2).runner == "torch"


@native
def test_a_plan_runs_in_its_own_number_of_threads():
    graph = folded(capture(small()))
    planner = Planner(graph, Weights(), 2)
    shapes = {graph.inputs[0]: tuple(IMAGES.shape)}
    run(graph, IMAGES, watch=lambda node, x: shapes.__setitem__(node.name, tuple(x.shape)))
    plan = planner.fixed(shapes, ONE[0])
    for threads in (1, 2):
        made = planner.schedule(replace(plan, threads=threads), shapes)
        ((_, native_step),) = made.steps
        assert native_step.program._threads == threads


@untraced
@pytest.mark.parametrize("name", BUILT)
def test_the_dense_choice_of_torch_has_the_same_function(name):
    model = network(name)
    dense = in_torch(folded(capture(model)))
    for size in sizes(name):
        images = torch.randn(3, 3, size, size)
        assert error(dense(images), exact(model, images)) < 1e-5


def test_onnxruntime_leaves_what_it_cannot_take_to_torch():
    pytest.importorskip("onnxruntime")
    pytest.importorskip("onnx")
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU()).eval()
    dense = in_onnxruntime(folded(capture(model)), [IMAGES], 1)
    with torch.no_grad():
        torch.testing.assert_close(dense(IMAGES[0]), model(IMAGES[0]))
        torch.testing.assert_close(dense(IMAGES.transpose(2, 3)), model(IMAGES.transpose(2, 3)))
    with pytest.raises(RuntimeError, match="channels"):
        dense(IMAGES[:, :2])


@pytest.mark.parametrize("pool", [nn.MaxPool2d(2), nn.MaxPool2d(3, 1), nn.AdaptiveMaxPool2d(1)])
@pytest.mark.parametrize("strange", [math.nan, math.inf])
def test_onnxruntime_drops_no_nan(pool, strange):
    pytest.importorskip("onnxruntime")
    pytest.importorskip("onnx")
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), pool).eval().requires_grad_(False)
    dense = in_onnxruntime(folded(capture(model)), [IMAGES], 1)
    images = IMAGES.clone()
    images[0, 1, 7, 7] = strange
    torch.testing.assert_close(dense(images), model(images), equal_nan=True)
    torch.testing.assert_close(dense(IMAGES), model(IMAGES))


def test_an_example_without_a_batch_is_tuned_too(tmp_path):
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU()).eval()
    runtime = compile(model, IMAGES[0], cache=tmp_path)
    with torch.no_grad():
        torch.testing.assert_close(runtime(IMAGES[1]), model(IMAGES[1]))
        torch.testing.assert_close(runtime(IMAGES), model(IMAGES), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", BUILT)
def test_the_dense_choice_of_onnxruntime_has_the_same_function(name):
    pytest.importorskip("onnxruntime")
    pytest.importorskip("onnx")
    model = network(name)
    graph = folded(capture(model))
    dense = in_onnxruntime(graph, [torch.randn(2, 3, 32, 32)], 1)
    if name == "digit-net":
        assert dense is None
        return
    for size in sizes(name):
        images = torch.randn(3, 3, size, size)
        assert error(dense(images), exact(model, images)) < 1e-5


def test_short_calls_are_timed_in_rows_with_caches_of_their_own():
    seconds, log = Clock(), []

    def work(name, cold, warm):
        def run():
            seconds.go(warm if log and log[-1] == name else cold)
            log.append(name)

        return run

    # After another's call the first takes long, as with cold caches; in a loop it is the faster.
    works = {"loop": work("loop", 5e-4, 1e-4), "even": work("even", 2e-4, 2e-4)}
    found = tuning.measured(works, clock=seconds, patience=0.01)
    assert found["loop"] == pytest.approx(1e-4)
    assert found["even"] == pytest.approx(2e-4)


class Clock:
    """A clock that only goes when it is told."""

    def __init__(self):
        self.now = 0.0

    def go(self, seconds):
        self.now += seconds

    def __call__(self):
        return self.now


@pytest.mark.parametrize(("seconds", "calls"), [(0.005, 12), (0.03, 5), (60.0, 3)])
def test_long_calls_are_repeated_less_often(seconds, calls):
    clock, log = Clock(), []

    def work(name):
        return lambda: (clock.go(seconds), log.append(name))

    tuning.measured({name: work(name) for name in "ab"}, clock=clock, patience=0.04)
    assert [log.count(name) for name in "ab"] == [calls, calls]


@pytest.mark.parametrize(
    ("shapes", "images"),
    [
        ([(1, 3, 32, 32)], 32),
        ([(64, 3, 48, 48)], 32),
        ([(1, 3, 96, 96)], 8),
        ([(2, 3, 256, 256)], 1),
        ([(1, 3, 4000, 4000)], 1),
        ([(1, 3000)], 32),
        ([(), (1, 1, 96, 96)], 8),
    ],
)
def test_a_batch_to_measure_has_fewer_images_if_they_are_large(shapes, images):
    assert images_in_a_batch([torch.empty(shape) for shape in shapes]) == images


@native
@pytest.mark.parametrize("batch", [3, 8, 32])
def test_no_more_images_are_measured_than_stand_for_a_batch(batch, tmp_path, monkeypatch):
    met, plan = [], Tuner.plan

    def watched(tuner, lanes):
        met.append((len(tuner.example[0]), lanes))
        return plan(tuner, lanes)

    monkeypatch.setattr(Tuner, "plan", watched)
    monkeypatch.setattr(planning, "MANY_PIXELS", batch * 16 * 16)
    runtime = compile(small(), IMAGES, cache=tmp_path)
    filled = tuple(lanes for lanes in MANY if lanes.group <= batch)
    assert met == [(1, ONE), (batch, filled)][: 1 if batch == 3 else 2]
    images = torch.randn(20, 3, 16, 16)
    assert error(runtime(images), exact(small(), images)) < 1e-5


def test_what_a_foreign_file_is_of_is_said_in_words(tmp_path, caplog):
    path = written(tmp_path)
    changed(path, torch="1.0", machine={"not": "a text"})
    with caplog.at_level(logging.WARNING, "sparsepath"):
        Times(tmp_path)
    (said,) = [record.getMessage() for record in caplog.records]
    assert said.endswith("made anew: it is of another torch (1.0) and another machine.")


@pytest.mark.parametrize("axes", [1, 3])
def test_convolutions_that_have_no_kernels_are_tuned_around(axes, tmp_path):
    kind = {1: nn.Conv1d, 3: nn.Conv3d}[axes]
    images = torch.randn(2, 3, *[5] * axes)
    model = nn.Sequential(kind(3, 4, 3)).eval()
    runtime = compile(model, images, cache=tmp_path, native_only=True)
    with torch.no_grad():
        torch.testing.assert_close(runtime(images), model(images))
    assert f"its input has {axes + 2} axes" in str(runtime.report())


@pytest.mark.parametrize(
    ("said", "named"),
    [
        (
            "cpu family\t: 26\nmodel\t\t: 2\nmodel name\t: A\n\nmodel\t: 9\nmodel name : B\n",
            "A (family 26, model 2)",
        ),
        ("model name\t: A: B\n", "A: B"),
        ("processor : 0\nFeatures : fp\n", "what platform says"),
    ],
)
def test_processors_of_one_name_are_told_apart(said, named, tmp_path, monkeypatch):
    (tmp_path / "cpuinfo").write_text(said)
    monkeypatch.setattr(stamp, "Path", lambda place: tmp_path / "cpuinfo")
    monkeypatch.setattr(stamp.platform, "processor", lambda: "what platform says")
    assert f" {named}, " in stamp.machine()
