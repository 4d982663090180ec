"""Networks with nothing left at its default: random statistics, biases and supports."""

import torch
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

from sparsepath.lab.models import NETWORKS, PUBLISHED, DenseNet, UNet

BUILDERS = {
    **NETWORKS,
    **{
        f"{name}-bn": lambda classes, channels, network=network: network(
            classes, channels, batch_norm=True
        )
        for name, network in NETWORKS.items()
    },
    **PUBLISHED,
    "densenet-bc-100": lambda classes, channels: DenseNet(classes, channels, depth=22),
    "u-net": lambda classes, channels: UNet(classes, channels, width=8),
    "u-net-bilinear": lambda classes, channels: UNet(classes, channels, width=8, bilinear=True),
}
SIZES = {
    "cnn": (32, 28),
    "low-rank-cnn": (32, 28),
    "cnn-bn": (32, 28),
    "low-rank-cnn-bn": (32, 28),
    "vgg-16-bn": (32, 40),
    "u-net": (32, 48),
    "u-net-bilinear": (32, 48),
}


def sizes(name):
    """Two image sizes that the network takes."""
    return SIZES.get(name, (32, 27))


def scrambled(model, *, zero=0.5, seed=0):
    """The model in eval mode with random statistics and biases, and a share of kernels zero."""
    generator = torch.Generator().manual_seed(seed)

    def uniform(tensor, low, high):
        tensor.copy_(torch.rand(tensor.shape, generator=generator) * (high - low) + low)

    with torch.no_grad():
        for layer in model.modules():
            if isinstance(layer, _BatchNorm):
                uniform(layer.running_mean, -0.5, 0.5)
                uniform(layer.running_var, 0.5, 2.0)
                uniform(layer.weight, -1.5, 1.5)
                uniform(layer.bias, -0.5, 0.5)
            elif isinstance(weight := getattr(layer, "weight", None), nn.Parameter):
                if weight.dim() < 2:
                    continue  # of a norm, or slopes
                if layer.bias is not None:
                    uniform(layer.bias, -0.5, 0.5)
                dead = torch.rand(weight.shape[:2], generator=generator) < zero
                weight[dead] = 0
    return model.eval()


def network(name, *, zero=0.5, channels=3):
    """A network by name, scrambled."""
    torch.manual_seed(0)
    return scrambled(BUILDERS[name](10, channels), zero=zero)
