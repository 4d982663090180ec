"""The networks are the paper's: golden block counts, MACs, names, shapes."""

import pytest
import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from sparsepath.errors import BadInput
from sparsepath.lab.models import CNN, NETWORKS, NIN, DigitNet, LowRankCNN, LowRankNIN, build
from sparsepath.lab.models.products import SameSize, as_product, convolved

GOLDEN = {
    NIN: "576-18432-36864-36864",
    LowRankNIN: "288-288-9216-9216-18432-18432-18432-18432",
    CNN: "288-12288-32768-16384-256",
    LowRankCNN: "144-144-6144-6144-16384-16384-8192-8192-256",
    DigitNet: "24-1152-3072",
}


def block_count(layer):
    """Kernels of a convolution, rows of a linear layer."""
    if isinstance(layer, nn.Conv2d):
        return layer.out_channels * layer.in_channels // layer.groups
    return layer.out_features


def million_macs(network, channels, size):
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        network.eval()(torch.zeros(1, channels, size, size))
    return counter.get_total_flops() / 2e6


@pytest.mark.parametrize("network_type", GOLDEN, ids=lambda network: network.__name__)
def test_block_counts_are_the_golden_ones(network_type):
    network = network_type()
    counts = [block_count(network.get_submodule(name)) for name in network_type.sparsified]
    assert "-".join(map(str, counts)) == GOLDEN[network_type]


@pytest.mark.parametrize("network_type", [NIN, LowRankNIN, CNN, LowRankCNN])
def test_every_layer_that_is_not_pointwise_or_the_classifier_is_sparsified(network_type):
    weighted = [
        name
        for name, layer in network_type().named_modules()
        if isinstance(layer, nn.Linear)
        or (isinstance(layer, nn.Conv2d) and layer.kernel_size != (1, 1))
    ]
    assert [name for name in weighted if name != "fc2"] == list(network_type.sparsified)


def test_macs_are_the_known_ones():
    assert million_macs(CNN(), 3, 32) == pytest.approx(52.464128, abs=1e-9)
    assert million_macs(NIN(), 3, 32) == pytest.approx(222.486528, abs=1e-9)


def test_parameters_carry_readable_names():
    assert "conv1.weight" in dict(NIN().named_parameters())
    assert LowRankNIN().get_parameter("conv1.horizontal.weight").shape == (96, 3, 1, 3)
    assert LowRankNIN().get_parameter("conv1.vertical.weight").shape == (96, 3, 3, 1)
    assert CNN(classes=100).get_parameter("fc2.weight").shape == (100, 256)


def test_low_rank_branches_stand_side_by_side():
    layer = LowRankCNN().get_submodule("conv1")
    images = torch.randn(2, 3, 8, 8)
    maps = layer(images)
    assert maps.shape == (2, 96, 8, 8)
    torch.testing.assert_close(maps[:, :48], layer.horizontal(images))
    torch.testing.assert_close(maps[:, 48:], layer.vertical(images))


@pytest.mark.parametrize(("inputs", "outputs", "size"), [(3, 16, 3), (16, 10, 1), (5, 7, 5)])
def test_a_convolution_is_the_same_as_a_product_of_patches(inputs, outputs, size):
    layer = SameSize(inputs, outputs, size).double()
    images = torch.randn(2, inputs, 6, 9, dtype=torch.double, requires_grad=True)
    asked = (images, layer.weight, layer.bias)
    theirs, ours = layer(images), as_product(*asked)
    torch.testing.assert_close(ours, theirs)
    weights = torch.randn_like(theirs)
    torch.testing.assert_close(
        torch.autograd.grad((ours * weights).sum(), asked),
        torch.autograd.grad((theirs * weights).sum(), asked),
    )


