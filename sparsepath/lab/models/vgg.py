"""VGG-16 with batch norm, its three linear layers replaced by one, as usual for 32 x 32 images."""

import torch
from torch import nn

STAGES = ((64, 64), (128, 128), (256, 256, 256), (512, 512, 512), (512, 512, 512))


class VGG16(nn.Module):
    """Thirteen 3 x 3 convolutions in five stages, each ended by a pool."""

    def __init__(self, classes: int = 10, channels: int = 3) -> None:
        """Every convolution with batch norm and ReLU."""
        super().__init__()
        layers: list[nn.Module] = []
        for stage in STAGES:
            for width in stage:
                layers += [nn.Conv2d(channels, width, 3, padding=1), nn.BatchNorm2d(width)]
                layers.append(nn.ReLU(inplace=True))
                channels = width
            layers.append(nn.MaxPool2d(2))
        self.features = nn.Sequential(*layers)
        self.average = nn.AdaptiveAvgPool2d(1)
        self.classifier = nn.Linear(channels, classes)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """The logits."""
        maps = self.average(self.features(images))
        logits: torch.Tensor = self.classifier(torch.flatten(maps, 1))
        return logits
