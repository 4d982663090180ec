"""The compiled kernel does what torch's operations do."""

import sys
import threading
from pathlib import Path

import pytest
import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.autograd import forward_ad
from torch.fx.experimental.proxy_tensor import make_fx
from torch.testing._internal.two_tensor import TwoTensor

from sparsepath import L0, L1, Blocks, columns, elements, kernels, native, outputs, positions

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
    if name == "negative":
        return torch.complex(V, V).conj().imag
    return V.to("meta")


@pytest.mark.skipif(not native.available(), reason="built without a C compiler")
@pytest.mark.parametrize("name", ["subclass", "negative", "meta"])
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
@pytest.mark.skipif(sys.platform != "linux", reason="counts threads as Linux tells them")
@pytest.mark.usefixtures("five_threads")
def test_the_threads_are_torchs_own(monkeypatch):
    monkeypatch.setattr(native, "GRAIN", 1)
    seen = set()

    def living():
        return {int(path.name) for path in Path("/proc/self/task").iterdir()}

    layer = nn.Conv2d(256, 256, 3)
    blocks, V = kernels(layer), layer.weight.detach()
    torch.relu(torch.zeros(1 << 22))  # torch has all of its threads from here on
    before, F, going = living(), torch.empty_like(V), True

    def watch():
        while going:
            seen.update(living())

    watcher = threading.Thread(target=watch)
    watcher.start()
    for _ in range(50):
        assert native.threshold_blocks(V, F, blocks, threshold=0.1, soft=True)
    going = False
    watcher.join()
    assert len(before) >= 5
    assert seen - before <= {watcher.native_id}


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
    foreign = lambda path: object() if path == torch._C.__file__ else real(path)
    monkeypatch.setattr(native.ctypes, "CDLL", foreign)
    assert native._load() is None
