"""A network from a graph is made of torch's own layers: whoever looks for those finds them."""

import copy
import pickle
import re
from collections import Counter
from dataclasses import replace

import pytest
import torch
from torch import nn
from torch.nn.utils import parametrizations
from tracing import untraced

from sparsepath import ADMM, L0, Schedule, regularisation_path
from sparsepath.deploy.capture.capture import capture
from sparsepath.deploy.files.artifact import load, save
from sparsepath.deploy.graph.network import as_module
from sparsepath.deploy.graph.ordinary import BatchNorm
from sparsepath.deploy.shrinking.compact import compact
from sparsepath.errors import BadInput
from sparsepath.metrics import macs

from .cases import network, scrambled

IMAGES = torch.randn(8, 3, 8, 8, generator=torch.Generator().manual_seed(0))
LABELS = torch.arange(8) % 4


def seeded(model):
    torch.manual_seed(0)
    for weight in model.parameters():
        nn.init.normal_(weight, std=0.2)
    return model.eval()


def classifier(**norm):
    return seeded(
        nn.Sequential(
            *(nn.Conv2d(3, 8, 3, bias=False), nn.BatchNorm2d(8, **norm), nn.ReLU()),
            *(nn.Dropout2d(0.25), nn.Conv2d(8, 6, 3), nn.ReLU(), nn.Flatten()),
            *(nn.Dropout(0.5), nn.Linear(96, 4)),
        )
    )


def stored(model, path):
    save(model, path, force=True)
    return load(path).model


@pytest.fixture(params=["compacted", "loaded"])
def again(request, tmp_path):
    """The network that a model becomes, either way."""

    def become(model, images=IMAGES):
        if request.param == "compacted":
            return compact(model, images).model
        return stored(model, tmp_path / "net")

    return become


def kinds(model):
    return Counter(type(layer) for layer in model.modules() if not list(layer.children()))


# ---- its layers


@untraced
@pytest.mark.parametrize("name", ["cnn-bn", "resnet-20", "mobilenet-v2", "u-net"])
def test_it_has_the_layers_of_the_model(again, name):
    model = network(name, zero=0.0)
    made = again(model, torch.randn(1, 3, 32, 32))
    weighty = (nn.Conv2d, nn.ConvTranspose2d, nn.Linear, nn.BatchNorm2d, nn.Dropout)
    count = lambda model, kind: sum(isinstance(layer, kind) for layer in model.modules())
    assert [count(made, kind) for kind in weighty] == [count(model, kind) for kind in weighty]
    for path, layer in made.named_modules():
        if isinstance(layer, weighty):
            assert type(layer) in weighty  # the model's own may be kinds of these
            assert layer.extra_repr() == model.get_submodule(path).extra_repr()
    assert set(made.state_dict()) == set(model.state_dict())
    assert macs(made, torch.randn(1, 3, 32, 32)) == macs(model, torch.randn(1, 3, 32, 32))


@pytest.mark.parametrize(
    "layer",
    [
        *(nn.Conv1d(4, 6, 3, stride=2), nn.Conv1d(4, 8, 3, padding=1, groups=2, bias=False)),
        *(nn.ConvTranspose1d(4, 6, 3, stride=2, output_padding=1), nn.BatchNorm1d(4, eps=0.1)),
        *(nn.BatchNorm1d(4, affine=False), nn.BatchNorm1d(4, momentum=None), nn.Linear(9, 5)),
        *(nn.MaxPool1d(2, ceil_mode=True), nn.AvgPool1d(3, 2, 1), nn.AdaptiveAvgPool1d(3)),
        *(nn.AdaptiveMaxPool1d(2), nn.Flatten(), nn.Flatten(0), nn.LeakyReLU(0.3), nn.ELU(0.5)),
        *(nn.GELU("tanh"), nn.Hardtanh(-0.5, 0.25), nn.Softplus(2, 3), nn.Softmax(1), nn.SiLU()),
        *(nn.GroupNorm(2, 4, eps=0.1), nn.LayerNorm(9), nn.LayerNorm((4, 9), eps=0.1, bias=False)),
        *(nn.LayerNorm(9, elementwise_affine=False), nn.PReLU(), nn.PReLU(4, init=0.5)),
        *(nn.Dropout(0.1), nn.Dropout1d(0.2), nn.AlphaDropout(0.3), nn.FeatureAlphaDropout(0.4)),
    ],
    ids=repr,
)
def test_every_layer_comes_back_as_itself(layer, tmp_path):
    model = nn.Sequential(copy.deepcopy(layer)).eval()
    made = stored(stored(model, tmp_path / "net"), tmp_path / "net")
    lines = torch.randn(2, 4, 9)
    assert torch.equal(made(lines), model(lines))
    # Attributes are written with one number for each axis.
    assert bare(made.get_submodule("0")) == bare(layer)


