"""The published networks are the published ones: parameter counts and shapes."""

import pytest
import torch
from torch import nn

from sparsepath.errors import BadInput
from sparsepath.lab.models import PUBLISHED, DenseNet, MobileNetV1, MobileNetV2, ResNet, UNet

# As the papers print them, in millions, at the classes of the papers.
PRINTED = [
    ("ResNet-20", ResNet(depth=20), 0.27),
    ("ResNet-56", ResNet(depth=56), 0.85),
    ("ResNet-110", ResNet(depth=110), 1.7),
    ("MobileNetV1", MobileNetV1(1000), 4.2),
    ("DenseNet-BC-100", DenseNet(), 0.8),
]
# As the implementations that most people use count them.
KNOWN = {"resnet-20": 269_722, "resnet-56": 853_018, "vgg-16-bn": 14_728_266}


def parameters(model):
    return sum(parameter.numel() for parameter in model.parameters())


@pytest.mark.parametrize(("model", "millions"), [row[1:] for row in PRINTED], ids=lambda _: "")
def test_parameter_counts_round_to_the_printed_ones(model, millions):
    digits = len(str(millions).split(".")[1])
    assert round(parameters(model) / 1e6, digits) == millions


@pytest.mark.parametrize("name", KNOWN)
def test_parameter_counts_are_the_known_ones(name):
    assert parameters(PUBLISHED[name](10, 3)) == KNOWN[name]


def test_mobilenet_v2_and_u_net_are_as_large_as_everyone_has_them():
    assert parameters(MobileNetV2(1000)) == 3_504_872
    assert 31.0 < parameters(UNet(2, 1, width=64)) / 1e6 < 31.1


@pytest.mark.parametrize("name", PUBLISHED)
def test_they_take_any_class_count_and_channels(name):
    logits = PUBLISHED[name](7, 1).eval()(torch.zeros(2, 1, 32, 32))
    assert logits.shape == ((2, 7, 32, 32) if name == "u-net" else (2, 7))


@pytest.mark.parametrize("bilinear", [False, True])
def test_a_u_net_takes_sides_of_multiples_of_16(bilinear):
    network = UNet(3, width=4, bilinear=bilinear).eval()
    assert network(torch.zeros(1, 3, 48, 16)).shape == (1, 3, 48, 16)


def test_a_resnet_shortcut_takes_every_other_pixel_and_adds_zero_maps():
    block = ResNet().eval().blocks[3]
    nn.init.zeros_(block.norm2.weight)
    images = torch.rand(1, 16, 8, 8)
    maps = block(images)
    assert torch.equal(maps[:, :16], images[:, :, ::2, ::2])
    assert not maps[:, 16:].any()


@pytest.mark.parametrize(("network", "depth"), [(ResNet, 21), (ResNet, 2), (DenseNet, 20)])
def test_a_depth_that_does_not_exist_is_refused(network, depth):
    with pytest.raises(BadInput, match=f"not {depth}"):
        network(depth=depth)
