"""What a runtime gives is what the model gives, even where a trace of it shows something else."""

import itertools
import random
import sys

import numpy
import pytest
import torch
from torch import nn

from sparsepath.deploy.capture.asking import asks
from sparsepath.deploy.capture.capture import capture
from sparsepath.deploy.capture.verified import verified
from sparsepath.deploy.files import artifact
from sparsepath.deploy.running import kernels
from sparsepath.deploy.running.runtime import compile
from sparsepath.errors import BadInput

from .test_capture import Model, conv, unknown

native = pytest.mark.skipif(not kernels.available(), reason="the kernels are not built")
X = torch.randn(2, 4, 8, 6, generator=torch.Generator().manual_seed(0))


def of(function, **more):
    model = Model(function, a=conv()).eval()
    for name, x in more.items():
        setattr(model, name, x)
    return model


def same(model, *, calls=2):
    """The lines of a runtime that gives what the model gives, call by call."""
    runtime = compile(model, X, tune=False)
    for _ in range(calls):
        with torch.no_grad():
            wanted = model(X.clone())
        torch.testing.assert_close(runtime(X.clone()), wanted, rtol=1e-4, atol=1e-5)
    return "\n".join(runtime.report().notes)


# ---- code that asks what its input is


def asks_in_vain(self, x):
    try:
        n = len(x)
    except Exception:
        n = 100
    return self.a(x) * n


def has_tensors(self, x):
    return self.a(x.tensors if hasattr(x, "tensors") else x)


def differentiates(self, x):
    with torch.enable_grad():
        z = x.detach().requires_grad_()
        return torch.autograd.grad(self.a(z).square().sum(), z)[0]


def casts(self, x):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        return self.a(x)


def lists(self, x):
    return self.a(x) if type(x) is torch.Tensor else [self.a(x)]


def swaps_keys(self, x):
    return {"a" if type(x) is torch.Tensor else "b": self.a(x)}


def chooses(self, x):
    return self.a(x) > (0 if type(x) is torch.Tensor else 1)


def tells(self, x):
    return self.a(x), 1 if type(x) is torch.Tensor else 2


def raises_nothing(self, x):
    return self.a(x)[:, : 4 if type(x) is torch.Tensor else 3]


ASKED = [
    (asks_in_vain, "differ by"),
    (has_tensors, "fails: "),
    (differentiates, "fails: "),
    (casts, "autocast"),
    (lists, "gives a list, not a Tensor"),
    (swaps_keys, "gives ['b'], not ['a']"),
    (chooses, "other numbers"),
    (tells, "gives 2, not 1"),
    (raises_nothing, "gives a tensor of shape (2, 3, 8, 6), not (2, 4, 8, 6)"),
]


@pytest.mark.parametrize(("function", "why"), ASKED, ids=lambda x: getattr(x, "__name__", ""))
def test_a_model_that_a_trace_misunderstands_runs_in_torch_and_says_why(function, why):
    notes = same(of(function))
    assert "'model' runs in torch" in notes
    assert why in notes


def matched(self, x):
    match x:
        case torch.Tensor():
            return self.a(x)
    return self.a(x) * 2


