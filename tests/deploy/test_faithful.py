"""Compiling leaves the model as it was, and what a trace cannot keep runs in torch and says why."""

import copy
import random
import threading
from collections import OrderedDict, namedtuple
from dataclasses import dataclass
from typing import Any

import numpy
import pytest
import torch
from torch import nn
from torch.nn.utils import prune

from sparsepath.deploy.capture.capture import capture
from sparsepath.deploy.running import kernels
from sparsepath.deploy.running.runtime import compile

from .test_capture import Model, conv, unknown

native = pytest.mark.skipif(not kernels.available(), reason="the kernels are not built")
X = torch.randn(2, 4, 8, 6, generator=torch.Generator().manual_seed(0))


@pytest.fixture(autouse=True)
def own_cache(monkeypatch, tmp_path):
    monkeypatch.setenv("SPARSEPATH_CACHE", str(tmp_path / "cache"))


def model_of(function, **state):
    """A model with a convolution `a`, plain attributes and, from tensors, buffers."""
    model = Model(function, a=conv())
    for name, x in state.items():
        model.register_buffer(name, x) if torch.is_tensor(x) else setattr(model, name, x)
    return model.eval()


def compiled(model, *, tune=False, inputs=X, **options):
    return compile(model, inputs, tune=tune, **options)


def notes(runtime):
    return "\n".join(runtime.report().notes)


# ---- state


def counts(self, x):
    self.n += 1
    return self.a(x) * self.n


def remembers(self, x):
    self.memory = self.memory * 0.5 + self.a(x)
    return self.memory


def remembers_in_place(self, x):
    self.memory.mul_(0.5).add_(1)
    return self.a(x) * self.memory


def builds_late(self, x):
    y = self.a(x)
    if self.grid is None:
        self.grid = torch.ones_like(y) * y.mean()
    return y + self.grid


def collects(self, x):
    y = self.a(x)
    self.features.append(y)
    return y * len(self.features)


def writes_by_key(self, x):
    y = self.a(x)
    self.table["deep"]["last"] = y
    return y * len(self.table["deep"])


def swaps_a_layer(self, x):
    self.a, self.b = self.b, self.a
    return self.a(x)


class Counter:
    def __init__(self):
        self.n = 0


def counts_elsewhere(self, x):
    self.counter.n += 1
    return self.a(x) * self.counter.n


STATEFUL = {
    "a number": (lambda: model_of(counts, n=0), "n"),
    "a buffer set": (lambda: model_of(remembers, memory=torch.zeros(1)), "memory"),
    "a buffer changed": (lambda: model_of(remembers_in_place, memory=torch.zeros(1)), "memory"),
    "made at the first run": (lambda: model_of(builds_late, grid=None), "grid"),
    "a list": (lambda: model_of(collects, features=[]), "features.0"),
    "a dict": (lambda: model_of(writes_by_key, table={"deep": {}}), "table.deep.last"),
    "a layer": (lambda: model_of(swaps_a_layer, b=conv()), "a"),
    "an object": (lambda: model_of(counts_elsewhere, counter=Counter()), "counter.n"),
}


def contents(model):
    """All that a model holds, as text."""
    return repr({path: vars(x) for path, x in model.named_modules()}) + repr(
        getattr(getattr(model, "counter", None), "n", None)
    )


@pytest.mark.parametrize("tune", [False, True])
@pytest.mark.parametrize("name", STATEFUL)
def test_state_stays_that_of_the_user_and_starts_the_same_in_the_runtime(name, tune):
    model, place = STATEFUL[name][0](), STATEFUL[name][1]
    before = contents(model)
    runtime = compiled(model, tune=tune)
    assert contents(model) == before
    assert f"changes its own {place!r} as it runs" in notes(runtime)
    twin = copy.deepcopy(model)
    for size in (8, 8, 5, 5):  # a new size is tried out before it runs
        if size == 5 and name == "a buffer set":
            break  # the memory has the first size
        if size == 5 and name == "made at the first run":
            break
        x = torch.randn(2, 4, size, 6)
        with torch.no_grad():
            torch.testing.assert_close(runtime(x), twin(x))
    assert contents(model) == before


