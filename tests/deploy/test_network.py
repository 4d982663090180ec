"""A graph as a module does what users do with modules."""

import copy

import pytest
import torch
from torch import nn

from sparsepath.deploy.capture.capture import capture
from sparsepath.deploy.graph.network import GraphNetwork
from sparsepath.deploy.running.runtime import compile
from sparsepath.deploy.shrinking.compact import compact

from .cases import network, scrambled


def small():
    torch.manual_seed(0)
    model = scrambled(
        nn.Sequential(
            *(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 6, 3), nn.ReLU()),
            *(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(6, 4)),
        ),
        zero=0.0,
    )
    model[0].weight.data[:3] = 0
    return model


IMAGES = torch.randn(4, 3, 9, 9, generator=torch.Generator().manual_seed(0))


@pytest.fixture
def made():
    return compact(small(), IMAGES).model


def test_its_keys_are_those_of_the_model(made):
    own = small()
    assert list(made.state_dict()) == list(own.state_dict())
    assert dict(made.named_parameters()).keys() == dict(own.named_parameters()).keys()
    assert [type(layer) for layer in made.children()] == [type(layer) for layer in own]


def test_it_trains(made):
    made.train()
    optimizer = torch.optim.SGD(made.parameters(), lr=0.1)
    before = copy.deepcopy(made.state_dict())
    losses = []
    for _ in range(20):
        loss = nn.functional.cross_entropy(made(IMAGES), torch.tensor([0, 1, 2, 3]))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < losses[0]
    # A bias before a batch norm has no gradient; all else moves, and the statistics follow.
    still = [name for name, x in made.state_dict().items() if torch.equal(x, before[name])]
    assert set(still) <= {"0.bias"}


def test_batch_norm_trains_as_torchs_own_does():
    model = nn.Sequential(nn.BatchNorm2d(3))
    ours = GraphNetwork(capture(model.eval()))
    torch.testing.assert_close(ours.train()(IMAGES), model.train()(IMAGES))
    for key in ("0.running_mean", "0.running_var"):
        torch.testing.assert_close(ours.state_dict()[key], model.state_dict()[key])


def test_it_moves_between_types_and_devices(made):
    wanted = made(IMAGES)
    torch.testing.assert_close(made.double()(IMAGES.double()).float(), wanted)
    assert made.float().to("meta")(IMAGES.to("meta")).shape == wanted.shape


def test_a_copy_is_a_copy(made):
    other = copy.deepcopy(made)
    other.get_parameter("0.weight").data.zero_()
    assert made.get_parameter("0.weight").any()
    assert not torch.equal(other(IMAGES), made(IMAGES))
    other.load_state_dict(made.state_dict())
    assert torch.equal(other(IMAGES), made(IMAGES))


def test_capturing_it_takes_the_weights_of_the_moment(made):
    graph = capture(made)
    made.get_parameter("0.weight").data.zero_()
    assert graph["0"].arrays["weight"].any()
    assert not capture(made)["0"].arrays["weight"].any()


def test_the_runtime_takes_it(made):
    runtime = compile(made, IMAGES, tune=False)
    torch.testing.assert_close(runtime(IMAGES), made(IMAGES), rtol=0, atol=1e-5)


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
def test_torch_exports_it(made):
    batch = torch.export.Dim("batch")
    program = torch.export.export(made, (IMAGES,), dynamic_shapes=({0: batch},))
    assert torch.equal(program.module()(IMAGES[:3]), made(IMAGES[:3]))


def test_a_part_that_only_torch_can_run_moves_and_is_saved_too():
    class Odd(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = nn.Linear(4, 4)

        def forward(self, x):
            return self.inner(x if x.sum() > 0 else -x)

    model = nn.Sequential(small(), Odd()).eval()
    ours = GraphNetwork(capture(model))
    assert torch.equal(ours(IMAGES), model(IMAGES))
    assert len(list(ours.parameters())) == len(list(model.parameters()))
    other = copy.deepcopy(ours).double()
    assert other(IMAGES.double()).dtype == torch.float64
    assert torch.equal(ours(IMAGES), model(IMAGES))


def test_names_that_a_module_has_itself_hide_nothing():
    model = nn.Sequential()
    for name in ("forward_", "graph", "below", "_graph", "extra_repr"):
        model.add_module(name, nn.Conv2d(3, 3, 1)) if not hasattr(model, name) else None
    ours = GraphNetwork(capture(model.eval()))
    assert torch.equal(ours(IMAGES), model(IMAGES))
    assert len(list(ours.parameters())) == 2 * len(model)


def test_it_shows_its_shapes():
    shown = repr(GraphNetwork(capture(network("resnet-20"))))
    assert "Conv2d(3, 16, kernel_size=(3, 3)" in shown
    assert "gain=(8, 1, 1), offset=(8, 1, 1)" in repr(GraphNetwork(capture(Foreign().eval())))


class Foreign(nn.Module):
    """Weights of operations that no graph knows: functions, a whole module twice, a bare one."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 3)
        self.norm = nn.RMSNorm(7)
        self.slope = nn.Parameter(torch.rand(8, 1, 1))
        self.whole = Untraceable()
        self.gain = nn.Parameter(torch.randn(8, 1, 1))
        self.register_buffer("offset", torch.randn(8, 1, 1))

    def forward(self, x):
        x = torch.lerp(self.offset, self.norm(self.conv(x)), self.slope)
        return torch.lerp(self.offset, self.whole(self.whole(x)), self.gain)


class Untraceable(nn.Module):
    def __init__(self):
        super().__init__()
        self.mix = nn.Conv2d(8, 8, 1)

    def forward(self, x):
        return self.mix(x) if x.sum() > 0 else self.mix(-x)


def test_weights_of_unknown_operations_are_kept():
    torch.manual_seed(0)
    model = Foreign().eval()
    made = compact(model, IMAGES)
    count = sum(x.numel() for x in model.parameters())
    assert made.parameters == (count, count)
    assert {"norm.weight", "slope"} <= set(made.model.state_dict())
    sizes = sorted(x.numel() for x in model.state_dict().values())
    assert sorted(x.numel() for x in made.model.state_dict().values()) == sizes
    wide = copy.deepcopy(made.model).double()
    assert torch.allclose(wide(IMAGES.double()), model.double()(IMAGES.double()), rtol=1e-10)
    made.model(IMAGES).sum().backward()
    assert all(x.grad is not None for x in made.model.parameters())


def test_a_weight_of_an_unknown_operation_and_a_known_one_stays_one():
    class Twice(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv, self.gain = nn.Conv2d(3, 8, 3), nn.Parameter(torch.rand(8, 1, 1))

        def forward(self, x):
            x = self.conv(x)
            return torch.lerp(x, 2 * x, self.gain) * self.gain

    made = compact(Twice().eval(), IMAGES).model
    assert [name for name, _ in made.named_parameters()] == ["gain", "conv.weight", "conv.bias"]


def test_weights_of_unknown_operations_come_back_from_a_state_dict():
    torch.manual_seed(0)
    first, second = (compact(Foreign().eval(), IMAGES).model for _ in range(2))
    assert not torch.allclose(first(IMAGES), second(IMAGES))
    second.load_state_dict(first.state_dict())
    assert torch.equal(first(IMAGES), second(IMAGES))
    assert torch.equal(compact(second, IMAGES).model(IMAGES), first(IMAGES))
