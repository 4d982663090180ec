"""Shared weights: few numbers for each layer, zeros kept, trained as one."""

import itertools

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from sparsepath.deploy import int8_weights, load, save, share
from sparsepath.deploy.bits.clusters import clusters
from sparsepath.deploy.shrinking.compact import compact
from sparsepath.errors import BadInput

from .cases import network, scrambled


def small(zero=0.5):
    torch.manual_seed(0)
    layers = nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 36, 4)
    return scrambled(nn.Sequential(*layers), zero=zero)


def numbers(weight):
    """The different numbers of a weight that are not zero."""
    return set(weight.detach().flatten().tolist()) - {0.0}


def best_error(values, count):
    """The least error of all ways to cut sorted numbers into stretches."""
    values = np.sort(values)
    cuts = itertools.combinations(range(1, len(values)), count - 1)
    parts = ([0, *cut, len(values)] for cut in cuts)
    return min(
        sum(((x - x.mean()) ** 2).sum() for x in (values[a:b] for a, b in itertools.pairwise(part)))
        for part in parts
    ) / len(values)


@settings(max_examples=100, deadline=None, derandomize=True)
@given(
    values=st.lists(st.integers(-50, 50), min_size=1, max_size=12),
    count=st.integers(1, 5),
    far=st.sampled_from([1, 1000]),
)
def test_clusters_are_means_of_what_is_nearest_and_none_is_empty(values, count, far):
    values = np.array(values, dtype=float)
    values[0] *= far
    found = clusters(values, count)
    assert len(found.centroids) == min(count, len(set(values)))
    members = found.assigned(values)
    assert set(members) == set(range(len(found.centroids)))
    distances = abs(values[:, None] - found.centroids)
    assert np.allclose(distances[range(len(values)), members], distances.min(1))
    for number, centroid in enumerate(found.centroids):
        assert np.isclose(values[members == number].mean(), centroid)
    errors = (values - found.centroids[members]) ** 2
    assert np.isclose(errors.mean(), found.error, atol=1e-6)


def test_clusters_are_near_the_best_there_are():
    random = np.random.default_rng(0)
    worst = 1.0
    for _ in range(20):
        values = random.standard_normal(14) ** 3
        worst = max(worst, clusters(values, 4).error / best_error(values, 4))
    assert worst < 1.3
    # Of many normal numbers the least errors are known (Max, 1960).
    values = random.standard_normal(200_000)
    for bits, least in {1: 0.3634, 2: 0.1175, 3: 0.03454, 4: 0.009497}.items():
        assert clusters(values, 1 << bits).error < 1.02 * least


@pytest.mark.parametrize("bits", [1, 3, 7])
def test_layers_have_few_numbers_and_their_zeros(bits, tmp_path):
    model = network("resnet-20", zero=0.6)
    before = {name: x.clone() for name, x in model.state_dict().items()}
    shared = share(model, bits)
    assert all(torch.equal(x, before[name]) for name, x in model.state_dict().items())
    for name, weight in shared.named_parameters():
        own = before[name]
        if weight.dim() > 1:
            assert torch.equal(weight == 0, own == 0)
            assert len(numbers(weight)) <= 1 << bits
            assert len(numbers(own)) > 1 << bits
        else:
            assert torch.equal(weight, own)
    save(shared, tmp_path / "net")
    back = load(tmp_path / "net").model.state_dict()
    own = shared.state_dict()
    assert all(torch.equal(x, own[name]) for name, x in back.items())


def test_each_number_is_the_mean_of_its_members():
    model = small()
    shared = share(model, 2)
    own, made = model[3].weight.detach(), shared[3].weight.detach()
    for number in numbers(made):
        assert number == pytest.approx(float(own[made == number].double().mean()), rel=1e-6)


def test_what_has_few_numbers_already_stays_as_it_is():
    model = small()
    model[0].weight.data.zero_()
    model[3].weight.data.copy_(torch.tensor([-2.0, 0.0, 0.1, 5.0])[torch.randint(4, (4, 288))])
    shared = share(model, 2, train=lambda _: None)
    assert all(torch.equal(x, shared.state_dict()[name]) for name, x in model.state_dict().items())


def test_bits_and_layers_are_chosen_by_name():
    model = small()
    shared = share(model, {"0": 1, "3.weight": 4})
    assert [len(numbers(shared[n].weight)) for n in (0, 3)] == [2, 16]
    shared = share(model, 3, layers="3")
    assert torch.equal(shared[0].weight, model[0].weight)
    assert len(numbers(shared[3].weight)) == 8


def test_a_weight_that_layers_share_stays_shared():
    layer = nn.Conv2d(3, 3, 3, padding=1)
    shared = share(nn.Sequential(layer, nn.ReLU(), layer), 2, train=steps(3))
    assert shared[0].weight is shared[2].weight
    assert len(numbers(shared[0].weight)) == 4


def steps(count, *, optimizer=torch.optim.Adam, rate=1e-2, **options):
    """A loop of one's own, towards outputs that are all one."""

    def train(model):
        model.train()
        torch.manual_seed(1)
        images = torch.randn(8, 3, 8, 8)
        chosen = optimizer(model.parameters(), lr=rate, **options)
        for _ in range(count):
            chosen.zero_grad()
            ((model(images) - 1) ** 2).mean().backward()
            chosen.step()

    return train


