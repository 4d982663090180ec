"""A plan made for one size of images is fitted to another: by rule where no measurement holds."""

import gc
import weakref
from dataclasses import replace

import pytest
import torch
from torch import nn

from sparsepath.deploy.capture.capture import capture
from sparsepath.deploy.graph import reference
from sparsepath.deploy.graph.reference import shapes
from sparsepath.deploy.running import kernels, planned
from sparsepath.deploy.running.choices import Choice, Weights
from sparsepath.deploy.running.plan import MANY, ONE, Planner
from sparsepath.deploy.running.runtime import compile

pytestmark = pytest.mark.skipif(not kernels.available(), reason="the kernels are not built")


def layer(kept=1.0):
    torch.manual_seed(0)
    conv = nn.Conv2d(3, 8, 3, padding=1)
    with torch.no_grad():
        conv.weight.view(24, 9)[round(24 * kept) :] = 0
    return nn.Sequential(conv).eval()


def method(model, size, *, measured=None):
    """How a plan for 8 x 8 pixels, by rule or measured, runs images of another size."""
    graph = capture(model)
    planner = Planner(graph, Weights(), 1)
    plan = planner.fixed(shapes(graph, [torch.randn(1, 3, 8, 8)]), ONE[0])
    if measured:
        plan = replace(plan, choices=dict.fromkeys(plan.choices, Choice(measured, "it was fast")))
    fitted = planner.fitted(plan, shapes(graph, [torch.randn(1, 3, *size)]))
    return fitted.choices["0"].method


def test_a_rule_is_asked_again():
    assert method(layer(), (8, 8)) == "winograd2"
    assert method(layer(), (64, 64)) == "winograd4"
    assert method(layer(), (3, 100)) == "direct"


def test_a_measured_choice_stays_unless_its_tiles_would_be_empty():
    assert method(layer(), (64, 64), measured="winograd2") == "winograd2"
    assert method(layer(), (64, 64), measured="torch") == "torch"
    assert method(layer(), (9, 64), measured="winograd4") == "winograd2"
    assert method(layer(), (4, 64), measured="winograd2") == "direct"


def test_filters_side_by_side_are_for_maps_that_one_vector_holds():
    assert method(layer(), (4, 4), measured="rows") == "rows"
    assert method(layer(), (5, 4), measured="rows") == "direct"
    graph = capture(nn.Sequential(nn.Conv2d(3, 8, 3, stride=2)).eval())
    for side, offered in ((9, True), (11, False)):  # after it 4 x 4 and 5 x 5
        sizes = shapes(graph, [torch.randn(1, 3, side, side)])
        (node,) = graph
        planner = Planner(graph, Weights(), 1)
        assert ("rows" in planner.methods(node, sizes, ONE[0])) == offered
        assert "rows" not in planner.methods(node, sizes, MANY[0])


def test_maps_that_are_too_thin_for_the_lanes_go_to_torch_unless_zeros_make_up_for_it():
    for size in ((2, 1000), (1000, 1)):
        assert method(layer(), size) == "torch"
        assert method(layer(), size, measured="winograd2") == "torch"
        assert method(layer(kept=0.1), size) == "direct"


def test_what_was_measured_for_a_size_holds_for_it(monkeypatch):
    def never(*given):
        raise AssertionError("the rule was asked")

    model, images = layer(), torch.randn(1, 3, 8, 8)
    runtime = compile(model, images, tune=False)
    monkeypatch.setattr(Planner, "fitted", never)
    with torch.no_grad():
        torch.testing.assert_close(runtime(images), model(images), rtol=1e-4, atol=1e-5)
        for batch in (5, 18):
            assert runtime(torch.randn(batch, 3, 8, 8)).shape == (batch, 8, 8, 8)
    with pytest.raises(AssertionError, match="the rule was asked"):
        runtime(torch.randn(1, 3, 9, 8))


# ---- many sizes in turn


def counted(monkeypatch, owner, name):
    """How often a function was called, as a list that grows."""
    calls, plain = [], getattr(owner, name)
    monkeypatch.setattr(owner, name, lambda *a, **k: (calls.append(name), plain(*a, **k))[1])
    return calls


def images_of(sizes):
    return [torch.randn(1, 3, size, 8) for size in sizes]


def test_sizes_in_turn_run_neither_torch_nor_are_they_planned_anew(monkeypatch):
    model = layer()
    runtime = compile(model, torch.randn(1, 3, 8, 8), tune=False)
    built = counted(monkeypatch, Planner, "schedule")
    ran = counted(monkeypatch, reference, "run_node")
    many = images_of(range(9, 49))
    for _ in range(3):
        for images in many:
            with torch.no_grad():
                torch.testing.assert_close(runtime(images), model(images), rtol=1e-4, atol=1e-5)
    assert (len(built), len(ran)) == (40, 0)


