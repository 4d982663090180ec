"""Dropout by a key: the masks that any dropout should have, and the same ones for the same key."""

import copy

import pytest
import torch
from torch import nn

from sparsepath import native
from sparsepath.lab.dropout import Keyed, keyed, mixed
from sparsepath.lab.engine import Engine
from sparsepath.lab.lane import Lane
from sparsepath.lab.models import DigitNet

COUNT = 1 << 18


def masks(p: float, key: int, number: int = 0) -> torch.Tensor:
    layer = Keyed(p, torch.tensor(key, dtype=torch.int32), number)
    return layer(torch.ones(COUNT)) > 0


def near(share: float, expected: float, count: int = COUNT) -> bool:
    """Within five standard errors of what chance would give."""
    return abs(share - expected) < 5 * (expected * (1 - expected) / count) ** 0.5


@pytest.mark.parametrize("p", [0.05, 0.3, 0.5, 0.9])
def test_as_many_values_die_as_told_and_the_mean_stays(p: float) -> None:
    layer = Keyed(p, torch.tensor(3, dtype=torch.int32), 0)
    values = layer(torch.full((COUNT,), 2.0))
    assert values.unique().tolist() == pytest.approx([0.0, 2 / (1 - p)])
    assert near(float((values == 0).double().mean()), p)


@pytest.mark.parametrize("p", [0.1, 0.5])
@pytest.mark.parametrize(
    ("one", "other"),
    [
        ((0, 0), (1, 0)),
        ((0, 0), (0, 1)),
        ((5, 0), (6, 1)),
        ((6, 0), (5, 1)),
        ((0, 3), (2**31 - 2, 3)),
    ],
    ids=["next step", "next layer", "both", "next layer a step ago", "far"],
)
def test_steps_and_layers_have_masks_of_their_own(
    p: float, one: tuple[int, int], other: tuple[int, int]
) -> None:
    first, second = masks(p, *one), masks(p, *other)
    agree = p * p + (1 - p) ** 2
    for shift in (0, 1, 2, 96, 128):  # nor is one the other, moved
        moved = second.roll(shift)
        assert near(float((first == moved).double().mean()), agree), shift


def test_no_mask_is_another_one_moved() -> None:
    # Two keys whose first round begins nearly alike.
    firsts = mixed(torch.arange(20_000, dtype=torch.int32)).sort()
    gaps = firsts.values.diff()
    nearest = int(gaps.argmin())
    low, high = (int(firsts.indices[nearest + step]) for step in (0, 1))
    gap = int(gaps[nearest])
    assert 0 < gap < 1000
    agreeing = masks(0.5, low)[gap:] == masks(0.5, high)[:-gap]
    assert near(float(agreeing.double().mean()), 0.5, len(agreeing))


@pytest.mark.parametrize("stride", [1, 2, 3, 8, 64, 96, 192, 256, 4096])
def test_neighbours_in_a_mask_know_nothing_of_each_other(stride: int) -> None:
    mask = masks(0.5, 11)
    pairs = COUNT - stride
    assert near(float((mask[:-stride] == mask[stride:]).double().mean()), 0.5, pairs)


def test_maps_stay_in_the_order_that_they_have_in_memory_there_and_back() -> None:
    layer = Keyed(0.5, torch.tensor(7, dtype=torch.int32), 0)
    maps = torch.randn(4, 6, 5, 3).to(memory_format=torch.channels_last).requires_grad_()
    dropped = layer(maps)
    (gradient,) = torch.autograd.grad(dropped.sum(), maps)
    assert dropped.stride() == gradient.stride() == maps.stride()
    # The order in memory moves no mask.
    assert torch.equal(layer(maps.detach().contiguous()), dropped)
    assert torch.equal(gradient != 0, dropped != 0)


@pytest.mark.parametrize("shape", [(), (5,), (4, 6), (4, 6, 5), (2, 3, 4, 5, 6)])
def test_values_of_any_shape_keep_it(shape: tuple[int, ...]) -> None:
    layer = Keyed(0.5, torch.tensor(7, dtype=torch.int32), 0)
    values = torch.rand(shape) + 1
    dropped = layer(values)
    assert dropped.shape == values.shape
    assert torch.equal(dropped[dropped != 0], 2 * values[dropped != 0])


