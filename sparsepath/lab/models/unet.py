"""U-Net (Ronneberger et al. 2015) with padding and batch norm: a class for every pixel."""

from itertools import pairwise

import torch
from torch import nn


class Pair(nn.Sequential):
    """Two 3 x 3 convolutions with batch norm and ReLU."""

    def __init__(self, inputs: int, outputs: int) -> None:
        """Both give `outputs` maps."""
        layers: list[nn.Module] = []
        for width in (inputs, outputs):
            layers += [
                nn.Conv2d(width, outputs, 3, padding=1, bias=False),
                nn.BatchNorm2d(outputs),
                nn.ReLU(inplace=True),
            ]
        super().__init__(*layers)


def _doubling(inputs: int, *, bilinear: bool) -> nn.Module:
    if bilinear:
        return nn.Sequential(
            nn.Upsample(scale_factor=2, mode="bilinear"), nn.Conv2d(inputs, inputs // 2, 1)
        )
    return nn.ConvTranspose2d(inputs, inputs // 2, 2, stride=2)


class UNet(nn.Module):
    """Four halvings and four doublings, for images whose sides are multiples of 16."""

    def __init__(
        self, classes: int = 10, channels: int = 3, *, width: int = 16, bilinear: bool = False
    ) -> None:
        """`width` maps at full size (64 in the paper), twice as many at each halving."""
        super().__init__()
        widths = [width * 2**level for level in range(5)]
        self.first = Pair(channels, width)
        self.pool = nn.MaxPool2d(2)
        steps = list(pairwise(widths))
        back = steps[::-1]
        self.down = nn.ModuleList(Pair(above, below) for above, below in steps)
        self.doubling = nn.ModuleList(_doubling(below, bilinear=bilinear) for _, below in back)
        self.up = nn.ModuleList(Pair(below, above) for above, below in back)
        self.last = nn.Conv2d(width, classes, 1)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """The logits of every pixel."""
        levels = [self.first(images)]
        for down in self.down:
            levels.append(down(self.pool(levels[-1])))
        maps = levels.pop()
        for doubling, up in zip(self.doubling, self.up, strict=True):
            maps = up(torch.cat((levels.pop(), doubling(maps)), dim=1))
        logits: torch.Tensor = self.last(maps)
        return logits