def test_ever_new_sizes_are_forgotten_again_the_least_used_first(monkeypatch):
    monkeypatch.setattr(planned, "SIZES", 4)
    monkeypatch.setattr(planned, "FEW_SIZES", 2)
    runtime = compile(layer(), torch.randn(1, 3, 8, 8), tune=False)
    built = counted(monkeypatch, Planner, "schedule")
    one, *others = images_of(range(9, 19))
    for other in others:
        runtime(one)
        runtime(other)
    assert len(built) == 1 + len(others)  # the one that is used again and again stays
    assert len(runtime._planned._schedules) == 4 >= len(runtime._ready)
    sizes = counted(monkeypatch, planned, "extents")
    runtime(others[0])
    assert (len(built), len(sizes)) == (2 + len(others), 0)  # its shapes are still known


def test_two_programs_stay_if_they_work_in_much_memory(monkeypatch):
    monkeypatch.setattr(planned, "BYTES", 0)
    runtime = compile(layer(), torch.randn(1, 3, 8, 8), tune=False)
    many, held, build = images_of(range(9, 19)), [], Planner.schedule

    def watched(*given):
        held.append(len(runtime._planned._schedules))
        return build(*given)

    monkeypatch.setattr(Planner, "schedule", watched)
    for images in many:
        runtime(images)
        assert len(runtime._planned._schedules) == 2
    assert set(held) == {1}  # a new one finds room made for it
    built = counted(monkeypatch, Planner, "schedule")
    for images in many[-2:] * 3:
        runtime(images)
    assert not built  # images that come in turn, upright and across, are not planned anew
    monkeypatch.setattr(planned, "BYTES", 1 << 30)
    for images in images_of(range(19, 29)):
        runtime(images)
    assert len(runtime._planned._schedules) == 12


def taken(runtime):
    """The memory that a runtime's programs work in, by size."""
    return [schedule.bytes for schedule in runtime._planned._schedules._values.values()]


def test_programs_take_no_more_memory_than_they_may(monkeypatch):
    runtime = compile(layer(), torch.randn(1, 3, 8, 8), tune=False)
    many = images_of(range(100, 112))
    runtime(many[0])
    monkeypatch.setattr(planned, "BYTES", 4 * max(taken(runtime)))
    for images in many:
        runtime(images)
        assert sum(taken(runtime)) <= planned.BYTES
    assert len(taken(runtime)) in (3, 4)


@pytest.mark.parametrize("strict", [False, True])
def test_a_program_that_needs_more_for_a_larger_batch_lets_others_go(monkeypatch, strict):
    runtime = compile(layer(), torch.randn(5, 3, 8, 8), tune=False, strict=strict)
    for images in images_of(range(20, 26)):
        runtime(images.expand(2, -1, -1, -1))
    assert len(taken(runtime)) == 7
    monkeypatch.setattr(planned, "BYTES", sum(taken(runtime)))
    oldest = next(iter(runtime._planned._schedules._values.values()))
    forgotten = weakref.ref(oldest.steps[0][1].program)
    del oldest
    runtime(torch.randn(3, 3, 25, 8))
    assert sum(taken(runtime)) <= planned.BYTES
    assert len(taken(runtime)) < 7
    gc.collect()
    assert forgotten() is None  # and with it the places it ran in


def test_programs_with_threads_of_their_own_are_fewer(monkeypatch):
    monkeypatch.setattr(planned, "cores", lambda: 2)
    monkeypatch.setattr(planned, "SIZES", 12)
    monkeypatch.setattr(planned, "FEW_SIZES", 2)
    runtime = compile(layer(), torch.randn(1, 3, 8, 8), threads=2, tune=False)
    for images in images_of(range(9, 19)):
        runtime(images)
    assert len(runtime._planned._schedules) == 3


def test_where_no_rule_holds_torch_runs_once_for_the_shapes(monkeypatch):
    class Own(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv = nn.Conv2d(3, 8, 3, padding=1)

        def forward(self, x):
            return self.conv(x).cumsum(1)

    model = Own().eval()
    runtime = compile(model, torch.randn(1, 3, 8, 8), tune=False)
    whole = counted(monkeypatch, reference, "run")
    for images in images_of([9, 10, 11]) * 3:
        with torch.no_grad():
            torch.testing.assert_close(runtime(images), model(images), rtol=1e-4, atol=1e-4)
    assert len(whole) == 3


def test_maps_whose_floats_the_kernels_cannot_count_go_to_torch():
    model = nn.Sequential(nn.Conv2d(1, 1, 3, stride=2999), nn.ReLU()).eval()
    runtime = compile(model, torch.randn(16, 1, 8, 8), tune=False)
    images = torch.zeros(1).expand(16, 1, 12000, 12000)  # takes no memory
    schedule = runtime._planned.schedule(runtime._planned.plan(16), [images])
    assert schedule.choices["0"].method == "torch"
    assert "12000 x 12000 pixels are too large" in schedule.choices["0"].why
