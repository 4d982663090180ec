"""Each pass keeps the function of a graph, to the rounding of float64, and shortens it."""

from collections import Counter

import pytest
import torch
from torch import nn
from tracing import untraced

from sparsepath.deploy.capture.capture import capture
from sparsepath.deploy.graph import fold
from sparsepath.deploy.graph.reference import run

from .cases import BUILDERS, network, scrambled, sizes

PASSES = (
    fold.without_dead_code,
    fold.fold_batch_norm,
    fold.name_affine,
    fold.lift_over_concatenations,
    fold.fuse_activations,
    fold.fuse_pools,
    fold.folded,
)


def same(before, after, *inputs):
    wanted = run(before, *inputs)
    torch.testing.assert_close(run(after, *inputs), wanted, rtol=0, atol=1e-11 * wanted.abs().max())


def ops(graph):
    return Counter(node.op for node in graph)


@untraced
@pytest.mark.parametrize("name", BUILDERS)
def test_every_pass_keeps_the_function_of_every_network(name):
    graph = capture(network(name).double())
    usual, other = (torch.randn(2, 3, n, n, dtype=torch.float64) for n in sizes(name))
    for step in PASSES:
        same(graph, step(graph), usual)
    same(graph, fold.folded(graph), other)


@untraced
@pytest.mark.parametrize("name", BUILDERS)
def test_no_batch_norm_is_left_and_folding_again_changes_nothing(name):
    graph = fold.folded(capture(network(name)))
    left = ops(graph)
    assert "batch_norm" not in left
    if "densenet" not in name:
        assert not {"affine", "relu", "relu6"} & set(left)
    assert [repr(node) for node in fold.folded(graph)] == [repr(node) for node in graph]


def test_pools_and_activations_of_the_paper_networks_are_fused():
    assert ops(fold.folded(capture(network("cnn-bn")))) == {"conv": 4, "flatten": 1, "linear": 2}
    assert ops(fold.folded(capture(network("nin-bn")))) == {
        "conv": 10,
        "adaptive_avg_pool": 1,
        "flatten": 1,
    }
    assert fold.folded(capture(network("cnn")))["conv2"].attributes["pool"] == (2, True)


def folded_and_checked(model, *shape):
    model = scrambled(model).double()
    graph = capture(model)
    short = fold.folded(graph)
    images = torch.randn(shape, dtype=torch.float64)
    same(graph, short, images)
    with torch.no_grad():
        torch.testing.assert_close(run(short, images), model(images), rtol=0, atol=1e-10)
    return short


def test_transposed_and_grouped_layers_take_in_their_batch_norm():
    for layer in (
        nn.ConvTranspose2d(4, 6, 3, groups=2),
        nn.ConvTranspose2d(4, 6, 2, stride=2, bias=False),
        nn.Conv2d(4, 6, 3, groups=2),
    ):
        short = folded_and_checked(nn.Sequential(layer, nn.BatchNorm2d(6)), 2, 4, 5, 5)
        assert len(short.nodes) == 1


class Joined(nn.Module):
    def __init__(self):
        super().__init__()
        self.left, self.right = nn.Conv2d(4, 2, 3), nn.Conv2d(4, 5, 3)
        self.norm = nn.BatchNorm2d(7)

    def forward(self, images):
        return self.norm(torch.cat((self.left(images), self.right(images)), 1)).relu()


def test_layers_that_are_joined_take_in_their_parts_of_what_follows():
    short = folded_and_checked(Joined(), 2, 4, 5, 5)
    assert ops(short) == {"conv": 2, "cat": 1}
    assert all(short[name].attributes["activation"] == "relu" for name in ("left", "right"))
    assert [repr(node) for node in fold.folded(short)] == [repr(node) for node in short]


def test_lines_take_in_their_batch_norm():
    short = folded_and_checked(nn.Sequential(nn.Conv1d(4, 6, 3), nn.BatchNorm1d(6)), 2, 4, 9)
    assert ops(short) == {"conv": 1}


