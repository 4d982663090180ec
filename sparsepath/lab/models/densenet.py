"""DenseNet-BC for 32 x 32 images (Huang et al. 2017): every layer reads all maps before it."""

import torch
from torch import nn

from sparsepath.errors import BadInput


class Layer(nn.Module):
    """A 1 x 1 and a 3 x 3 convolution, each after batch norm and ReLU."""

    def __init__(self, inputs: int, growth: int) -> None:
        """`growth` new maps behind the old ones."""
        super().__init__()
        self.norm1 = nn.BatchNorm2d(inputs)
        self.conv1 = nn.Conv2d(inputs, 4 * growth, 1, bias=False)
        self.norm2 = nn.BatchNorm2d(4 * growth)
        self.conv2 = nn.Conv2d(4 * growth, growth, 3, padding=1, bias=False)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """The old maps, then the new ones."""
        maps = self.conv1(torch.relu(self.norm1(images)))
        maps = self.conv2(torch.relu(self.norm2(maps)))
        return torch.cat([images, maps], 1)


def _transition(inputs: int) -> list[nn.Module]:
    return [
        nn.BatchNorm2d(inputs),
        nn.ReLU(),
        nn.Conv2d(inputs, inputs // 2, 1, bias=False),
        nn.AvgPool2d(2),
    ]


class DenseNet(nn.Module):
    """Three dense blocks with halvings between them."""

    def __init__(
        self, classes: int = 10, channels: int = 3, *, depth: int = 100, growth: int = 12
    ) -> None:
        """A network of `depth` weighted layers, 6n + 4 of them."""
        super().__init__()
        if depth < 10 or depth % 6 != 4:
            raise BadInput(f"A DenseNet-BC's depth is 6n + 4 (40, 100, 190), not {depth!r}.")
        width = 2 * growth
        layers: list[nn.Module] = [nn.Conv2d(channels, width, 3, padding=1, bias=False)]
        for block in range(3):
            for _ in range((depth - 4) // 6):
                layers.append(Layer(width, growth))
                width += growth
            if block < 2:
                layers += _transition(width)
                width //= 2
        self.features = nn.Sequential(*layers, nn.BatchNorm2d(width), nn.ReLU())
        self.classifier = nn.Linear(width, classes)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """The logits."""
        maps = nn.functional.adaptive_avg_pool2d(self.features(images), 1)
        logits: torch.Tensor = self.classifier(torch.flatten(maps, 1))
        return logits