def test_state_is_seen_in_inference_mode_too():
    with torch.inference_mode():
        model = model_of(remembers_in_place, memory=torch.zeros(1))
        runtime = compiled(model)
        assert "changes its own 'memory' as it runs" in notes(runtime)
        assert model.memory == 0
        for _ in range(2):
            torch.testing.assert_close(runtime(X), model(X))


def test_strict_does_not_count_a_run_twice():
    def overflows(self, x):
        self.n += 1
        return self.a(x) * self.n, x.abs() / 0

    model = model_of(overflows, n=0)
    runtime = compiled(model, strict=True)
    with torch.no_grad():
        for _ in range(3):
            torch.testing.assert_close(runtime(X), model(X), equal_nan=True)


def test_a_module_that_stays_whole_starts_in_the_state_it_had():
    class Paced(nn.Module):
        """Untraceable, with a state that only its runs change."""

        def __init__(self):
            super().__init__()
            self.register_buffer("count", torch.zeros(()))

        def forward(self, x):
            if x.sum() > 1e9:
                return x
            self.count.add_(1)
            return x * self.count

    model = nn.Sequential(conv(), Paced()).eval()
    for tune in (False, True):
        twin, runtime = copy.deepcopy(model), compiled(model, tune=tune)
        assert model[1].count == 0
        for size in (8, 8, 9):
            x = torch.randn(2, 4, size, 6)
            with torch.no_grad():
                torch.testing.assert_close(runtime(x), twin(x), rtol=1e-4, atol=1e-5)


def test_a_value_that_is_set_again_is_no_change():
    def sets(self, x):
        self.last = float("3.5")  # another object, but the same number
        self.ready = True
        return self.a(x)

    model = model_of(sets, last=3.5, ready=True)
    assert not unknown(capture(model))


def test_a_model_that_cannot_be_copied_whole_is_left_alone_too():
    def counts_under_lock(self, x):
        with self.lock:
            self.n += 1
        return self.a(x) * self.n

    model = model_of(counts_under_lock, n=0, lock=threading.Lock())
    runtime = compiled(model)
    assert model.n == 0
    with torch.no_grad():
        before = [model(X) for _ in range(2)]
    torch.testing.assert_close([runtime(X), runtime(X)], before)
    still = model_of(lambda self, x: self.a(x), lock=threading.Lock())
    assert not unknown(capture(still))


class Single(nn.Module):
    """Refuses to be copied."""

    def __init__(self):
        super().__init__()
        self.a, self.n = conv(), 0

    def __deepcopy__(self, memo):
        raise RuntimeError("there is only one")

    def forward(self, x):
        return self.a(x) + torch.ones(4, 1, 1)


def test_a_model_that_refuses_to_be_copied_is_left_alone_too():
    for model in (Single().eval(), nn.Sequential(Single()).eval()):
        before = contents(model)
        runtime = compiled(model)
        assert contents(model) == before
        assert not runtime.report().notes
        with torch.no_grad():
            torch.testing.assert_close(runtime(X), model(X), rtol=1e-4, atol=1e-5)


def test_a_model_of_which_nothing_can_be_copied_runs_itself(monkeypatch):
    monkeypatch.setattr("sparsepath.deploy.graph.copies._copied_in_part", lambda *given: 1 / 0)
    model = Single().eval()
    before = contents(model)
    runtime = compiled(model)
    assert contents(model) == before
    assert notes(runtime) == "'model' runs in torch: it cannot be copied."
    with torch.no_grad():
        torch.testing.assert_close(runtime(X), model(X))


class Closing(nn.Module):
    """Keeps a function about itself."""

    def __init__(self):
        super().__init__()
        self.a = conv()
        self.way = lambda x, *, by=2.0: self.a(x) * by
        self.unready = lambda: never
        if not self.way:
            never = 1

    def forward(self, x):
        return self.way(x)


def test_a_function_about_the_model_is_about_the_copy():
    model = Closing().eval()
    assert not unknown(capture(model))
    drawing = nn.Sequential(Closing(), Model(lambda self, x: x + torch.randn(1) * 0)).eval()
    drawing.register_forward_hook(lambda module, inputs, output: output)  # so that it stays whole
    for kept in (model, drawing):
        runtime = compiled(kept)
        with torch.no_grad():
            wanted = kept(X)
            for parameter in kept.parameters():
                parameter.add_(1)
        torch.testing.assert_close(runtime(X), wanted, rtol=1e-4, atol=1e-5)


