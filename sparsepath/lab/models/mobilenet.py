"""MobileNetV1 and V2 with the strides that 32 x 32 images are usually given."""

import torch
from torch import nn


def _convolution(
    inputs: int,
    outputs: int,
    size: int,
    *,
    stride: int = 1,
    groups: int = 1,
    activation: type[nn.Module] | None = nn.ReLU,
) -> list[nn.Module]:
    layers: list[nn.Module] = [
        nn.Conv2d(
            inputs, outputs, size, stride=stride, padding=size // 2, groups=groups, bias=False
        ),
        nn.BatchNorm2d(outputs),
    ]
    return layers if activation is None else [*layers, activation()]


class MobileNetV1(nn.Module):
    """Thirteen pairs of a depthwise and a 1 x 1 convolution (Howard et al. 2017)."""

    stages = (64, (128, 2), 128, (256, 2), 256, (512, 2), *[512] * 5, (1024, 2), 1024)

    def __init__(self, classes: int = 10, channels: int = 3) -> None:
        """The published widths."""
        super().__init__()
        layers, inputs = _convolution(channels, 32, 3), 32
        for stage in self.stages:
            outputs, stride = stage if isinstance(stage, tuple) else (stage, 1)
            layers += _convolution(inputs, inputs, 3, stride=stride, groups=inputs)
            layers += _convolution(inputs, outputs, 1)
            inputs = outputs
        self.features = nn.Sequential(*layers)
        self.average = nn.AdaptiveAvgPool2d(1)
        self.classifier = nn.Linear(inputs, classes)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """The logits."""
        maps = self.average(self.features(images))
        logits: torch.Tensor = self.classifier(maps.view(maps.size(0), -1))
        return logits


class Bottleneck(nn.Module):
    """V2's inverted residual: widen by 1 x 1, convolve depthwise, narrow by 1 x 1."""

    def __init__(self, inputs: int, outputs: int, *, stride: int, widening: int) -> None:
        """A shortcut where nothing changes shape."""
        super().__init__()
        inner = inputs * widening
        layers = _convolution(inputs, inner, 1, activation=nn.ReLU6) if widening > 1 else []
        layers += _convolution(inner, inner, 3, stride=stride, groups=inner, activation=nn.ReLU6)
        layers += _convolution(inner, outputs, 1, activation=None)
        self.layers = nn.Sequential(*layers)
        self.shortcut = stride == 1 and inputs == outputs

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """The narrow maps, and the input where there is a shortcut."""
        maps: torch.Tensor = self.layers(images)
        return images + maps if self.shortcut else maps


class MobileNetV2(nn.Module):
    """Seventeen inverted residuals (Sandler et al. 2018)."""

    # widening, outputs, repeats, first stride
    stages = (
        (1, 16, 1, 1),
        (6, 24, 2, 1),
        (6, 32, 3, 2),
        (6, 64, 4, 2),
        (6, 96, 3, 1),
        (6, 160, 3, 2),
        (6, 320, 1, 1),
    )

    def __init__(self, classes: int = 10, channels: int = 3) -> None:
        """The published widths."""
        super().__init__()
        layers, inputs = _convolution(channels, 32, 3, activation=nn.ReLU6), 32
        for widening, outputs, repeats, stride in self.stages:
            for repeat in range(repeats):
                step = stride if repeat == 0 else 1
                layers.append(Bottleneck(inputs, outputs, stride=step, widening=widening))
                inputs = outputs
        layers += _convolution(inputs, 1280, 1, activation=nn.ReLU6)
        self.features = nn.Sequential(*layers)
        self.dropout = nn.Dropout(0.2)
        self.classifier = nn.Linear(1280, classes)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """The logits."""
        maps = self.features(images).mean((2, 3))
        logits: torch.Tensor = self.classifier(self.dropout(maps))
        return logits
