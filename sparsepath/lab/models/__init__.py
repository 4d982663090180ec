"""The networks by name: those of the lab's runs, and published ones that deploying is proved on."""

import difflib
from collections.abc import Callable, Mapping
from functools import partial
from types import MappingProxyType

import torch
from torch import nn

from sparsepath.errors import BadInput
from sparsepath.lab.models.densenet import DenseNet
from sparsepath.lab.models.mobilenet import MobileNetV1, MobileNetV2
from sparsepath.lab.models.network import Network
from sparsepath.lab.models.paper import CNN, NIN, DigitNet, LowRankCNN, LowRankNIN
from sparsepath.lab.models.resnet import ResNet
from sparsepath.lab.models.unet import UNet
from sparsepath.lab.models.vgg import VGG16

__all__ = [
    "CNN",
    "NETWORKS",
    "NIN",
    "PUBLISHED",
    "VGG16",
    "DenseNet",
    "DigitNet",
    "LowRankCNN",
    "LowRankNIN",
    "MobileNetV1",
    "MobileNetV2",
    "Network",
    "ResNet",
    "UNet",
    "build",
]

NETWORKS: Mapping[str, type[Network]] = MappingProxyType(
    {
        "nin": NIN,
        "low-rank-nin": LowRankNIN,
        "cnn": CNN,
        "low-rank-cnn": LowRankCNN,
        "digit-net": DigitNet,
    }
)
"""The networks of a run: a chain of layers that knows which of them are sparsified."""

PUBLISHED: Mapping[str, Callable[[int, int], nn.Module]] = MappingProxyType(
    {
        "resnet-20": partial(ResNet, depth=20),
        "resnet-56": partial(ResNet, depth=56),
        "vgg-16-bn": VGG16,
        "mobilenet-v1": MobileNetV1,
        "mobilenet-v2": MobileNetV2,
        "densenet-bc-100": DenseNet,
        "u-net": UNet,
    }
)
"""Networks of others for 32 x 32 images, from (classes, channels), as published."""


def build(
    name: str,
    *,
    classes: int,
    image_shape: tuple[int, int, int],
    dropout: float | None = None,
    batch_norm: bool = False,
) -> Network:
    """The network of that name for images of (channels, height, width), or a sentence why not."""
    if name not in NETWORKS:
        near = difflib.get_close_matches(name, NETWORKS, n=1)
        hint = f", perhaps {near[0]!r}" if near else ""
        raise BadInput(f"There is no network {name!r}; choose one of {', '.join(NETWORKS)}{hint}.")
    channels, height, width = image_shape
    network = NETWORKS[name](classes, channels, dropout=dropout, batch_norm=batch_norm)
    try:
        with torch.no_grad():
            network.eval()(torch.zeros(1, channels, height, width))
    except RuntimeError as error:
        raise BadInput(
            f"The network {name!r} cannot take images of {height} x {width}; "
            "choose another network or resize the images."
        ) from error
    return network.train()
