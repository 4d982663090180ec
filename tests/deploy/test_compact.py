"""A compacted network is smaller and has the same function, on whatever is removed where."""

import copy
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from tracing import untraced

from sparsepath.deploy.shrinking.compact import compact
from sparsepath.errors import BadInput
from sparsepath.lab.models import NETWORKS, PUBLISHED, DenseNet, ResNet, UNet

from .cases import scrambled

LAYERS = (nn.Conv1d, nn.Conv2d, nn.Linear, nn.ConvTranspose2d)


class Shared(nn.Module):
    """The same block three times, then a head."""

    def __init__(self, classes, channels):
        super().__init__()
        self.first = nn.Conv2d(channels, 12, 3, padding=1)
        self.block = nn.Sequential(nn.Conv2d(12, 12, 3, padding=1), nn.BatchNorm2d(12), nn.ReLU())
        self.point = nn.Conv2d(12, 12, 1)
        self.head = nn.Linear(12, classes)

    def forward(self, images):
        maps = self.first(images).relu()
        for _ in range(3):
            maps = self.point(self.block(maps)).relu()
        return self.head(maps.mean((2, 3)))


NAMES = {
    **NETWORKS,
    **PUBLISHED,
    "resnet-20": lambda classes, channels: ResNet(classes, channels, depth=20),
    "densenet-bc-100": lambda classes, channels: DenseNet(classes, channels, depth=22),
    "u-net": lambda classes, channels: UNet(classes, channels, width=4),
    "u-net-bilinear": lambda classes, channels: UNet(classes, channels, width=4, bilinear=True),
    "shared": Shared,
}


def pruned(model, *, share=0.4, seed=0, shape=(2, 3, 32, 32)):
    """The model with random filters and input channels dead, and nothing at its default."""
    scrambled(model, zero=0.2, seed=seed)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for layer in model.modules():
            if isinstance(layer, LAYERS):
                for axis, width in enumerate(layer.weight.shape[:2]):
                    if width > 1:
                        dead = torch.rand(width, generator=generator) < share
                        layer.weight.transpose(0, axis)[dead] = 0
            elif isinstance(layer, nn.BatchNorm2d):
                layer.weight[torch.rand(len(layer.weight), generator=generator) < share / 4] = 0
        enliven(model, torch.randn(shape, generator=generator), generator)
    return model


def enliven(model, images, generator):
    """Scale every layer and fit every batch norm, roughly, so that the images still show."""

    def scale(layer, inputs, output):
        if output.std() > 1e-3:  # what varies less may be rounding, not to be amplified
            layer.weight.div_(output.std())
        return type(layer).forward(layer, *inputs)

    def fit(layer, inputs):
        variance, mean = torch.var_mean(inputs[0], (0, 2, 3))
        drawn = torch.rand((2, len(mean)), generator=generator)
        layer.running_mean.copy_(mean + variance.sqrt() * (drawn[0] - 0.5))
        layer.running_var.copy_(torch.where(variance > 1e-6, variance, 1) * (drawn[1] + 0.5))

    layers = [layer for layer in model.modules() if isinstance(layer, LAYERS)]
    norms = [layer for layer in model.modules() if isinstance(layer, nn.BatchNorm2d)]
    handles = [layer.register_forward_hook(scale) for layer in layers]
    handles += [layer.register_forward_pre_hook(fit) for layer in norms]
    model(images)
    for handle in handles:
        handle.remove()


def same(model, small, *shapes):
    for shape in shapes:
        images = torch.randn(shape, dtype=torch.float64)
        with torch.no_grad():
            wanted, given = model(images), small(images)
        torch.testing.assert_close(given, wanted, rtol=0, atol=1e-10 * max(1, wanted.abs().max()))


@untraced
@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=2, deadline=None, derandomize=True)
@given(seed=st.integers(0, 999), share=st.sampled_from([0.1, 0.3, 0.6]))
def test_every_network_keeps_its_function(name, seed, share):
    torch.manual_seed(seed)
    model = pruned(NAMES[name](10, 3), share=share, seed=seed).double()
    before = copy.deepcopy(model.state_dict())
    images = torch.randn(2, 3, 32, 32, dtype=torch.float64)
    made = compact(model, images[:1])
    assert made.difference <= 1e-10
    with torch.no_grad():
        first, second = model(images)
    # Were the images lost on the way, anything would have the same function.
    assert share > 0.1 or (first - second).abs().max() > 1e-3 * first.abs().max()
    assert share < 0.3 or made.parameters[1] < made.parameters[0]
    assert sum(p.numel() for p in made.model.parameters()) == made.parameters[1]
    same(model, made.model, (2, 3, 32, 32))
    assert all(torch.equal(x, before[key]) for key, x in model.state_dict().items())


