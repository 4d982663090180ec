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


class Response(nn.Module):
    """A response norm like ConvNeXt V2's, folded pixels, a pool of all, and a length of one."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Conv2d(3, 8, 3, padding=1), nn.Conv2d(8, 6, 3, padding=1)
        self.third, self.fc = nn.Conv2d(6 * 4, 10, 1), nn.Linear(10, 5)
        self.weight, self.bias = (nn.Parameter(torch.randn(6, 1, 1)) for _ in range(2))
        self.fold = nn.PixelUnshuffle(2)

    def forward(self, x):
        x = self.second(self.first(x).relu())
        lengths = x.norm(p=2, dim=(2, 3), keepdim=True)
        share = lengths / (lengths.mean(1, keepdim=True) + 1e-6)
        x = x + torch.addcmul(self.bias, self.weight, x * share)
        x = nn.functional.softsign(self.third(self.fold(x)))
        x = nn.functional.avg_pool2d(x, x.size()[2:]).flatten(1)
        return self.fc(nn.functional.normalize(x))