def test_a_recurrent_layer_stays_whole_and_alone():
    def reads(self, x):
        return self.lstm(self.a(x).mean(2))[0]

    model = Model(reads, a=conv(), lstm=nn.LSTM(6, 5)).eval()
    weights = [id(x) for x in model.lstm._flat_weights]
    graph = capture(model)
    assert "lstm" in unknown(graph)
    assert "a" not in unknown(graph)
    assert [id(x) for x in model.lstm._flat_weights] == weights


# ---- random numbers

DRAWN = {
    "randn": lambda self, x: self.a(x) + torch.randn(1),
    "uniform": lambda self, x: self.a(x) + torch.empty(1).uniform_(),
    "bernoulli": lambda self, x: self.a(x) * torch.bernoulli(torch.full((4, 8, 6), 0.5)),
    "normal": lambda self, x: self.a(x) + torch.normal(0.0, 1.0, (1,)),
    "of a weight": lambda self, x: self.a(x) + torch.rand_like(self.a.bias).sum(),
    "own generator": lambda self, x: self.a(x) + torch.rand(1, generator=torch.Generator()).sum()
    + torch.rand(1),
    "python": lambda self, x: self.a(x) + random.random(),
    "numpy": lambda self, x: self.a(x) + float(numpy.random.rand()),
    "like the input": lambda self, x: self.a(x) + torch.rand_like(x),
}  # fmt: skip


@pytest.mark.parametrize("name", DRAWN)
def test_random_numbers_are_drawn_at_every_run(name):
    runtime = compiled(model_of(DRAWN[name]))
    assert runtime.report().notes
    assert not torch.allclose(runtime(X), runtime(X), atol=1e-7)


def test_only_the_module_that_draws_runs_in_torch():
    model = nn.Sequential(conv(), Model(DRAWN["randn"], a=conv()), conv()).eval()
    graph = capture(model)
    assert [node.op for node in graph] == ["conv", "torch", "conv"]
    assert unknown(graph) == {"1": "it draws random numbers"}


# ---- writing into tensors made in forward


def by_part(self, x):
    y = self.a(x)
    out = torch.zeros(2, 8, 8, 6)
    out[:, 4:] = y[:, :4]
    return out


def by_sum(self, x):
    out = torch.zeros(2, 4, 8, 6)
    same = out
    out += self.a(x)
    return same


def by_copy(self, x):
    out = torch.zeros(2, 4, 8, 6)
    out.copy_(self.a(x))
    return out


def by_data(self, x):
    y = self.a(x)
    y.data = torch.ones(1)
    return y


def by_and(self, x):
    out = torch.ones(2, 4, 8, 6, dtype=torch.bool)
    same = out
    out &= self.a(x) > 0
    return same.float()


def by_list(self, x):
    y = self.a(x)
    torch._foreach_add_([y], 1.0)
    return y


@pytest.mark.parametrize("function", [by_part, by_sum, by_copy, by_data, by_list, by_and])
def test_what_is_written_into_a_tensor_is_there(function):
    model = model_of(function)
    runtime = compiled(model)
    assert runtime.report().notes
    for _ in range(2):
        x = torch.randn_like(X)
        with torch.no_grad():
            torch.testing.assert_close(runtime(x), model(x))


# ---- hooks


def test_hooks_on_the_model_itself_run():
    for register in ("register_forward_hook", "register_forward_pre_hook"):
        model = nn.Sequential(conv()).eval()
        before = register.endswith("pre_hook")
        getattr(model, register)(
            (lambda module, inputs: (inputs[0] + 1,))
            if before
            else (lambda module, inputs, output: output + 1)
        )
        runtime = compiled(model)
        assert notes(runtime) == "'model' runs in torch: it has forward hooks."
        with torch.no_grad():
            torch.testing.assert_close(runtime(X), model(X))


def test_hooks_of_all_modules_run():
    model = nn.Sequential(conv()).eval()
    handle = nn.modules.module.register_module_forward_hook(lambda module, inputs, y: y + 1)
    try:
        runtime = compiled(model)
        with torch.no_grad():
            torch.testing.assert_close(runtime(X), model(X))
    finally:
        handle.remove()


# ---- pruned by torch