def built(*layers, seed=0):
    torch.manual_seed(seed)
    return scrambled(nn.Sequential(*layers), zero=0.0, seed=seed).double()


def widths(model, *shape, **options):
    """Each layer's channels after compacting, checked on two more sizes of batch."""
    made = compact(model, torch.randn(shape, dtype=torch.float64), **options)
    if not options.get("approximate"):
        same(model, made.model, shape, (3, *shape[1:]))
    return {name: after for name, (_, after) in made.widths.items()}, made


def kill(layer, *filters, bias=None):
    with torch.no_grad():
        for number in filters:
            layer.weight[number] = 0
            if bias is not None:
                layer.bias[number] = bias


def test_a_constant_is_folded_into_what_follows():
    model = built(nn.Conv2d(3, 6, 3), nn.BatchNorm2d(6), nn.ReLU(), nn.Conv2d(6, 4, 1, bias=False))
    kill(model[0], 1, 4, bias=2.0)
    model[1].bias.data[[1, 4]] = 3.0
    model[1].weight.data[[1, 4]] = 1.0
    found, made = widths(model, 2, 3, 8, 8)
    assert found == {"0": 4, "3": 4}
    assert made.model.state_dict()["3.bias"].abs().min() > 0


@pytest.mark.parametrize(("bias", "stays"), [(2.0, 6), (-2.0, 5)])
def test_a_constant_that_meets_zero_padding_stays_unless_relu_makes_it_zero(bias, stays):
    model = built(nn.Conv2d(3, 6, 3), nn.ReLU(), nn.Conv2d(6, 4, 3, padding=1))
    kill(model[0], 2, bias=bias)
    assert widths(model, 2, 3, 8, 8)[0] == {"0": stays, "2": 4}
    found, made = widths(model, 2, 3, 8, 8, approximate=True)
    assert found == {"0": 5, "2": 4}
    assert (made.difference > 1e-6) == (bias > 0)


def test_approximate_is_exact_away_from_the_border():
    model = built(nn.Conv2d(3, 6, 3), nn.ReLU(), nn.Conv2d(6, 4, 3, padding=1))
    kill(model[0], 2, bias=2.0)
    images = torch.randn(2, 3, 8, 8, dtype=torch.float64)
    small = compact(model, images, approximate=True).model
    inner = (..., slice(1, -1), slice(1, -1))
    torch.testing.assert_close(small(images)[inner], model(images)[inner], rtol=0, atol=1e-12)


@pytest.mark.parametrize(("bias", "stays"), [(2.0, 6), (-2.0, 5)])
def test_a_transposed_convolution_takes_in_no_constant_but_zero(bias, stays):
    model = built(nn.Conv2d(3, 6, 1), nn.ReLU(), nn.ConvTranspose2d(6, 4, 2, stride=2))
    kill(model[0], 2, bias=bias)
    assert widths(model, 2, 3, 4, 4)[0] == {"0": stays, "2": 4}


@pytest.mark.parametrize(("counted", "stays"), [(True, 6), (False, 4)])
def test_an_average_with_the_zeros_around_is_no_constant(counted, stays):
    pool = nn.AvgPool2d(3, padding=1, count_include_pad=counted)
    model = built(nn.Conv2d(3, 6, 1), pool, nn.Conv2d(6, 2, 1))
    kill(model[0], 0, 1, bias=1.0)
    assert widths(model, 2, 3, 4, 4)[0]["0"] == stays


def test_channels_that_make_one_map_go_together():
    model = built(nn.Conv2d(3, 8, 1), nn.PixelShuffle(2), nn.Conv2d(2, 2, 1))
    kill(model[0], 0, 1, 2, bias=0.0)
    assert widths(model, 2, 3, 4, 4)[0]["0"] == 8
    kill(model[0], 3, bias=0.0)
    assert widths(model, 2, 3, 4, 4)[0]["0"] == 4


def test_a_product_with_zero_is_zero():
    model = scrambled(Gated(), zero=0.0).double()
    kill(model.maps, 0, 1, bias=-1.0)
    assert widths(model, 2, 3, 6, 6)[0] == {"maps": 4, "gate": 4, "last": 2}