def test_a_numbers_gradient_is_the_sum_of_its_members():
    model = small()
    seen = {}

    def train(shared):
        images = torch.randn(4, 3, 8, 8)
        shared(images).square().sum().backward()
        seen["tied"] = {name: x.grad.clone() for name, x in shared.named_parameters()}
        seen["start"] = {name: x.detach().clone() for name, x in shared.named_parameters()}
        free = small()
        free.load_state_dict(shared.state_dict())
        free(images).square().sum().backward()
        seen["free"] = {name: x.grad for name, x in free.named_parameters()}

    share(model, 2, train=train)
    for name, weight in seen["start"].items():
        tied, free = seen["tied"][name], seen["free"][name]
        if weight.dim() == 1:
            assert torch.equal(tied, free)
            continue
        assert tied[weight == 0].abs().sum() == 0
        assert free[weight == 0].abs().sum() > 0
        for number in numbers(weight):
            wanted = free[weight == number].double().sum().float()
            assert torch.allclose(tied[weight == number], wanted, rtol=1e-5)


@pytest.mark.parametrize(
    "train",
    [
        steps(20),
        steps(20, optimizer=torch.optim.SGD, rate=1e-4, momentum=0.9, weight_decay=1e-3),
        steps(20, optimizer=torch.optim.AdamW, rate=3e-2),
    ],
)
def test_trained_numbers_stay_shared_and_zeros_stay_zero(train):
    model = small()
    untrained = share(model, 2)
    trained = share(model, 2, train=train)
    for number in (0, 3):
        before, after = untrained[number].weight, trained[number].weight
        assert torch.equal(after == 0, model[number].weight == 0)
        assert len(numbers(after)) == 4
        assert not torch.equal(before, after)
        for one in numbers(before):
            assert len(numbers(after[before == one])) == 1
    images = torch.randn(8, 3, 8, 8, generator=torch.Generator().manual_seed(2))
    with torch.no_grad():
        error = [float(((x(images) - 1) ** 2).mean()) for x in (untrained, trained)]
    assert error[1] < error[0]
    assert not trained.training
    assert not any(x._backward_hooks for x in trained.parameters())


def test_zeros_of_layers_that_are_not_shared_stay_zero_too():
    model = small()
    trained = share(model, 2, layers="0", train=steps(5))
    assert torch.equal(trained[3].weight == 0, model[3].weight == 0)
    assert not torch.equal(trained[3].weight, model[3].weight)
    assert len(numbers(trained[3].weight)) > 100


def test_training_may_stir_what_it_likes():
    def stir(model):
        for weight in model.parameters():
            weight.data += torch.rand_like(weight) / 100
            weight.requires_grad_(False)

    model = small()
    model[0].weight.requires_grad_(False)
    shared = share(model, 3, layers="0", train=stir)
    assert len(numbers(shared[0].weight)) <= 8
    for number in (0, 3):
        assert torch.equal(shared[number].weight == 0, model[number].weight == 0)


def test_a_compact_network_shares_too():
    model = network("cnn")
    images = torch.randn(2, 3, 32, 32)
    made = compact(model, images).model
    shared = share(made, 4, train=lambda model: model(images))
    for weight in (x for x in shared.parameters() if x.dim() > 1):
        assert len(numbers(weight)) <= 16


def broken():
    model = small()
    model[0].weight.data[0, 0, 0, 0] = torch.nan
    return model


def ruin(model):
    model[3].weight.data.fill_(torch.inf)


@pytest.mark.parametrize(
    ("model", "bits", "options", "says"),
    [
        (small(), 0, {}, "bits must be a whole number of 1 to 8, not 0"),
        (small(), 9, {}, "of 1 to 8, not 9"),
        (small(), True, {}, "not True"),
        (small(), 2.0, {}, r"not 2\.0"),
        (small(), {}, {}, "bits names no layer, {}: give a number"),
        (small(), {"0": 2, "3": "4"}, {}, "not '4'"),
        (small(), {"0": 2}, {"layers": "3"}, "leave layers out"),
        (small(), 4, {"layers": "conv*"}, r"No layer matches 'conv\*'; this model has '0', '3'"),
        (small(), {"5": 4}, {}, "No layer matches '5'"),
        (nn.Sequential(nn.ReLU(), nn.BatchNorm2d(3)), 4, {}, "has no weight of two axes"),
        (broken(), 4, {}, r"'0.weight' holds numbers that are not finite"),
        (small(), 4, {"train": ruin}, r"'3.weight' holds numbers that are not finite"),
        ("net", 4, {}, "A torch module has weights, not str"),
        (torch.nn.Sequential, 4, {}, "A torch module has weights, not type"),
    ],
)
def test_bad_input_gets_a_sentence(model, bits, options, says):
    with pytest.raises(BadInput, match=says) as caught:
        share(model, bits, **options)
    assert len(str(caught.value).splitlines()) == 1


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("few", [lambda model: share(model, 4), int8_weights])
def test_what_torch_jit_compiled_is_refused_in_a_sentence(few):
    with pytest.raises(BadInput, match="give the one that it was made of"):
        few(torch.jit.trace(small().eval(), torch.randn(1, 3, 8, 8)))


def test_a_compiled_model_has_the_names_of_its_own(tmp_path):
    model = small().eval()
    shared = share(torch.compile(model, backend="eager"), 2, layers=["0"])
    assert shared.state_dict().keys() == model.state_dict().keys()
    assert len(numbers(shared.state_dict()["0.weight"])) <= 4
    eight = int8_weights(torch.compile(model, backend="eager"))
    assert eight.state_dict().keys() == model.state_dict().keys()
