"""The plain training loop: repeatable, resumable, and honest about divergence."""

import math

import pytest
import torch
from torch import nn

from sparsepath import Support
from sparsepath.lab.data import Data, Split
from sparsepath.lab.training import Diverged, Momenta, Recipe, accuracy, seed_of, train


def some_data(count: int = 40) -> Data:
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(count) % 2
    noise = torch.randint(0, 60, (count, 1, 4, 4), generator=generator)
    images = (noise + 150 * labels[:, None, None, None]).to(torch.uint8)
    split = Split(images, labels)
    return Data("two", 2, split, split, split, torch.tensor([0.4]), torch.tensor([0.3]))


def some_model() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Flatten(), nn.Linear(16, 8), nn.ReLU(), nn.Dropout(), nn.Linear(8, 2))


RECIPE = Recipe(0.05, batch=16, shift=1, flip=True, warmup=0.2, final=0.0)


def trained(key=(0, "dense"), epochs=4, recipe=RECIPE, **options) -> dict[str, torch.Tensor]:
    model = some_model()
    train(model, some_data(), recipe, epochs=epochs, key=key, **options)
    return model.state_dict()


def same(a: dict[str, torch.Tensor], b: dict[str, torch.Tensor]) -> bool:
    return all(torch.equal(a[name], b[name]) for name in a)


def test_training_learns():
    model = some_model()
    train(model, some_data(), RECIPE, epochs=12, key=(0,))
    assert accuracy(model, some_data().test, some_data()) > 0.9


def test_the_same_key_gives_the_same_bits_whatever_was_drawn_before():
    first = trained()
    torch.rand(7)
    assert same(first, trained())


def test_another_key_gives_other_weights():
    assert not same(trained(key=(0, 1, 2)), trained(key=(0, 1, 3)))


def test_every_epoch_draws_anew():
    constant = Recipe(0.05, batch=16, momentum=0.0)
    seen = []
    for epoch in (0, 1):
        model = some_model()
        start = Momenta(epoch)
        train(model, some_data(), constant, epochs=epoch + 1, key=(0,), start=start)
        seen.append(model.state_dict())
    assert not same(*seen)


def test_training_leaves_the_global_generator_alone():
    model = nn.Sequential(nn.Flatten(), nn.Dropout(), nn.Linear(16, 2))
    before = torch.get_rng_state()
    train(model, some_data(), RECIPE, epochs=2, key=(0,))
    assert torch.equal(before, torch.get_rng_state())


@pytest.mark.parametrize("stopped_after", [1, 3, 4])
def test_training_goes_on_from_any_epoch_with_the_same_bits(stopped_after):
    kept = {}

    def keep(momenta):
        copies = {name: tensor.clone() for name, tensor in momenta.by_name.items()}
        kept[momenta.epoch] = (model_state(), Momenta(momenta.epoch, copies))

    model = some_model()

    def model_state():
        return {name: tensor.clone() for name, tensor in model.state_dict().items()}

    train(model, some_data(), RECIPE, epochs=4, key=(0,), on_epoch=keep)
    weights, momenta = kept[stopped_after]
    again = some_model()
    again.load_state_dict(weights)
    train(again, some_data(), RECIPE, epochs=4, key=(0,), start=momenta)
    assert same(model.state_dict(), again.state_dict())


def test_the_proximity_is_part_of_the_loss():
    model = some_model()
    weight = model[1].weight
    aim = torch.full_like(weight, 0.5)
    pull = lambda: 5 * (weight - aim).square().sum()
    train(model, some_data(), Recipe(0.02, batch=16), epochs=8, key=(0,), proximity=pull)
    assert (weight - aim).abs().max() < 0.1


def test_the_support_is_held():
    dead = torch.zeros(8, 1, dtype=torch.bool)
    dead[:5] = True
    weights = trained(support=Support({"1.weight": ~dead}))
    assert (weights["1.weight"][:5] == 0).all()
    assert (weights["1.weight"][5:] != 0).all()


def test_a_loss_that_is_not_finite_stops_training():
    with pytest.raises(Diverged, match="no longer finite in epoch"):
        trained(recipe=Recipe(1e30))


def test_weights_that_break_after_the_last_loss_stop_training():
    model = some_model()
    # One batch: its loss is finite, its step is not.
    with pytest.raises(Diverged):
        train(model, some_data(), Recipe(math.inf, batch=40), epochs=1, key=(0,))


def test_the_rate_rises_peaks_and_falls():
    recipe = Recipe(2.0, warmup=0.25, final=0.1)
    assert recipe.rate_at(0.125) == pytest.approx(1.0)
    assert recipe.rate_at(0.25) == pytest.approx(2.0)
    assert recipe.rate_at(0.625) == pytest.approx(1.1)
    assert recipe.rate_at(1.0) == pytest.approx(0.2)


def test_the_rate_is_constant_unless_asked_to_fall():
    assert {Recipe(0.3).rate_at(share) for share in (0.0, 0.3, 1.0)} == {0.3}


def test_accuracy_is_the_share_of_right_answers_in_eval_mode():
    class Brighter(nn.Module):
        def forward(self, images):
            assert not self.training
            bright = images.mean((1, 2, 3))
            return torch.stack([-bright, bright], 1)

    data = some_data()
    wrong = Split(data.test.images, torch.cat([1 - data.test.labels[:10], data.test.labels[10:]]))
    model = Brighter().train()
    assert accuracy(model, data.test, data, batch=7) == 1.0
    assert accuracy(model, wrong, data, batch=7) == 0.75
    assert model.training


def test_seeds_depend_on_every_part_of_the_key():
    keys = [(0,), (1,), (0, 0), (0, None), (0, 1), (1, 0), (0, "1")]
    assert len({seed_of(*key) for key in keys}) == len(keys)
