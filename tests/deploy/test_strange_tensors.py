"""Tensors that are not numbers in memory, and defaults that are not the usual: nothing crashes."""

import subprocess
import sys
import textwrap

import pytest

from sparsepath.deploy.running import kernels

pytestmark = pytest.mark.skipif(not kernels.available(), reason="the kernels are not built")

BEGIN = """
import torch
from torch import nn
from torch._subclasses import FakeTensorMode
from sparsepath.deploy import compile
from sparsepath.errors import BadInput

torch.set_grad_enabled(False)
torch.manual_seed(0)
x = torch.randn(2, 3, 16, 16)
model = nn.Sequential(
    nn.Conv2d(3, 16, 3, padding=1, bias=False), nn.ReLU(), nn.Conv2d(16, 16, 3, padding=1)
).eval()
runtime = compile(model, x, tune=False)

def same(given, images=x):
    expected = model(images.clone())
    assert given.dtype == torch.float32 and given.device.type == "cpu"
    assert (given - expected).abs().max() <= 1e-4 * expected.abs().max()

def refused(call, *words):
    try:
        call()
    except BadInput as error:
        assert all(word in str(error) for word in words), error
    else:
        raise AssertionError("it was taken")
"""

CASES = {
    "half a default": """
        expected = model(x)
        torch.set_default_dtype(torch.bfloat16)
        for given in (runtime(x), runtime(x[:1]), compile(model, x)(x)):
            torch.testing.assert_close(given, expected[:len(given)], rtol=0, atol=1e-4)
    """,
    "twice a default": """
        expected = model(x)
        torch.set_default_dtype(torch.float64)
        for given in (runtime(x), runtime(x[:1]), compile(model, x)(x)):
            torch.testing.assert_close(given, expected[:len(given)], rtol=0, atol=1e-4)
    """,
    "a default device": """
        expected = model(x)
        with torch.device("meta"):
            given = [runtime(x), runtime(x[:1]), compile(model, x)(x)]
        for one in given:
            torch.testing.assert_close(one, expected[:len(one)], rtol=0, atol=1e-4)
    """,
    "zeros without memory": """
        zeros = torch._efficientzerotensor((4, 3, 16, 16))
        for _ in range(2):
            same(runtime(zeros), torch.zeros(4, 3, 16, 16))
        with torch.enable_grad(), torch.autocast("cpu", dtype=torch.bfloat16):
            given = runtime(zeros)
        assert not given.requires_grad
        same(given, torch.zeros(4, 3, 16, 16))
    """,
    "a sign to come": """
        for tuned in (False, True):
            own = compile(model, x, tune=tuned)
            for _ in range(2):
                same(own(torch._neg_view(x)), -x)
    """,
    "a sign to come inside": """
        class Negative(nn.Module):
            def forward(self, x):
                return torch._neg_view(x)

        own = compile(nn.Sequential(Negative(), *model).eval(), x, tune=False)
        assert [row.method for row in own.report().rows if row.op == "conv"] == ["winograd4"] * 2
        same(own(x), -x)
    """,
    "fake": """
        with FakeTensorMode():
            fake = torch.empty(2, 3, 16, 16)
        refused(lambda: runtime(fake), "not a FakeTensor")
        refused(lambda: compile(model, fake), "not a FakeTensor")
    """,
    "a fake world": """
        with FakeTensorMode(allow_non_fake_inputs=True):
            given = runtime(x)
        assert type(given).__name__ == "FakeTensor" and given.shape == (2, 16, 16, 16)
    """,
    "no memory": """
        for room in (0, 100):
            z = x.clone()
            z.untyped_storage().resize_(room)
            refused(lambda: runtime(z), f"not one of {room} bytes of memory for the shape (2, 3, ")
    """,
    "vmap": """
        for call in (
            lambda: torch.vmap(runtime)(x[None]),
            lambda: torch.func.grad(lambda a: runtime(a).sum())(x),
            lambda: torch.func.jvp(runtime, (x,), (x,)),
        ):
            refused(call, "not one inside torch.vmap or a transform of torch.func")
    """,
    "a trace": """
        import warnings
        warnings.simplefilter("ignore")
        for own in (runtime, compile(model, x, tune=False, strict=True)):
            refused(lambda: torch.jit.trace(lambda a: own(a), x), "traced", "the model itself")
            same(own(x))
    """,
    "nested": """
        import warnings
        warnings.simplefilter("ignore")
        refused(lambda: runtime(torch.nested.nested_tensor([x[0], x[1]])), "not a nested one")
    """,
    "a subclass that changes nothing": """
        Own = type("Own", (torch.Tensor,), {})
        same(runtime(x.as_subclass(Own)))
        same(runtime(nn.Parameter(x)))
        same(runtime(x[:1].expand(5, 3, 16, 16)), x[:1].expand(5, 3, 16, 16))
    """,
}


END = """
for name, code in CASES.items():
    print(name, flush=True)
    try:
        exec(code)
    finally:
        torch.set_default_dtype(torch.float32)
"""


def test_nothing_crashes(tmp_path, monkeypatch):
    monkeypatch.setenv("SPARSEPATH_CACHE", str(tmp_path))
    cases = {name: textwrap.dedent(case) for name, case in CASES.items()}
    code = f"{BEGIN}\nCASES = {cases!r}\n{END}"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert run.returncode == 0, run.stdout + run.stderr
    assert run.stdout.splitlines() == list(CASES)