@native
@pytest.mark.parametrize(
    "function",
    [
        matched,
        lambda self, x: self.a(x) if x.__class__ is torch.Tensor else self.a(x) * 2,
        lambda self, x: self.a(x) if isinstance(x, int | torch.Tensor) else self.a(x) * 2,
        lambda self, x: self.a(x) if isinstance(x, torch.Tensor) else self.a(x) * 2,
        lambda self, x: self.a(x) if torch.is_tensor(x) else self.a(x) * 2,
        lambda self, x: self.a(x) * 2 if isinstance(x, nn.Parameter) else self.a(x),
        lambda self, x: self.a(x) * 2 if isinstance(x.size(2) // 2, torch.Tensor) else self.a(x),
        lambda self, x: self.a(x) if isinstance(x + 1, torch.Tensor) else self.a(x) * 2,
    ],
)
def test_a_value_to_come_is_a_tensor(function):
    assert same(of(function)) == ""


class Doubled(torch.autograd.Function):
    @staticmethod
    def forward(_, x):
        return x * 2


def doubled(x):
    return x * 2


@pytest.mark.parametrize(
    "function",
    [
        lambda self, x: torch.where(x > 0, self.a(x), 0.0),
        lambda self, x: torch.full((1,), x.mean()) * self.a(x),
        lambda self, x: torch.tensor(x.mean()) * self.a(x),
        lambda self, x: torch.as_tensor(self.a(x)),
        lambda self, x: self.a(x).to(torch.result_type(x, 1.0)),
        lambda self, x: Doubled.apply(self.a(x)),
        lambda self, x: self.scripted(self.a(x)),
        lambda self, x: torch.utils.checkpoint.checkpoint(self.a, x, use_reentrant=True),
    ],
)
@pytest.mark.filterwarnings("ignore")  # of what is old, or better done otherwise
def test_compiled_code_is_not_told_so(function):
    same(of(function, scripted=torch.jit.script(doubled)))  # or all of Python ends here


class Shy:
    """Stands for something that is not there yet."""

    @property
    def __class__(self):
        raise RuntimeError("ask later")


KEPT, SEEN, LAST, SHY = {"first": "known"}, [0], None, Shy()


def keeps_in_a_dict(self, x):
    if "mean" not in KEPT:
        KEPT["mean"] = self.a(x).mean(), 1
    return self.a(x) + KEPT["mean"][0]


def keeps_in_a_list(self, x):
    SEEN.append(self.a(x))
    return SEEN[-1]


def keeps_under_a_name(self, x):
    global LAST
    LAST = self.a(x)
    return LAST


@pytest.mark.parametrize("function", [keeps_in_a_dict, keeps_in_a_list, keeps_under_a_name])
def test_what_code_keeps_beside_its_class_is_never_a_value_to_come(function):
    class Beside(Model):
        pass

    model = Beside(function, a=conv()).eval()
    capture(model)
    assert (KEPT, SEEN, LAST) == ({"first": "known"}, [0], None)
    try:
        assert "beside its class" in same(model)
        assert all(isinstance(x, torch.Tensor) for x in (*SEEN[1:], KEPT.get("mean", (X,))[0]))
    finally:
        KEPT.pop("mean", None)
        del SEEN[1:]
        globals()["LAST"] = None


class Called(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = conv()

    def __call__(self, x):
        return super().__call__(x) * 2

    def forward(self, x):
        return self.a(x)


def test_a_model_with_a_call_of_its_own_runs_in_torch():
    assert "__call__ of its own" in same(Called().eval())


def test_a_file_keeps_no_function_that_is_not_the_models(tmp_path):
    for model in (Called().eval(), of(casts)):
        with pytest.raises(BadInput):
            artifact.save(model, tmp_path / "model")
    assert not list(tmp_path.iterdir())


def test_what_differs_by_rounding_alone_goes_to_the_kernels():
    model = nn.Sequential(conv(), nn.BatchNorm2d(4), nn.ReLU(), conv()).eval()
    model = model.to(memory_format=torch.channels_last)
    assert not unknown(verified(model, (X,)))


def test_nan_and_infinity_are_what_they_are():
    assert not unknown(verified(of(lambda self, x: self.a(x) / 0), (X,)))
    assert not unknown(verified(of(lambda self, x: self.a(x) * float("nan")), (X,)))


def test_random_numbers_are_no_difference():
    class Noise(nn.Module):
        def forward(self, x):
            return x + torch.randn_like(x)

    graph = verified(nn.Sequential(conv(), Noise()).eval(), (X,))
    assert [node.op for node in graph] == ["conv", "torch", "add"]


def test_an_example_that_does_not_fit_is_refused_in_a_sentence():
    with pytest.raises(BadInput, match="cannot take inputs of shape"):
        compile(of(lambda self, x: self.a(x)), X[:, :3], tune=False)


# ---- what code remembers where few look


def next_number(self, x):
    return self.a(x) * next(self.numbers)


def draws(self, x):
    return self.a(x) * float(self.numbers.random())


def counts_in_an_array(self, x):
    self.numbers += 1
    return self.a(x) * float(self.numbers[0])


HIDDEN = {
    "a counter": (next_number, lambda: itertools.count(1)),
    "an iterator": (next_number, lambda: iter([1, 2, 3, 4])),
    "a generator of Python": (draws, lambda: random.Random(0)),
    "a generator of NumPy": (draws, lambda: numpy.random.default_rng(0)),
    "an old generator of NumPy": (draws, lambda: numpy.random.RandomState(0)),
    "an array": (counts_in_an_array, lambda: numpy.zeros(1)),
}


@pytest.mark.parametrize("name", HIDDEN)
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_what_a_model_remembers_is_remembered(name):
    function, numbers = HIDDEN[name]
    model = of(function, numbers=numbers())
    assert "it changes its own 'numbers' as it runs" in same(model, calls=3)


class Counted(nn.Module):
    n = 0

    def __init__(self):
        super().__init__()
        self.a = conv()

    def forward(self, x):
        type(self).n += 1
        return self.a(x) * type(self).n


def test_what_a_class_remembers_is_remembered():
    model = Counted().eval()
    runtime = compile(model, X, tune=False)
    assert Counted.n == 0
    assert "it changes its own 'n' as it runs" in "\n".join(runtime.report().notes)
    with torch.no_grad():
        for n in (1, 2, 3):
            torch.testing.assert_close(runtime(X), model.a(X) * n)
    assert Counted.n == 3


def test_what_a_class_learns_from_a_trial_it_forgets():
    class Learns(Counted):
        def forward(self, x):
            type(self).known = True
            return self.a(x)

    compile(Learns().eval(), X, tune=False)
    assert not hasattr(Learns, "known")


OUTSIDE = [0]


def test_what_is_remembered_outside_the_model_shows_in_a_second_run():
    def counts(self, x):
        OUTSIDE[0] += 1
        return self.a(x) * OUTSIDE[0]

    model = of(counts)
    assert not unknown(capture(model))
    OUTSIDE[0] = 0
    assert "differ by" in next(iter(unknown(verified(model, (X,))).values()))
    runtime, (before,) = compile(model, X, tune=False), OUTSIDE
    with torch.no_grad():
        torch.testing.assert_close(runtime(X), model.a(X) * (before + 1))


def test_a_second_run_shows_what_the_first_does_not():
    def changes_late(self, x):
        OUTSIDE[0] += 1
        return self.a(x) * (1 if OUTSIDE[0] < 3 else 2)

    OUTSIDE[0] = 0  # one of the trace, one of each run
    assert unknown(verified(of(changes_late), (X,)))


# ---- weights that no kernel reads


@pytest.mark.filterwarnings("ignore:Sparse CSR")
def test_a_sparse_weight_of_torch_runs_there_and_is_our_own():
    model = nn.Sequential(nn.Flatten(), nn.Linear(192, 8)).eval().requires_grad_(False)
    model[1].weight = nn.Parameter(model[1].weight.to_sparse_csr(), requires_grad=False)
    assert "a weight is torch.sparse_csr" in same(model)
    runtime, wanted = compile(model, X, tune=False), model(X)
    model[1].weight.values().zero_()
    torch.testing.assert_close(runtime(X), wanted)


def test_a_trace_that_shows_something_else_is_not_saved(tmp_path):
    with pytest.raises(BadInput, match="what a trace of it recorded gives numbers that differ"):
        artifact.save(of(asks_in_vain), tmp_path / "net", example=X)
    assert not list(tmp_path.iterdir())
    artifact.save(of(lambda self, x: self.a(x) * 2), tmp_path / "net", example=X)


def test_python_is_told_the_same_however_often_it_asks():
    """An interpreter learns what it asks often, and its frames then stand elsewhere."""

    class Told:
        @property
        def __class__(self):
            return float if asks(sys._getframe(1)) else Told

    def questions(x):
        match x:
            case float():
                matched = True
            case _:
                matched = False
        return isinstance(x, float), x.__class__ is float, matched

    assert {questions(Told()) for _ in range(100)} == {(True, True, True)}