class Gated(nn.Module):
    def __init__(self):
        super().__init__()
        self.maps, self.gate, self.last = nn.Conv2d(3, 6, 1), nn.Conv2d(3, 6, 1), nn.Conv2d(6, 2, 1)

    def forward(self, x):
        return self.last(self.maps(x).relu() * self.gate(x).mean((2, 3), keepdim=True).sigmoid())


def test_what_feeds_only_the_dead_goes_to_a_fixed_point():
    model = built(*(nn.Conv2d(6, 6, 1) for _ in range(4)), nn.Conv2d(6, 2, 1))
    with torch.no_grad():
        for place in range(4):  # filter k of each layer reads channel k alone
            model[place].weight.mul_(torch.eye(6).view(6, 6, 1, 1))
        model[4].weight[:, 3:] = 0
    assert widths(model, 1, 6, 4, 4)[0] == {"0": 3, "1": 3, "2": 3, "3": 3, "4": 2}


def test_a_zero_scale_of_batch_norm_kills_its_channel():
    model = built(nn.Conv2d(3, 6, 3), nn.BatchNorm2d(6), nn.Conv2d(6, 4, 1))
    model[1].weight.data[[0, 5]] = 0
    assert widths(model, 2, 3, 8, 8)[0] == {"0": 4, "2": 4}


def test_flatten_takes_all_units_of_a_channel():
    model = built(
        nn.Conv2d(3, 6, 3), nn.ReLU(), nn.Flatten(), nn.Linear(6 * 16, 8), nn.Linear(8, 2)
    )
    kill(model[0], 0, 1, bias=1.0)
    kill(model[3], 7, bias=0.5)
    found, made = widths(model, 2, 3, 6, 6)
    assert found == {"0": 4, "3": 7, "4": 2}
    assert made.model.state_dict()["3.weight"].shape == (7, 64)


def test_depthwise_channels_go_with_their_input():
    model = built(
        nn.Conv2d(3, 8, 1), nn.ReLU(), nn.Conv2d(8, 16, 3, padding=1, groups=8), nn.Conv2d(16, 4, 1)
    )
    kill(model[0], 1, 2, bias=-1.0)
    kill(model[2], 6, 7, 8)
    assert widths(model, 2, 3, 8, 8)[0] == {"0": 5, "2": 10, "3": 4}


def test_groups_stay_as_full_as_the_fullest():
    model = built(nn.Conv2d(3, 12, 1), nn.Conv2d(12, 12, 3, groups=3), nn.Conv2d(12, 4, 1))
    kill(model[1], 0, 1, 2, 3, 4, 5, 6, 8)  # none of group 0, one of group 1, three of group 2
    found, made = widths(model, 2, 3, 8, 8)
    assert found == {"0": 8, "1": 6, "2": 4}
    assert made.model.graph()["1"].attributes["groups"] == 2


class Residual(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Conv2d(3, 6, 1), nn.Conv2d(6, 6, 3, padding=1, bias=False)
        self.last = nn.Conv2d(6, 2, 1)

    def forward(self, x):
        x = self.first(x).relu()
        return self.last(x + self.second(x))


def test_a_sum_loses_the_channels_that_are_dead_on_both_sides():
    model = scrambled(Residual(), zero=0.0).double()
    kill(model.first, 0, 1, 2, bias=-1.0)
    kill(model.second, 0, 1, 5)
    assert widths(model, 2, 3, 6, 6)[0] == {"first": 4, "second": 4, "last": 2}


def test_rounding_up_to_a_multiple():
    model = built(nn.Conv2d(3, 20, 3), nn.ReLU(), nn.Conv2d(20, 10, 3), nn.Conv2d(10, 2, 1))
    kill(model[0], *range(15), bias=0.0)
    kill(model[2], 0, bias=0.0)
    assert widths(model, 1, 3, 8, 8, multiple=8)[0] == {"0": 8, "2": 10, "3": 2}


def test_a_layer_that_no_output_depends_on_was_not_pruned_to_nothing():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Conv2d(4, 5, 3)).eval()
    model[2].weight.data.zero_()
    made = str(compact(model, torch.randn(2, 3, 9, 9)))
    assert "no output depends on 0: 1 zero channel(s) stay." in made
    assert "0 was pruned to nothing" not in made


