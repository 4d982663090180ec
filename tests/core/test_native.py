"""The compiled kernel does what torch's operations do."""

import pytest
import torch
from torch import nn

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


def test_many_blocks_are_shared_among_threads(monkeypatch):
    monkeypatch.setattr(native, "GRAIN", 50)
    layer = nn.Conv2d(13, 17, 3)
    blocks, V = kernels(layer), layer.weight.detach()
    step = step_between(L1(), V, blocks)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 5)
    torch.testing.assert_close(
        L1().prox(V, blocks, step), eager(L1(), V, blocks, step, monkeypatch), rtol=1e-5, atol=1e-7
    )


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
    monkeypatch.setattr(native, "_LIBRARY", None)
    assert not native.available()
