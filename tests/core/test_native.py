"""The compiled kernel does what torch's operations do."""

import ctypes
import os
import shutil
import subprocess
import sys
import threading

import pytest
import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.autograd import forward_ad
from torch.fx.experimental.proxy_tensor import make_fx
from torch.testing._internal.two_tensor import TwoTensor

from sparsepath import L0, L1, Blocks, columns, elements, kernels, native, outputs, positions

# What GOMP_parallel takes: what each thread does, with what, how many threads and flags.
TEAM = ctypes.CFUNCTYPE(
    None, ctypes.CFUNCTYPE(None, ctypes.c_void_p), ctypes.c_void_p, ctypes.c_uint, ctypes.c_uint
)
LAYERS = [nn.Conv2d(7, 11, 3), nn.Conv2d(5, 6, 5), nn.Conv2d(4, 6, (1, 3)), nn.Linear(33, 17)]


def eager(penalty, V, blocks, step, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(native, "_LIBRARY", None)
        return penalty.prox(V, blocks, step)


def step_between(penalty, V, blocks):
    """A step whose threshold lies in the widest gap of norms, so that rounding decides nothing."""
    norm = blocks.norms(V).flatten().double().sort().values
    gap = int((norm[1:] - norm[:-1]).argmax())
    return penalty.step_at(float(norm[gap] + norm[gap + 1]) / 2)


@pytest.mark.skipif(not native.available(), reason="built without a C compiler")
@pytest.mark.parametrize("layer", LAYERS, ids=str)
@pytest.mark.parametrize("partition", [kernels, outputs, elements], ids=repr)
@pytest.mark.parametrize("penalty", [L0(), L1()], ids=repr)
def test_the_kernel_equals_torchs_operations(layer, partition, penalty, monkeypatch):
    blocks, V = partition(layer), layer.weight.detach()
    step = step_between(penalty, V, blocks)
    called = []
    library = native._LIBRARY
    monkeypatch.setattr(
        native,
        "_LIBRARY",
        type(
            "Spy",
            (),
            {"threshold_blocks": lambda *a: (called.append(a), library.threshold_blocks(*a))},
        ),
    )
    F = penalty.prox(V, blocks, step)
    assert called
    expected = eager(penalty, V, blocks, step, monkeypatch)
    torch.testing.assert_close(F, expected, rtol=1e-5, atol=1e-7)
    assert torch.equal(F == 0, expected == 0)
    assert 0 < int((F == 0).sum()) < F.numel()
    for zeros in (F[F == 0], expected[expected == 0]):
        assert not torch.signbit(zeros).any(), "zeros are +0"
    if penalty == L0():
        assert torch.equal(F[F != 0], V[F != 0])


@pytest.mark.parametrize("kernel", [True, False])
@pytest.mark.parametrize("size", [2, 9, 40])
def test_zero_wins_a_tie(size, kernel, monkeypatch):
    if not kernel:
        monkeypatch.setattr(native, "_LIBRARY", None)
    layer = nn.Linear(size, 1)
    V = torch.zeros(1, size)
    V[0, :2] = torch.tensor([3.0, 4.0])
    penalty = L1()
    assert not penalty.prox(V, outputs(layer), penalty.step_at(5.0)).any()
    assert penalty.prox(V, outputs(layer), penalty.step_at(4.999)).any()


def test_long_blocks_lose_no_small_weights():
    # In float32 a square of one beside 2^24 is lost.
    V = torch.ones(1, 100_000)
    V[0, ::16] = 4096.0
    norm = float(V.double().norm())
    layer = nn.Linear(100_000, 1)
    assert L0().prox(V, outputs(layer), L0().step_at(norm * (1 - 1e-6))).any()
    assert not L0().prox(V, outputs(layer), L0().step_at(norm * (1 + 1e-6))).any()


@pytest.mark.parametrize(
    ("count", "size", "threads", "parts"),
    [
        (1000, 100, 5, 20),
        (3, 1000, 5, 3),
        (10, 1, 5, 1),
        (10, 20, 5, 4),
        (0, 9, 5, 1),
        (1000, 100, 1, 1),
    ],
    ids=["threads", "few", "small", "numbers", "nothing", "alone"],
)
def test_work_is_parted_as_far_as_it_is_worth_it(monkeypatch, count, size, threads, parts):
    monkeypatch.setattr(native, "GRAIN", 50)
    monkeypatch.setattr(torch, "get_num_threads", lambda: threads)
    assert native._parts(count, size) == parts


def foreign(name, V):
    """The same numbers as tensors that a kernel must not touch by their address."""
    if name == "subclass":
        return TwoTensor(V, V.clone())
    if name == "zero":
        return torch._efficientzerotensor(V.shape)
    if name == "negative":
        return torch.complex(V, V).conj().imag
    return V.to("meta")


@pytest.mark.skipif(not native.available(), reason="built without a C compiler")
@pytest.mark.parametrize("name", ["subclass", "negative", "meta", "zero"])
def test_a_kernel_keeps_off_what_has_no_numbers_of_its_own(name):
    layer = nn.Conv2d(4, 6, 3)
    V, blocks = layer.weight.detach(), kernels(layer)
    strange = foreign(name, V).contiguous() if name != "negative" else foreign(name, V)
    F = torch.empty_like(V)
    assert native.takes(V[0, 0])
    assert not native.takes(strange[0, 0])
    for one, other in ((strange, F), (F, strange)):
        assert not native.threshold_blocks(one, other, blocks, threshold=0.1, soft=True)


@pytest.mark.filterwarnings("ignore:There is a performance drop", "ignore::DeprecationWarning")
@pytest.mark.skipif(not native.available(), reason="built without a C compiler")
def test_a_kernel_keeps_off_under_tracers_and_transforms():
    layer = nn.Conv2d(4, 6, 3)
    V, blocks = layer.weight.detach(), kernels(layer)
    prox = lambda V: L1().prox(V, blocks, 0.2)
    expected = prox(V)
    traced = make_fx(prox)(torch.randn_like(V))
    torch.testing.assert_close(traced(V), expected)
    many = torch.vmap(prox)(torch.stack([V, 2 * V]))
    torch.testing.assert_close(many, torch.stack([expected, prox(2 * V)]))
    with FakeTensorMode() as mode:
        assert prox(mode.from_tensor(V)).shape == V.shape
    with forward_ad.dual_level():
        moved = prox(forward_ad.make_dual(V, torch.ones_like(V)))
        assert forward_ad.unpack_dual(moved).tangent is not None


def test_strided_tensors_are_torchs():
    layer = nn.Linear(16, 8)
    V, blocks = layer.weight.detach(), outputs(layer)
    other = torch.empty(8, 32)[:, ::2]
    assert not native.threshold_blocks(V, other, blocks, threshold=0.1, soft=True)
    assert not native.takes(other)
    torch.testing.assert_close(L1().prox(V, blocks, 0.3, out=other), L1().prox(V, blocks, 0.3))


@pytest.fixture
def five_threads():
    before = torch.get_num_threads()
    torch.set_num_threads(5)
    yield
    torch.set_num_threads(before)


@pytest.mark.usefixtures("five_threads")
@pytest.mark.parametrize("grain", [1, 50, 700])
def test_many_blocks_are_shared_among_threads(monkeypatch, grain):
    monkeypatch.setattr(native, "GRAIN", grain)
    layer = nn.Conv2d(13, 17, 3)
    blocks, V = kernels(layer), layer.weight.detach()
    step = step_between(L1(), V, blocks)
    expected = eager(L1(), V, blocks, step, monkeypatch)
    for _ in range(20):
        F = L1().prox(V, blocks, step, out=torch.full_like(V, torch.nan))
        torch.testing.assert_close(F, expected, rtol=1e-5, atol=1e-7)


@pytest.mark.skipif(not native.available(), reason="built without a C compiler")
@pytest.mark.usefixtures("five_threads")
def test_a_team_has_as_many_threads_as_torch():
    seen = set()
    run = TEAM._argtypes_[0](lambda _: seen.add(threading.get_native_id()))
    ctypes.cast(native._teams_of_torch(), TEAM)(run, None, 0, 0)
    assert len(seen) == 5


@pytest.mark.skipif(not native.available(), reason="built without a C compiler")
@pytest.mark.usefixtures("five_threads")
def test_a_team_takes_all_parts_and_is_as_large_as_it_likes(monkeypatch):
    monkeypatch.setattr(native, "GRAIN", 1)
    asked = []

    @TEAM
    def recorded(run, given, threads, flags):
        asked.append((threads, flags))
        run(given)

    layer = nn.Conv2d(5, 7, 3)
    V = layer.weight.detach()
    F = torch.full_like(V, torch.nan)
    native._LIBRARY.set_team(ctypes.cast(recorded, ctypes.c_void_p))
    try:
        assert native.threshold_blocks(V, F, kernels(layer), threshold=0.0, soft=False)
    finally:
        native._LIBRARY.set_team(ctypes.cast(native._teams_of_torch(), ctypes.c_void_p))
    assert asked == [(0, 0)]
    assert torch.equal(F, V)


OTHER_OPENMP = """
static int calls;
int calls_so_far(void) { return calls; }
void GOMP_parallel(void (*run)(void *), void *given, unsigned threads, unsigned flags)
{
    calls++;
    run(given);
}
"""
ASKING = """
import ctypes, torch
from torch import nn
from sparsepath import kernels, native
torch.set_num_threads(3)
calls = ctypes.CDLL(None).calls_so_far
torch.relu(torch.zeros(1 << 22))
assert calls(), "torch's own work is done by it"
layer = nn.Conv2d(128, 128, 3)
V, F, blocks, before = layer.weight.detach(), layer.weight.clone(), kernels(layer), calls()
assert native.threshold_blocks(V, F.detach(), blocks, threshold=0.1, soft=True)
assert calls() == before + 1
"""


@pytest.mark.skipif(not native.available(), reason="built without a C compiler")
@pytest.mark.skipif(sys.platform != "linux", reason="preloads as Linux does")
@pytest.mark.skipif(shutil.which("cc") is None, reason="there is no C compiler")
def test_a_library_that_is_loaded_before_serves_torch_and_the_kernels(tmp_path):
    (tmp_path / "other.c").write_text(OTHER_OPENMP)
    library = tmp_path / "other.so"
    subprocess.run(["cc", "-shared", "-fPIC", "-o", library, tmp_path / "other.c"], check=True)
    given = {**os.environ, "LD_PRELOAD": str(library)}
    subprocess.run([sys.executable, "-c", ASKING], env=given, check=True)


@pytest.mark.skipif(not native.available(), reason="built without a C compiler")
@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
def test_a_forked_process_works_alone():
    subprocess.run([sys.executable, "-c", FORKING], timeout=60, check=True)


FORKING = """
import os, torch, warnings
from torch import nn
from sparsepath import kernels, native
warnings.simplefilter("ignore")
torch.set_num_threads(3)
native.GRAIN = 1
layer = nn.Conv2d(16, 16, 3)  # small: torch compares it by one thread
V, blocks = layer.weight.detach(), kernels(layer)

def work():
    F = torch.empty_like(V)
    assert native.threshold_blocks(V, F, blocks, threshold=0.0, soft=False)
    return torch.equal(F, V)

assert work()
child = os.fork()
if child == 0:
    os._exit(0 if work() else 1)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
"""


def test_the_kernel_works_in_place():
    layer = nn.Conv2d(4, 4, 3)
    blocks, V = kernels(layer), layer.weight.detach().clone()
    step = step_between(L1(), V, blocks)
    expected = L1().prox(V, blocks, step)
    assert L1().prox(V, blocks, step, out=V) is V
    assert torch.equal(V, expected)


@pytest.mark.parametrize("case", ["float64", "channels_last", "positions", "columns"])
def test_what_the_kernel_cannot_take_goes_to_torch(case):
    layer = nn.Conv2d(4, 6, 3)
    V = layer.weight.detach()
    blocks: Blocks | None = {"positions": positions, "columns": columns}.get(case, kernels)(layer)
    if case == "float64":
        V = V.double()
    if case == "channels_last":
        V = V.contiguous(memory_format=torch.channels_last)
    assert not native.threshold_blocks(V, torch.empty_like(V), blocks, threshold=0.1, soft=True)
    step = step_between(L1(), V, blocks)
    norm, F_norm = blocks.norms(V), blocks.norms(L1().prox(V, blocks, step))
    torch.testing.assert_close(F_norm, (norm - step).clamp(min=0), rtol=1e-4, atol=1e-6)


def test_without_the_library_nothing_is_claimed(monkeypatch):
    monkeypatch.setattr(native.ctypes, "CDLL", lambda path: (_ for _ in ()).throw(OSError("no")))
    assert native._load() is None
    # Nor by a library of older sources, which lacks a kernel.
    monkeypatch.setattr(native.ctypes, "CDLL", lambda path: object())
    assert native._load() is None
    monkeypatch.setattr(native, "_LIBRARY", None)
    assert not native.available()


@pytest.mark.skipif(not native.available(), reason="built without a C compiler")
def test_without_the_threads_of_torch_nothing_is_claimed(monkeypatch):
    real = native.ctypes.CDLL
    foreign = lambda path: object() if path in (None, torch._C.__file__) else real(path)
    monkeypatch.setattr(native.ctypes, "CDLL", foreign)
    assert native._load() is None