def test_a_layer_pruned_to_nothing_keeps_one_zero_channel_and_says_so():
    model = built(nn.Conv2d(3, 6, 3), nn.ReLU(), nn.Conv2d(6, 4, 3, padding=1), nn.Conv2d(4, 2, 1))
    kill(model[2], *range(4))
    found, made = widths(model, 2, 3, 8, 8)
    assert found == {"0": 1, "2": 1, "3": 2}
    assert "2 was pruned to nothing: 1 zero channel(s) stay." in str(made)
    assert not any(x.any() for key, x in made.model.state_dict().items() if key[0] in "02")


def test_shared_layers_stay_shared():
    torch.manual_seed(0)
    model = pruned(Shared(10, 3), share=0.5, seed=3).double()
    found, made = widths(model, 2, 3, 8, 8)
    assert found["point"] == found["point#2"] < 12
    names = [name for name, _ in made.model.named_parameters()]
    assert len([name for name in names if name.startswith("point")]) == 2


class Between(nn.Module):
    """A function of maps between two 1 x 1 convolutions."""

    def __init__(self, function, outputs=6):
        super().__init__()
        self.function = function
        self.first, self.last = nn.Conv2d(3, 6, 1), nn.Conv2d(outputs, 2, 1)
        self.register_buffer("shift", torch.linspace(-1, 1, 6).view(1, 6, 1, 1))
        self.register_buffer("bent", torch.randn(1, 6, 4, 4))
        self.row = nn.Linear(4, 4)

    def forward(self, x):
        return self.last(self.function(self, self.first(x).relu()))


def shuffled(model, x):
    return x.view(x.size(0), 2, 3, 4, 4).transpose(1, 2).reshape(x.size(0), 6, 4, 4)


@pytest.mark.parametrize(
    ("function", "outputs", "stays"),
    [
        (lambda model, x: x.permute(0, 1, 3, 2), 6, 4),
        (lambda model, x: x.transpose(2, 3) - model.shift, 6, 4),
        (lambda model, x: x + model.shift[0], 6, 4),
        (lambda model, x: (x + model.bent).relu() - 1, 6, 6),
        (lambda model, x: (x * model.bent).abs(), 6, 4),
        (lambda model, x: model.row(x), 6, 6),
        (lambda model, x: x.mean(1, keepdim=True), 1, 6),
        (lambda model, x: x.mean(-1, keepdim=True).neg().exp(), 6, 4),
        (lambda model, x: x.sqrt(), 6, 4),
        (lambda model, x: torch.cat((x, x), 2), 6, 6),
        (lambda model, x: x[:, ::2], 3, 6),
        (lambda model, x: x[:, 1:, ::2], 5, 4),
        (lambda model, x: nn.functional.pad(x, (0, 0, 0, 0, -1, 0)), 5, 6),
        (lambda model, x: x.reshape(-1, 3, 4, 4), 3, 6),
        (lambda model, x: x.permute(0, 2, 1, 3).permute(0, 2, 1, 3), 6, 6),
        (lambda model, x: x.transpose(1, 3).transpose(1, 3), 6, 6),
        (lambda model, x: x.flatten(2).unflatten(2, (4, 4)), 6, 4),
        (lambda model, x: x.view(-1, 12, 2, 4), 12, 4),
        (lambda model, x: x.view(-1, 3, 8, 4), 3, 4),
        (lambda model, x: x.view(-1, 4, 8, 3), 4, 6),
        (shuffled, 6, 6),
    ],
)
def test_channels_are_followed_where_they_can_be_and_kept_where_not(function, outputs, stays):
    torch.manual_seed(0)
    model = scrambled(Between(function, outputs), zero=0.0).double()
    kill(model.first, 0, 1, bias=-1.0)
    assert widths(model, 2, 3, 4, 4)[0]["first"] == stays
    # Now a channel behind the function is not read: it goes with all that is tied to it, or stays.
    model.last.weight.data[:, -1] = 0
    assert widths(model, 2, 3, 4, 4)[0]["first"] <= stays


class Untraceable(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 1)

    def forward(self, x):
        if x.sum() > 0:  # the line
            return self.conv(x)
        return self.conv(-x)


def test_a_model_that_cannot_be_traced_is_left_alone():
    model, images = Untraceable(), torch.randn(1, 3, 4, 4)
    before = model(images)
    lines = Path(__file__).read_text().splitlines()
    number = 1 + next(n for n, line in enumerate(lines) if line.endswith("# the line"))
    with pytest.raises(BadInput, match=rf"test_compact.py, line {number}\).*used as before"):
        compact(model, images)
    assert torch.equal(model(images), before)
    assert model.training


