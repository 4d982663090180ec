"""ResNet for 32 x 32 images (He et al. 2016, section 4.2): shortcuts without parameters."""

import torch
from torch import nn

from sparsepath.errors import BadInput


class Block(nn.Module):
    """Two 3 x 3 convolutions beside a shortcut."""

    def __init__(self, inputs: int, outputs: int) -> None:
        """A block that halves the image where it widens."""
        super().__init__()
        self.stride = 1 if inputs == outputs else 2
        self.widening = outputs - inputs
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride=self.stride, padding=1, bias=False)
        self.norm1 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, padding=1, bias=False)
        self.norm2 = nn.BatchNorm2d(outputs)
        self.relu = nn.ReLU()

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """The sum of both ways, through a ReLU."""
        maps = self.relu(self.norm1(self.conv1(images)))
        maps = self.norm2(self.conv2(maps))
        if self.widening:
            # The paper's option A: every other pixel, and zero maps in place of the missing ones.
            images = images[:, :, :: self.stride, :: self.stride]
            images = nn.functional.pad(images, (0, 0, 0, 0, 0, self.widening))
        total: torch.Tensor = self.relu(maps + images)
        return total


class ResNet(nn.Module):
    """Three stages of 16, 32 and 64 maps between a convolution and a linear layer."""

    def __init__(self, classes: int = 10, channels: int = 3, *, depth: int = 20) -> None:
        """A network of `depth` weighted layers: 20, 32, 44, 56 or 110."""
        super().__init__()
        if depth < 8 or depth % 6 != 2:
            raise BadInput(f"A ResNet's depth is 6n + 2 (20, 32, 44, 56, 110), not {depth!r}.")
        self.conv = nn.Conv2d(channels, 16, 3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(16)
        self.relu = nn.ReLU()
        blocks = (depth - 2) // 6
        widths = [16] * blocks + [32] * blocks + [64] * blocks
        pairs = zip([16, *widths], widths, strict=False)
        self.blocks = nn.Sequential(*(Block(inputs, outputs) for inputs, outputs in pairs))
        self.average = nn.AdaptiveAvgPool2d(1)
        self.fc = nn.Linear(64, classes)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """The logits."""
        maps = self.blocks(self.relu(self.norm(self.conv(images))))
        logits: torch.Tensor = self.fc(self.average(maps).flatten(1))
        return logits
