"""A trace is one thread's own: models that others call meanwhile, or compile, notice nothing."""

import math
import threading

import pytest
import torch
from torch import fx, nn

from sparsepath.deploy.capture.capture import capture
from sparsepath.deploy.graph.reference import run

from .test_capture import Model, conv, unknown

X = torch.randn(2, 4, 8, 6, generator=torch.Generator().manual_seed(0))
PATIENCE = 0.5


def elsewhere(function):
    """What a function gives, or raises, in another thread."""
    given = []

    def work():
        try:
            given.append(function())
        except BaseException as error:
            given.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    return given[0]


def held_modules():
    return nn.Module.__call__, nn.Module.__getattr__, dict(vars(math))


@pytest.mark.parametrize("compiled", [False, True])
def test_a_model_that_another_thread_calls_meanwhile_runs_as_ever(compiled):
    other = nn.Sequential(conv(), nn.ReLU(), nn.BatchNorm2d(4)).eval().requires_grad_(False)
    wanted, seen = other(X), []
    if compiled:
        other = torch.compile(other, backend="eager")
        other(X)

    def calls(self, x):
        seen.append(elsewhere(lambda: other(X)))
        return self.a(x)

    graph = capture(Model(calls, a=conv()).eval())
    assert [node.name for node in graph] == ["a"]
    assert not unknown(graph)
    assert all(torch.equal(y, wanted) for y in seen)
    assert seen


def test_two_traces_at_once_leave_torch_as_it_was():
    before, inside, ended = held_modules(), threading.Event(), threading.Event()

    def first(self, x):
        threads[0].start()
        inside.wait(PATIENCE)  # in vain where one waits for the other
        return self.a(x)

    def second(self, x):
        inside.set()
        ended.wait(PATIENCE)
        return self.a(x)

    models = [Model(function, a=conv()).eval() for function in (first, second)]
    graphs = []
    threads = [threading.Thread(target=lambda: graphs.append(capture(models[1])))]
    graphs.append(capture(models[0]))
    ended.set()
    threads[0].join()
    assert held_modules() == before
    for graph, model in zip(graphs, models, strict=True):
        assert not unknown(graph)
        torch.testing.assert_close(run(graph, X), model.a(X))


def test_torch_is_as_it_was_even_if_another_trace_ends_within():
    before = held_modules()

    def breaks(self, x):
        fx._symbolic_trace.CURRENT_PATCHER = fx._symbolic_trace._Patcher()
        return self.a(x)

    capture(Model(breaks, a=conv()).eval())
    try:
        assert held_modules() == before
    finally:
        fx._symbolic_trace.CURRENT_PATCHER = None
        nn.Module.__call__, nn.Module.__getattr__, functions = before
        vars(math).update(functions)


def test_a_module_that_the_code_makes_on_its_way_is_seen_through():
    graph = capture(Model(lambda self, x: nn.ReLU()(self.a(x)), a=conv()).eval())
    assert [node.op for node in graph] == ["conv", "relu"]