@native
def test_what_torch_pruned_goes_to_the_kernels_with_its_zeros():
    model = nn.Sequential(conv(4, 16), nn.ReLU(), conv(16, 8), nn.Flatten(), nn.Linear(384, 5))
    prune.ln_structured(model[0], "weight", 0.5, n=2, dim=0)
    prune.l1_unstructured(model[2], "weight", 0.25)
    prune.random_unstructured(model[2], "weight", 0.25)  # twice: a container of methods
    prune.l1_unstructured(model[4], "bias", 0.5)
    model.eval()
    before = contents(model)
    runtime = compiled(model)
    report = runtime.report()
    assert contents(model) == before
    assert not report.notes
    assert report.native_share == 1
    assert report.rows[0].zero == 0.5
    with torch.no_grad():
        torch.testing.assert_close(runtime(X), model(X), rtol=1e-4, atol=1e-5)
    assert prune.is_pruned(model)


@native
def test_a_pruned_layer_alone_and_an_old_norm_go_to_the_kernels():
    alone = conv()
    prune.l1_unstructured(alone, "weight", 0.5)
    with pytest.warns(FutureWarning):
        normed = nn.utils.weight_norm(conv())
    for model in (alone.eval(), normed.eval()):
        with torch.no_grad():
            for parameter in model.parameters():  # the weight in use is stale until the next run
                parameter.mul_(2)
        runtime = compiled(model)
        assert not runtime.report().notes
        with torch.no_grad():
            torch.testing.assert_close(runtime(X), model(X), rtol=1e-4, atol=1e-5)


# ---- outputs

Pair = namedtuple("Pair", ("first", "second"))


@dataclass
class Record:
    image: Any
    number: int = 3


class Odd(dict):
    """A user's own kind of dict."""


OUTPUTS = {
    "dict": lambda self, x: {"y": self.a(x), "inner": {"list": [self.a(x), 1]}},
    "list": lambda self, x: [self.a(x), [x]],
    "ordered": lambda self, x: OrderedDict(y=self.a(x)),
    "named tuple": lambda self, x: Pair(self.a(x), {"x": x}),
    "record": lambda self, x: Record(self.a(x)),
    "own dict": lambda self, x: Odd(y=self.a(x)),
}


def kinds(structure):
    """The types in a structure."""
    if isinstance(structure, dict):
        return type(structure), {key: kinds(x) for key, x in structure.items()}
    if isinstance(structure, (tuple, list)):
        return type(structure), [kinds(x) for x in structure]
    if isinstance(structure, Record):
        return Record, kinds(structure.image), kinds(structure.number)
    return type(structure)


@pytest.mark.parametrize("tune", [False, True])
@pytest.mark.parametrize("name", OUTPUTS)
def test_outputs_are_of_the_kind_that_the_model_gives(name, tune):
    model = model_of(OUTPUTS[name])
    given = compiled(model, tune=tune)(X)
    with torch.no_grad():
        wanted = model(X)
    assert kinds(given) == kinds(wanted)
    if isinstance(wanted, Record):
        given, wanted = given.image, wanted.image
    torch.testing.assert_close(given, wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("tune", [False, True])
def test_a_constant_that_is_given_belongs_to_the_caller(tune):
    def gives(self, x):
        return self.a(x), torch.zeros(3), self.a.bias

    model = model_of(gives)
    bias = model.a.bias.detach().clone()
    runtime = compiled(model, tune=tune)
    for _ in range(2):
        y, zeros, weight = runtime(X)
        assert not zeros.any()
        assert torch.equal(weight, bias)
        for tensor in (y, zeros, weight):
            tensor.add_(100)
    with torch.no_grad():
        torch.testing.assert_close(runtime(X)[0], model(X)[0], rtol=1e-4, atol=1e-5)


# ---- compiled code


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_models_that_torch_jit_made_run():
    plain = nn.Sequential(conv(), nn.ReLU()).eval()
    with torch.no_grad():
        made = [torch.jit.trace(plain, X), torch.jit.script(plain)]
        for model in (*made, nn.Sequential(made[0], conv()).eval()):
            runtime = compiled(model)
            assert "torch.jit has compiled it" in notes(runtime)
            torch.testing.assert_close(runtime(X), model(X), rtol=1e-4, atol=1e-5)