def test_low_rank_branches_are_the_same_as_one_convolution():
    layer = LowRankCNN().get_submodule("conv2").double()
    images = torch.randn(2, 96, 8, 8, dtype=torch.float64)
    apart, together = layer(images), convolved(images, *layer.whole())
    torch.testing.assert_close(apart, together)
    weights = list(layer.parameters())
    for one, other in zip(
        *(torch.autograd.grad(maps.square().sum(), weights) for maps in (apart, together)),
        strict=True,
    ):
        torch.testing.assert_close(one, other)


@pytest.mark.parametrize("batch_norm", [False, True])
@pytest.mark.parametrize("size", [28, 32])
@pytest.mark.parametrize("name", NETWORKS)
def test_every_network_takes_digits_and_colour_images(name, size, batch_norm):
    network = build(name, classes=7, image_shape=(1, size, size), batch_norm=batch_norm)
    assert network.training
    assert network.eval()(torch.zeros(2, 1, size, size)).shape == (2, 7)
    norms = [layer for layer in network.modules() if isinstance(layer, nn.BatchNorm2d)]
    assert bool(norms) == batch_norm


def test_digit_net_takes_any_size():
    for size in (8, 20, 64):
        assert DigitNet(channels=3)(torch.zeros(2, 3, size, size)).shape == (2, 10)


def test_biases_start_at_zero_and_the_signal_keeps_its_scale():
    torch.manual_seed(0)
    network = NIN().eval()
    assert all(not bias.any() for name, bias in network.named_parameters() if "bias" in name)
    scales = []
    for name in ("relu1", "relu5", "relu9"):
        network.get_submodule(name).register_forward_hook(
            lambda layer, inputs, maps: scales.append(maps.pow(2).mean().sqrt().item())
        )
    with torch.no_grad():
        network(torch.randn(2, 3, 32, 32))
    assert len(scales) == 3
    assert all(0.5 < scale < 3 for scale in scales), scales


@pytest.mark.parametrize("name", NETWORKS)
def test_a_fresh_network_has_no_strong_opinion_and_still_tells_images_apart(name):
    torch.manual_seed(0)
    logits = build(name, classes=10, image_shape=(3, 32, 32)).eval()(torch.randn(8, 3, 32, 32))
    assert 1e-3 < logits.std() < 1


def test_dropout_has_a_usual_rate_and_can_be_set():
    def rates(network):
        return {layer.p for layer in network.modules() if isinstance(layer, nn.Dropout)}

    usual = {NIN: 0.3, LowRankNIN: 0.3, CNN: 0.25, LowRankCNN: 0.2, DigitNet: 0.0}
    for network_type, rate in usual.items():
        assert rates(network_type()) == {rate}
        assert rates(network_type(dropout=0.5)) == {0.5}


def test_building_draws_no_random_number_beyond_the_weights():
    torch.manual_seed(3)
    built = build("digit-net", classes=10, image_shape=(1, 28, 28), dropout=0.5)
    after_build = torch.rand(1)
    torch.manual_seed(3)
    plain = DigitNet(dropout=0.5)
    assert torch.equal(after_build, torch.rand(1))
    for name, parameter in plain.named_parameters():
        assert torch.equal(parameter, built.get_parameter(name))


@pytest.mark.parametrize(
    ("name", "shape", "says"),
    [
        ("low-rank-ninn", (3, 32, 32), "perhaps 'low-rank-nin'"),
        ("resnet-50", (3, 32, 32), "choose one of nin, low-rank-nin, cnn"),
        ("cnn", (3, 64, 64), "'cnn' cannot take images of 64 x 64"),
        ("nin", (3, 2, 2), "'nin' cannot take images of 2 x 2"),
    ],
)
def test_a_network_that_cannot_be_built_gets_a_sentence(name, shape, says):
    with pytest.raises(BadInput) as caught:
        build(name, classes=10, image_shape=shape)
    assert says in str(caught.value)


@pytest.mark.parametrize(
    "wrong", [{"classes": 1}, {"channels": 0}, {"dropout": 1.0}, {"dropout": -0.1}]
)
def test_settings_without_sense_are_refused(wrong):
    with pytest.raises(BadInput, match=next(iter(wrong))):
        NIN(**wrong)