def test_a_part_that_cannot_be_traced_keeps_what_it_reads():
    model = nn.Sequential(nn.Conv2d(3, 3, 1), nn.Conv2d(3, 3, 1), Untraceable(), nn.Conv2d(4, 2, 1))
    scrambled(model, zero=0.0).double()
    kill(model[0], 1)
    kill(model[1], 1)
    found, made = widths(model, 2, 3, 8, 8)
    assert found == {"0": 2, "1": 3, "3": 2}
    assert "2 keeps all channels around it: it cannot be traced (test_compact.py" in str(made)


class Restless(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 1)

    def forward(self, x):
        return self.conv(x) + torch.rand(())


class Counted(Restless):
    turn = 0

    def forward(self, x):
        Counted.turn += 1
        return self.conv(x) * Counted.turn


TURNS = [0]


class Turning(Restless):
    def forward(self, x):
        TURNS[0] += 1  # where nobody looks
        return self.conv(x) * TURNS[0]


@pytest.mark.parametrize(
    ("model", "example", "options", "says"),
    [
        ("model", torch.ones(1), {}, "takes a torch module, not str"),
        (nn.Conv2d(3, 4, 1), torch.ones(0, 3, 4, 4), {}, r"at least one image, not \(0, 3, 4, 4\)"),
        (nn.Conv2d(3, 4, 1), [1], {}, "at least one image, not int"),
        (nn.Conv2d(3, 4, 1), torch.ones(1, 2, 4, 4), {}, r"cannot run the example of shape"),
        (nn.Conv2d(3, 4, 1), torch.ones(1, 3, 4, 4), {"multiple": 0}, "multiple must be a whole"),
        (Restless(), torch.ones(1, 3, 4, 4), {}, "it draws random numbers"),
        (Counted(), torch.ones(1, 3, 4, 4), {}, "it changes its own 'turn' as it runs"),
        (Turning(), torch.ones(1, 3, 4, 4), {}, "the same at every call"),
    ],
)
def test_bad_input_gets_a_sentence(model, example, options, says):
    with pytest.raises(BadInput, match=says) as caught:
        compact(model, example, **options)
    assert len(str(caught.value).splitlines()) == 1


def test_a_network_that_gives_no_finite_numbers_is_refused():
    model = nn.Sequential(nn.Conv2d(3, 4, 1), nn.Conv2d(4, 2, 1))
    model[0].weight.data[0] = torch.nan
    with pytest.raises(BadInput, match="check that the model gives finite numbers"):
        compact(model, torch.ones(1, 3, 4, 4))


def test_float32_is_held_to_its_own_rounding():
    model = pruned(ResNet(10, 3, depth=20), seed=5)
    made = compact(model, torch.randn(4, 3, 32, 32))
    assert made.difference <= 1e-5 * made.largest
    assert f"{made.difference:.1e}" in str(made)


def test_rounding_that_a_network_amplifies_is_told_from_a_difference():
    layers = [nn.Conv2d(8, 8, 1) for _ in range(4)]
    model = built(nn.Conv2d(3, 8, 1), nn.ReLU(), *layers).float()
    kill(model[0], 1, bias=1e4)
    for layer in layers:
        layer.weight.data -= layer.weight.data.mean((1, 2, 3), keepdim=True)
    images = torch.randn(2, 3, 4, 4)
    model[2].bias.data -= 1e4 * model[2].weight.data[:, 1, 0, 0]
    says = r"in float64 it is \d\.\de-\d\d, so the network amplifies .* compact it in float64"
    with pytest.raises(BadInput, match=says):
        compact(model, images)
    assert compact(model.double(), images.double()).difference <= 1e-10