@pytest.mark.parametrize("shape", [(4, 6), (4, 6, 5), (2, 6, 5, 4), (2, 6, 3, 4, 5)])
def test_the_key_alone_decides_a_mask_not_the_kernels_nor_the_memory_order(
    shape: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    layer = Keyed(0.5, torch.tensor(7, dtype=torch.int32), 0)
    values = torch.rand(shape) + 1
    strided = values.movedim(1, -1).contiguous().movedim(-1, 1)
    by_kernels = layer(values), layer(strided), layer(torch.rand(*shape, 2)[..., 0] + 1)
    monkeypatch.setattr(native, "_LIBRARY", None)
    mask = layer(values) != 0
    assert 0 < int(mask.sum()) < mask.numel()
    for dropped in by_kernels:
        assert torch.equal(dropped != 0, mask)


@pytest.mark.parametrize("p", [1.0, 1 - 1e-10])
@pytest.mark.parametrize("kernels", [True, False])
def test_nothing_lives_where_nothing_can_be_drawn_that_does(
    p: float, kernels: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not kernels:
        monkeypatch.setattr(native, "_LIBRARY", None)
    layer = Keyed(p, torch.tensor(7, dtype=torch.int32), 0)
    values = torch.rand(64, 64, requires_grad=True)
    dropped = layer(values)
    assert not dropped.any()
    assert not torch.autograd.grad(dropped.sum(), values)[0].any()


def test_every_place_dies_as_often_as_any_other() -> None:
    layer = Keyed(0.5, torch.zeros((), dtype=torch.int32), 0)
    dead = torch.zeros(512)
    steps = 4000
    for _ in range(steps):
        layer.key.add_(1)
        dead += layer(torch.ones(512)) == 0
    # A sum of squares of 512 normal numbers: mean 512, deviation 32.
    chi2 = float((((dead - steps / 2) ** 2) / (steps / 4)).sum())
    assert 512 - 160 < chi2 < 512 + 160


def test_mixing_loses_no_number() -> None:
    words = torch.arange(-(1 << 17), 1 << 17, dtype=torch.int32)
    assert len(mixed(words).unique()) == len(words)
    assert int(mixed(torch.tensor(1, dtype=torch.int32))) == 0x514E28B7, "MurmurHash3's own"


def test_a_gradient_goes_where_the_values_went() -> None:
    layer = Keyed(0.25, torch.tensor(1, dtype=torch.int32), 2)
    values = torch.randn(4, 3, 5, 5, requires_grad=True)
    layer(values).sum().backward()
    assert values.grad is not None
    kept = layer(torch.ones(4, 3, 5, 5))
    assert torch.equal(values.grad, kept)
    assert 0 < int((kept == 0).sum()) < kept.numel()


def test_nothing_dies_in_evaluation_or_at_a_rate_of_zero() -> None:
    values = torch.randn(100)
    key = torch.zeros((), dtype=torch.int32)
    assert torch.equal(Keyed(0.5, key, 0).eval()(values), values)
    assert torch.equal(Keyed(0.0, key, 0)(values), values)


def test_all_dropout_of_a_model_follows_the_key_and_its_state_stays_as_it_was() -> None:
    model = nn.Sequential(nn.Dropout(0.5), nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.25)))
    model[1][1].eval()
    before = list(model.state_dict())
    key = torch.zeros((), dtype=torch.int32)
    keyed(model, key)
    assert list(model.state_dict()) == before
    first, second = model[0], model[1][1]
    assert isinstance(first, Keyed)
    assert isinstance(second, Keyed)
    assert (first.p, second.p) == (0.5, 0.25)
    assert (first.training, second.training) == (True, False)
    assert first.number != second.number
    assert first.key is second.key is key


def test_a_lane_draws_anew_at_every_step_and_the_same_for_the_same_seed() -> None:
    seen: list[torch.Tensor] = []
    model = DigitNet(dropout=0.5).train()
    lane = Lane(copy.deepcopy(model), example=torch.zeros(8, 12, 12, 1), steps=3)
    lane.images.fill_(1.0)  # and the rates are zero: nothing but the masks can differ
    dropout = next(part for part in lane.model.modules() if isinstance(part, Keyed))
    dropout.register_forward_hook(lambda layer, given, made: seen.append(made == 0))
    engine = Engine([lane], batch=8)
    for seed in (5, 5, 6):
        lane.draw(seed)
        engine.epoch()
    first, again, other = seen[:3], seen[3:6], seen[6:]
    assert not torch.equal(first[0], first[1])
    for mine, same in zip(first, again, strict=True):
        assert torch.equal(mine, same)
    assert not torch.equal(first[0], other[0])
    lane.draw(2**60 + 1)  # any whole number is a seed