def test_a_linear_layer_takes_in_a_batch_norm_only_along_its_own_axis():
    flat = nn.Sequential(nn.Flatten(), nn.Linear(8, 6), nn.BatchNorm1d(6))
    assert ops(folded_and_checked(flat, 3, 2, 4)) == {"flatten": 1, "linear": 1}
    # Here batch norm runs along axis 1, which the linear layer leaves alone; both have length 6.
    deep = nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6))
    assert ops(folded_and_checked(deep, 3, 6, 4)) == {"linear": 1, "affine": 1}


def test_a_batch_norm_without_affine_parameters_is_folded_too():
    model = nn.Sequential(nn.Conv2d(4, 6, 3), nn.BatchNorm2d(6, affine=False)).eval()
    model[1].running_var.mul_(3)
    graph = capture(model.double())
    same(graph, fold.folded(graph), torch.randn(2, 4, 5, 5, dtype=torch.float64))


class TwoReaders(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.norm = nn.Conv2d(4, 4, 3, padding=1), nn.BatchNorm2d(4)
        self.pool = nn.MaxPool2d(2)

    def forward(self, x):
        maps = self.conv(x)
        normed = self.norm(maps)
        return maps.relu() + normed, self.pool(normed)


def test_what_two_nodes_read_is_not_changed_for_one_of_them():
    model = scrambled(TwoReaders()).double()
    graph = capture(model)
    short = fold.folded(graph)
    images = torch.randn(2, 4, 6, 6, dtype=torch.float64)
    for ours, theirs in zip(run(short, images), model(images), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-12)
    assert ops(short)["affine"] == 1
    assert "activation" not in short["conv"].attributes


def test_a_relu_behind_a_pool_moves_before_it():
    for first in (nn.Identity(), nn.ReLU6()):
        model = nn.Sequential(nn.Conv2d(4, 4, 3), first, nn.MaxPool2d(2, ceil_mode=True), nn.ReLU())
        short = folded_and_checked(model, 2, 4, 9, 7)
        assert len(short.nodes) == (1 if isinstance(first, nn.Identity) else 2)


def test_other_pools_stay_apart():
    for pool in (nn.MaxPool2d(3), nn.MaxPool2d(2, 1), nn.MaxPool2d(2, padding=1), nn.AvgPool2d(2)):
        assert (
            len(folded_and_checked(nn.Sequential(nn.Conv2d(4, 4, 3), pool), 2, 4, 9, 9).nodes) == 2
        )


def test_folding_rounds_once():
    model = scrambled(nn.Sequential(nn.Conv2d(8, 8, 3), nn.BatchNorm2d(8)))
    wide = fold.folded(capture(model).to(torch.float64))
    narrow = fold.folded(capture(model))
    for name in ("weight", "bias"):
        exact = wide.nodes[0].arrays[name]
        assert torch.equal(narrow.nodes[0].arrays[name], exact.float())


def test_zero_kernels_stay_zero():
    model = network("vgg-16-bn", zero=0.7)
    graph = fold.folded(capture(model))
    for name in ("features.3", "features.24"):
        dead = (model.get_submodule(name).weight == 0).flatten(2).all(-1)
        assert dead.float().mean() > 0.6
        assert not graph[name].arrays["weight"][dead].any()


def test_a_statistic_that_is_not_finite_is_not_folded():
    model = scrambled(nn.Sequential(nn.Conv2d(4, 4, 3), nn.BatchNorm2d(4)))
    model[1].running_mean[1] = torch.nan
    assert ops(fold.folded(capture(model))) == {"conv": 1, "affine": 1}


def test_dead_code_is_removed():
    class Wasteful(nn.Module):
        def forward(self, x):
            x.exp().sqrt()
            return x.abs()

    assert ops(fold.folded(capture(Wasteful()))) == {"abs": 1}


@pytest.mark.parametrize("bias", [False, True])
def test_a_batch_norm_stays_where_its_product_with_the_weights_overflows(bias):
    model = nn.Sequential(nn.Conv2d(3, 4, 3, bias=bias), nn.BatchNorm2d(4), nn.ReLU()).eval()
    with torch.no_grad():
        model[0].weight.mul_(1e30)
        model[1].weight.fill_(1e10)
    graph = capture(model)
    folded = fold.folded(graph)
    assert ops(folded) == {"conv": 1, "affine": 1}
    x = torch.randn(2, 3, 8, 8) * 1e-30
    torch.testing.assert_close(run(folded, x), run(graph, x))