def test_a_group_norm_without_weights_comes_back_as_what_it_does(tmp_path):
    model = nn.Sequential(nn.GroupNorm(2, 4, affine=False)).eval()
    lines = torch.randn(2, 4, 9)
    assert torch.equal(stored(model, tmp_path / "net")(lines), model(lines))


def test_norms_and_slopes_learn_on(again):
    layers = (nn.Conv2d(3, 4, 3), nn.GroupNorm(2, 4), nn.PReLU(4), nn.Flatten())
    model = seeded(nn.Sequential(*layers, nn.LayerNorm(144), nn.Linear(144, 4)))
    made = again(model)
    assert kinds(made) == kinds(model)
    assert made.state_dict().keys() == model.state_dict().keys()
    for net in (made, model):
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        nn.functional.cross_entropy(net(IMAGES), LABELS).backward()
        optimizer.step()
    for name, weight in model.state_dict().items():
        torch.testing.assert_close(made.state_dict()[name], weight)
    torch.testing.assert_close(again(made)(IMAGES), made(IMAGES))


class Fixed(nn.Module):
    """Norms and slopes by numbers that nobody learns."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3)
        for name in ("slope", "weight", "bias"):
            self.register_buffer(name, torch.rand(4))

    def forward(self, x):
        x = nn.functional.prelu(self.conv(x), self.slope)
        x = nn.functional.group_norm(x, 2, self.weight, self.bias)
        return nn.functional.layer_norm(x.permute(0, 2, 3, 1), (4,), self.weight, self.bias)


def test_norms_and_slopes_may_be_fixed(tmp_path):
    model = Fixed().eval()
    made = stored(model, tmp_path / "net")
    assert torch.equal(made(IMAGES), model(IMAGES))
    assert torch.equal(stored(made, tmp_path / "again")(IMAGES), model(IMAGES))
    learned = [sum(x.requires_grad for x in net.parameters()) for net in (made, model)]
    assert learned == [2, 2]


def test_a_slope_may_be_a_bare_number(tmp_path):
    class Sloped(nn.Module):
        def forward(self, x):
            return nn.functional.prelu(x, torch.tensor(0.3))

    assert torch.equal(stored(Sloped().eval(), tmp_path / "net")(IMAGES), Sloped()(IMAGES))


def bare(layer):
    return re.sub(r"\((\d+),\)", r"\1", repr(layer))


def test_a_batch_norm_of_an_older_file_takes_any_input():
    plain = compact(nn.Sequential(nn.BatchNorm2d(3)).eval(), IMAGES).model.graph()
    node = plain.nodes[0]
    old = {key: x for key, x in node.attributes.items() if key == "eps"}
    older = as_module(replace(plain, nodes=(replace(node, attributes=old),)))
    assert type(older.get_submodule("0")) is BatchNorm
    assert older(IMAGES).shape == IMAGES.shape
    assert older(IMAGES[:, :, 0, 0]).shape == (8, 3)


class Twice(nn.Module):
    """A module used twice, two layers with one weight, and a function of a weight of its own."""

    def __init__(self):
        super().__init__()
        self.mix = nn.Conv2d(3, 3, 1)
        self.norm = nn.BatchNorm2d(3)
        self.first, self.second = nn.Conv2d(3, 3, 1), nn.Conv2d(3, 3, 1)
        self.second.weight = self.first.weight

    def forward(self, x):
        x = self.norm(self.mix(self.norm(self.mix(x))))
        return self.second(self.first(x))


def test_what_is_shared_stays_shared(again):
    model = seeded(Twice())
    made = again(model)
    assert kinds(made) == kinds(model)
    assert set(made.state_dict()) == set(model.state_dict())
    assert len(list(made.parameters())) == len(list(model.parameters()))
    assert made.second.weight is made.first.weight
    assert copy.deepcopy(made).double().second.weight.dtype == torch.float64
    seen = []
    made.mix.register_forward_hook(lambda *_: seen.append(1))
    made(IMAGES)
    assert len(seen) == 2


# ---- training


@pytest.mark.parametrize("momentum", [0.1, 0.7, None])
def test_it_trains_as_the_model_does(again, momentum):
    model = classifier(momentum=momentum)
    model.train()
    model(IMAGES)  # so that something was counted
    model.eval()
    made = again(model)
    for each in (made, model):
        torch.manual_seed(1)
        each.train()
        optimizer = torch.optim.SGD(each.parameters(), lr=0.1, momentum=0.9)
        for _ in range(3):
            optimizer.zero_grad()
            nn.functional.cross_entropy(each(IMAGES), LABELS).backward()
            optimizer.step()
    assert list(made.state_dict()) == list(model.state_dict())
    for key, array in made.state_dict().items():
        torch.testing.assert_close(array, model.state_dict()[key], msg=key)


def test_dropout_of_every_kind_is_kept(again):
    class Functional(nn.Module):
        def forward(self, x):
            return nn.functional.dropout(x, 0.3, self.training)

    drops = (nn.Dropout(0.1), nn.Dropout2d(0.2), nn.AlphaDropout(0.3), nn.FeatureAlphaDropout(0.4))
    model = nn.Sequential(*drops, Functional(), nn.Dropout(0.5, inplace=True)).eval()
    made = again(model)
    assert torch.equal(made(IMAGES), IMAGES)
    for each in (made, model):
        torch.manual_seed(1)
        each.given = each.train()(IMAGES.clone())
    assert torch.equal(made.given, model.given)
    assert not torch.equal(made.given, IMAGES)


@pytest.mark.parametrize("mode", ["train", "eval"])
def test_a_step_of_the_smaller_network_is_that_of_the_masked_one(mode):
    """Dead channels give zero here, so that they have no part in a step of the whole network."""
    model = classifier().double()
    dead, units = torch.tensor([1, 4, 5]), torch.tensor([0, 3])
    with torch.no_grad():
        for array in (model[0].weight, model[1].weight, model[1].bias, model[1].running_mean):
            array[dead] = 0
        for array in (model[4].weight, model[4].bias):
            array[units] = 0
    made = compact(model, IMAGES.double()).model
    assert made.get_submodule("0").out_channels == 5
    assert made.get_submodule("4").weight.shape[:2] == (4, 5)
    for each in (made, model):
        getattr(each, mode)()
        for layer in each.modules():
            layer.train(layer.training and not isinstance(layer, (nn.Dropout, nn.Dropout2d)))
        optimizer = torch.optim.SGD(each.parameters(), lr=0.1)
        nn.functional.cross_entropy(each(IMAGES.double()), LABELS).backward()
        optimizer.step()
    kept = torch.tensor([k for k in range(8) if k not in dead])
    left = torch.tensor([k for k in range(6) if k not in units])
    whole = model.state_dict()
    wanted = {
        **{key: whole[key][kept] for key in whole if key[:2] in ("0.", "1.") and whole[key].dim()},
        "4.weight": whole["4.weight"][left][:, kept],
        "4.bias": whole["4.bias"][left],
        "8.weight": whole["8.weight"].view(4, 6, 16)[:, left].flatten(1),
        "8.bias": whole["8.bias"],
    }
    for key, array in wanted.items():
        torch.testing.assert_close(made.state_dict()[key], array, rtol=1e-9, atol=1e-12, msg=key)
    assert not torch.equal(wanted["8.bias"], classifier().double()[8].bias), "nothing moved"


def test_the_method_prunes_it_again(again):
    net = again(classifier())
    admm = ADMM(net, L0(), rho=0.1, mu=5e-3, layers=nn.Conv2d)

    def train(model, stage):
        model.train()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        with stage.support.held(model, optimizer):
            for _ in range(stage.epochs):
                optimizer.zero_grad()
                loss = nn.functional.cross_entropy(model(IMAGES), LABELS)
                (loss + stage.proximity()).backward()
                optimizer.step()

    def accuracy(model):
        return (model(IMAGES).argmax(1) == LABELS).double().mean().item()

    points = list(
        regularisation_path(
            admm, train, mus=[1e-3, 1.0], evaluate=accuracy, schedule=Schedule(xi=2, nu=1)
        )
    )
    assert points[-1].sparsity.of_blocks == 1.0
    points[-1].load(net)
    small = compact(net.eval(), IMAGES)
    assert small.parameters[1] < small.parameters[0]
    assert compact(small.model, IMAGES).parameters == (small.parameters[1],) * 2


# ---- arrays that no layer holds


class Bare(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 1)
        self.scale = nn.Parameter(torch.randn(1, 4, 1, 1))
        self.inner = nn.Module()
        self.inner.shift = nn.Parameter(torch.randn(1, 4, 1, 1))
        self.register_buffer("mean", torch.randn(1, 3, 1, 1))
        self.register_buffer("blur", torch.rand(4, 1, 3, 3))

    def forward(self, x):
        x = self.conv(x - self.mean) * self.scale + self.inner.shift
        return nn.functional.conv2d(x, self.blur, padding=1, groups=4) * self.scale


def test_parameters_and_buffers_keep_their_names_and_what_they_are(again):
    torch.manual_seed(0)
    model = Bare().eval()
    made = again(model)
    torch.testing.assert_close(made(IMAGES), model(IMAGES))
    own = {name for name, _ in model.named_parameters()}
    assert {name for name, x in made.named_parameters() if x.requires_grad} == own
    # What a function takes becomes a layer's, named after the function.
    assert set(model.state_dict()) ^ set(made.state_dict()) == {"blur", "conv#2.weight"}
    for each in (made, model):
        each(IMAGES).square().sum().backward()
    for name, parameter in model.named_parameters():
        torch.testing.assert_close(made.get_parameter(name).grad, parameter.grad, msg=name)


# ---- what users do with modules


def test_saving_what_was_loaded_gives_the_same_file(tmp_path):
    first, second = tmp_path / "first", tmp_path / "second"
    for model in (classifier(momentum=0.3), Twice().eval(), Bare().eval(), network("u-net")):
        save(model, first, force=True)
        save(load(first).model, second, force=True)
        assert first.read_bytes() == second.read_bytes()


def test_copies_and_pickles_have_layers_of_their_own(again):
    made = again(classifier())
    for other in (copy.deepcopy(made), pickle.loads(pickle.dumps(made))):
        assert torch.equal(other(IMAGES), made(IMAGES))
        other.get_submodule("0").weight.data.zero_()
        assert not torch.equal(other(IMAGES), made(IMAGES))


def test_inputs_may_be_named():
    class Two(nn.Module):
        def forward(self, left, right):
            return left - right

    made = compact(Two(), (IMAGES, 2 * IMAGES)).model
    assert torch.equal(made(right=IMAGES, left=2 * IMAGES), IMAGES)
    assert torch.equal(made(2 * IMAGES, right=IMAGES), IMAGES)
    for given, named, said in (
        ((IMAGES,), {}, "takes 2 inputs .left, right., not 1"),
        ((IMAGES, IMAGES), {"up": IMAGES}, "not 2 and up"),
        ((IMAGES, IMAGES), {"left": IMAGES}, "not 2 and left"),
    ):
        with pytest.raises(BadInput, match=said):
            made(*given, **named)


def test_a_layer_in_anothers_place_is_the_one_that_runs(again, tmp_path):
    made = again(classifier())
    made.add_module("8", nn.Linear(96, 7))
    made.add_module("5", nn.Hardshrink())
    made.add_module("4", parametrizations.weight_norm(nn.Conv2d(8, 6, 3)))
    wanted = made(IMAGES)
    assert wanted.shape == (8, 7)
    torch.testing.assert_close(as_module(capture(made))(IMAGES), wanted)
    torch.testing.assert_close(compact(made, IMAGES).model(IMAGES), wanted)
    made.add_module("5", nn.ReLU6())
    torch.testing.assert_close(stored(made, tmp_path / "net")(IMAGES), made(IMAGES))
    del made._modules["8"]
    with pytest.raises(BadInput, match="its layer '8', which is not there"):
        made(IMAGES)


@pytest.mark.parametrize(
    "other",
    [
        nn.Conv2d(8, 6, 3, padding=1, padding_mode="circular"),
        nn.Conv2d(8, 6, 3, padding="same"),
        nn.Sequential(nn.Conv2d(8, 6, 1)),
    ],
    ids=repr,
)
def test_a_layer_of_another_kind_is_captured_as_what_it_is(other):
    made = compact(classifier()[:6], IMAGES).model
    made.add_module("4", other)
    with torch.no_grad():
        torch.testing.assert_close(as_module(capture(made.eval()))(IMAGES), made(IMAGES))


def test_a_hook_is_part_of_what_is_captured():
    made = compact(classifier(), IMAGES).model
    made.get_submodule("8").register_forward_hook(lambda layer, given, result: 2 * result)
    torch.testing.assert_close(as_module(capture(made))(IMAGES), made(IMAGES))


def test_torch_compiles_it_whole(again):
    made = again(classifier())
    whole = torch.compile(made, backend="eager", fullgraph=True)
    assert torch.equal(whole(IMAGES), made(IMAGES))


@untraced
@pytest.mark.parametrize("name", ["resnet-20", "mobilenet-v2", "u-net-bilinear"])
def test_it_may_be_traced_and_be_part_of_another(name):
    images = torch.randn(1, 3, 32, 32)
    made = compact(network(name), images).model
    wanted = made(images)
    assert torch.equal(torch.fx.symbolic_trace(made)(images), wanted)
    larger = nn.Sequential(made, nn.ReLU()).eval()
    assert torch.equal(as_module(capture(larger))(images), wanted.relu())
    assert all(node.call is None for node in capture(larger))


def test_frozen_weights_stay_frozen():
    model = classifier()
    model[0].requires_grad_(False)
    made = compact(scrambled(model, zero=0.0), IMAGES).model
    assert [name for name, x in made.named_parameters() if not x.requires_grad] == ["0.weight"]


# ---- names and structures of the user's own


class Doubled(nn.Conv2d):
    def forward(self, x):
        return 2 * super().forward(x)


class Weighty(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(4, 3))

    def forward(self, x):
        return nn.functional.linear(x, self.weight).relu()


@pytest.mark.filterwarnings("ignore:Using padding='same'")
@pytest.mark.parametrize(
    ("layer", "keys"),
    [
        (nn.Conv2d(3, 4, 3, padding=1, padding_mode="circular"), ["0.weight", "0.bias"]),
        (nn.Conv2d(3, 4, 4, padding="same"), ["0.weight", "0.bias"]),
        (Doubled(3, 4, 3, bias=False), ["0.weight"]),
        (parametrizations.weight_norm(nn.Conv2d(3, 4, 3, bias=False)), ["0.weight"]),
        (nn.Sequential(nn.Flatten(2), nn.Flatten(), Weighty()), ["0.2.weight"]),
    ],
    ids=["circular", "same", "subclass", "parametrized", "function"],
)
def test_a_layers_weights_keep_its_name(again, layer, keys):
    images = IMAGES if len(keys[0]) == 8 else IMAGES[:, :, :1, :1]
    model = nn.Sequential(copy.deepcopy(layer)).eval()
    made = again(model, images)
    torch.testing.assert_close(made(images), model(images))
    assert list(made.state_dict()) == keys


def test_a_changed_network_of_two_inputs_knows_them(tmp_path):
    class Two(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = nn.Conv2d(3, 4, 3), nn.Conv2d(3, 4, 3)

        def forward(self, left, right):
            return self.first(left) - self.second(right)

    pair = (IMAGES, IMAGES.flip(0))
    made = compact(seeded(Two()), pair).model
    made.first = nn.Conv2d(3, 4, 3, padding=1, stride=2, padding_mode="circular")
    made.second = made.first
    assert torch.equal(stored(made, tmp_path / "net")(*pair), made(*pair))


def test_structures_are_plain_ones(again):
    class Many(nn.Module):
        def forward(self, x):
            return {"a": [x, None], "b": (x.relu(), 3)}

    given = again(Many())(IMAGES)
    assert type(given) is dict
    assert [type(part) for part in given.values()] == [list, tuple]


def test_a_change_in_place_after_dropout_is_one_before_it_too():
    class Changing(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv, self.drop = nn.Conv2d(3, 4, 3), nn.Dropout(0.5)

        def forward(self, x):
            x = self.conv(x)
            y = self.drop(self.drop(x))
            y += 1
            y.relu_()
            return x - 3 * y

    model = seeded(Changing())
    assert compact(model, IMAGES).difference == 0


@pytest.mark.parametrize("shape", [(), (1,), (8, 1, 1), (1, 8, 1, 1), (1, 6)], ids=str)
def test_an_array_of_few_axes_keeps_no_channel(shape, tmp_path):
    class Scaled(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = nn.Conv2d(3, 8, 3), nn.Conv2d(8, 4, 3)
            self.scale = nn.Parameter(torch.randn(shape))

        def forward(self, x):
            return self.second((self.scale * self.first(x) - self.scale).relu())

    torch.manual_seed(0)
    model = Scaled().double().eval()
    with torch.no_grad():
        model.first.weight[:3] = 0
        if shape == (1, 6):
            model.first.bias[:3] = model.scale[0, 0]  # so that no constant is one everywhere
    made = compact(model, IMAGES.double()).model
    assert made.first.out_channels == (5 if shape != (1, 6) else 8)
    assert tuple(made.scale.shape) == tuple(5 if n == 8 else n for n in shape)
    made(IMAGES.double()).sum().backward()
    assert made.scale.grad is not None
    assert torch.equal(stored(made, tmp_path / "net")(IMAGES.double()), made(IMAGES.double()))


class Dropping(nn.Module):
    """Drops in one of several ways."""

    def __init__(self, training):
        super().__init__()
        self.first, self.training_now = nn.Linear(6, 6), training

    def forward(self, x):
        x = self.first(x)
        return nn.functional.dropout(x, 0.5, training=self.training_now(self))


@pytest.mark.parametrize(
    ("training", "drops"),
    [
        (lambda self: self.training, True),
        (lambda self: self.first.training, True),
        (lambda self: False, False),
    ],
)
def test_a_dropout_that_is_off_for_good_stays_off_in_training(again, training, drops):
    model = Dropping(training).eval()
    rows = torch.randn(4, 6)
    for way in (nn.Module.eval, nn.Module.train):
        network = way(again(model, rows))
        dropped = bool((network(rows) == 0).any())
        assert dropped == (drops and network.training)


def test_a_dropout_of_a_loop_is_off_in_its_own_turn_alone():
    class Looping(nn.Module):
        def forward(self, x):
            for on in (True, False):
                x = nn.functional.dropout(x, 0.5, training=self.training and on)
            return x

    model = Looping().eval()
    assert [node.op for node in capture(model)] == ["dropout"]