def test_a_model_that_changes_its_input_is_compared_on_the_same_one():
    class Rude(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.last = nn.Conv2d(3, 6, 1), nn.Conv2d(6, 2, 1)

        def forward(self, x):
            return self.last(self.first(x.add_(1)))

    model = scrambled(Rude(), zero=0.0).double()
    images = torch.randn(2, 3, 4, 4, dtype=torch.float64)
    before = images.clone()
    assert compact(model, images).difference <= 1e-10
    assert torch.equal(images, before)


def test_any_result_structure_and_several_inputs():
    class Two(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = nn.Conv2d(3, 6, 1), nn.Conv2d(3, 6, 1)
            self.head = nn.Conv2d(6, 2, 1)

        def forward(self, x, y):
            both = torch.relu(self.a(x)) * self.b(y).sigmoid()
            return {"maps": self.head(both), "mean": (both.mean(),)}

    class Less(Two):
        def forward(self, x, y):
            return {"maps": super().forward(x, y)["maps"]}

    for kind in (Two, Less):
        model = scrambled(kind(), zero=0.0).double()
        kill(model.a, 0, 1, bias=-1.0)
        x, y = torch.randn(2, 2, 3, 5, 5, dtype=torch.float64)
        made = compact(model, (x, y))
        torch.testing.assert_close(made.model(x, y), model(x, y), rtol=0, atol=1e-12)
        # A mean over everything reads every channel; without it both sides lose the dead ones.
        assert made.widths["b"] == (6, 6 if kind is Two else 4)


def test_compacting_again_finds_nothing_more():
    model = pruned(ResNet(10, 3, depth=20), seed=1).double()
    images = torch.randn(1, 3, 32, 32, dtype=torch.float64)
    once = compact(model, images)
    again = compact(once.model, images)
    assert again.parameters == (once.parameters[1], once.parameters[1])


class Rows(nn.Module):
    """A network whose rows have one length, whatever its images."""

    def __init__(self, rows):
        super().__init__()
        self.first, self.last, self.rows = nn.Conv2d(3, 6, 1), nn.Linear(96, 2), rows

    def forward(self, x):
        return self.last(self.rows(self.first(x)))


@pytest.mark.parametrize("dead", [(), (0, 1)])
def test_rows_of_one_length_are_noted_where_channels_went(dead):
    images = torch.randn(2, 3, 4, 4, dtype=torch.float64)
    for rows, told in ((lambda x: x.view(-1, 96), True), (lambda x: x.flatten(1), False)):
        model = scrambled(Rows(rows), zero=0.0).double()
        kill(model.first, *dead)
        made = compact(model, images)
        assert made.widths["first"] == (6, 6 - len(dead))
        assert ("images of the example's size only" in str(made)) == (told and bool(dead))


def test_a_view_of_the_first_length_loses_its_dead_channels():
    class Before(Rows):
        def forward(self, x):
            return self.last(self.first(x).view(x.size(0), -1))

    model = scrambled(Before(None), zero=0.0).double()
    kill(model.first, 0, 1)
    assert compact(model, torch.randn(2, 3, 4, 4, dtype=torch.float64)).widths["first"] == (6, 4)


def test_channels_that_are_shuffled_by_computed_lengths_stay():
    class Shuffled(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.last = nn.Conv2d(3, 6, 1), nn.Conv2d(6, 2, 3)

        def forward(self, x):
            x = self.first(x)
            n, c, h, w = x.size()
            x = x.view(n, 3, c // 3, h, w).transpose(1, 2).contiguous()
            return self.last(x.view(n, c, h, w))

    model = scrambled(Shuffled(), zero=0.0).double()
    kill(model.first, 0, 1)
    made = compact(model, torch.randn(2, 3, 4, 4, dtype=torch.float64))
    images = torch.randn(1, 3, 7, 5, dtype=torch.float64)
    torch.testing.assert_close(made.model(images), model(images), rtol=0, atol=1e-12)
    assert "transpose keeps all channels around it: it acts along another axis" in str(made)


def test_rows_that_hang_on_the_size_of_images_are_told():
    class Rows(nn.Module):
        def __init__(self, first):
            super().__init__()
            self.a, self.first = nn.Conv2d(3, 12, 3), first

        def forward(self, x):
            return self.a(x).relu().flatten(1, 2)[:, self.first :].mean((1, 2))

    made = {first: compact(Rows(first).eval(), torch.randn(2, 3, 8, 8)) for first in (0, 24)}
    said = "makes rows of one length: right for images of the example's size only"
    assert said not in str(made[0])
    assert said in str(made[24])


@pytest.mark.parametrize(
    "between", [nn.InstanceNorm2d(6), nn.GroupNorm(2, 6), nn.PReLU(6)], ids=str
)
def test_what_no_rule_follows_is_told(between):
    model = nn.Sequential(nn.Conv2d(3, 6, 3), between, nn.Conv2d(6, 4, 3)).eval()
    kill(model[0], 0, 1)
    made = compact(model, torch.randn(2, 3, 8, 8))
    assert "1 keeps all channels around it: no rule follows channels through it." in str(made)
