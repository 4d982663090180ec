"""The paper's four networks (table 1) and a small one for digits, with the layers to sparsify."""

from collections.abc import Callable
from functools import partial
from typing import ClassVar

import torch
from torch import nn
from torch.nn import functional

from sparsepath.lab.models.network import Layers, Network
from sparsepath.lab.models.products import SameSize, Whole, convolved

Convolution = Callable[[int, int], nn.Module]


class LowRank(Whole):
    """A 1 x 3 and a 3 x 1 convolution side by side, each giving half of the output maps."""

    def __init__(self, inputs: int, outputs: int) -> None:
        """Two branches from `inputs` maps to half of `outputs` each."""
        super().__init__()
        self.horizontal = nn.Conv2d(inputs, outputs // 2, (1, 3), padding=(0, 1))
        self.vertical = nn.Conv2d(inputs, outputs // 2, (3, 1), padding=(1, 0))

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """The horizontal maps, then the vertical ones."""
        if self.training and images.is_cuda:  # in this order: a trace has no device to ask for
            return convolved(images, *self.whole())
        return torch.cat((self.horizontal(images), self.vertical(images)), dim=1)

    def whole(self) -> tuple[torch.Tensor, torch.Tensor]:
        """One 3 x 3 convolution with zeros: more products, which a GPU makes sooner."""
        horizontal, vertical = self.horizontal, self.vertical
        weight = torch.cat(
            (
                functional.pad(horizontal.weight, (0, 0, 1, 1)),
                functional.pad(vertical.weight, (1, 1, 0, 0)),
            )
        )
        assert horizontal.bias is not None
        assert vertical.bias is not None
        return weight, torch.cat((horizontal.bias, vertical.bias))


def _full_rank(inputs: int, outputs: int) -> nn.Module:
    return SameSize(inputs, outputs, 3)


def _halving(inputs: int, outputs: int) -> nn.Module:
    return nn.Conv2d(inputs, outputs, 3, stride=2, padding=1)


def _pointwise(inputs: int, outputs: int) -> nn.Module:
    return SameSize(inputs, outputs, 1)


def _stage(
    number: int, convolution: Convolution, inputs: int, outputs: int, *, batch_norm: bool
) -> Layers:
    yield f"conv{number}", convolution(inputs, outputs)
    if batch_norm:
        yield f"norm{number}", nn.BatchNorm2d(outputs)
    yield f"relu{number}", nn.ReLU()


def _nin(
    convolution: Convolution, classes: int, channels: int, *, dropout: float, batch_norm: bool
) -> Layers:
    stage = partial(_stage, batch_norm=batch_norm)
    yield from stage(1, convolution, channels, 192)
    yield from stage(2, _pointwise, 192, 160)
    yield from stage(3, _pointwise, 160, 96)
    yield "pool1", nn.MaxPool2d(2)
    yield "dropout1", nn.Dropout(dropout)
    yield from stage(4, convolution, 96, 192)
    yield from stage(5, convolution, 192, 192)
    yield from stage(6, _pointwise, 192, 192)
    yield from stage(7, _pointwise, 192, 192)
    yield "pool2", nn.MaxPool2d(2)
    yield "dropout2", nn.Dropout(dropout)
    yield from stage(8, convolution, 192, 192)
    yield from stage(9, _pointwise, 192, 192)
    yield "conv10", _pointwise(192, classes)
    yield "average", nn.AdaptiveAvgPool2d(1)
    yield "flatten", nn.Flatten()


def _cnn(
    convolution: Convolution, classes: int, channels: int, *, dropout: float, batch_norm: bool
) -> Layers:
    stage = partial(_stage, batch_norm=batch_norm)
    widths = (channels, 96, 128, 256)
    for number in (1, 2, 3):
        yield from stage(number, convolution, widths[number - 1], widths[number])
        # Rounding up changes nothing at 32 x 32 and gives 28 x 28 images the same 4 x 4 maps.
        yield f"pool{number}", nn.MaxPool2d(2, ceil_mode=True)
        yield f"dropout{number}", nn.Dropout(dropout)
    yield from stage(4, convolution, 256, 64)
    yield "flatten", nn.Flatten()
    yield "fc1", nn.Linear(64 * 4 * 4, 256)
    yield "relu5", nn.ReLU()
    yield "dropout4", nn.Dropout(dropout)
    yield "fc2", nn.Linear(256, classes)


def _branches(*layers: str) -> tuple[str, ...]:
    return tuple(f"{layer}.{branch}" for layer in layers for branch in ("horizontal", "vertical"))


class NIN(Network):
    """The paper's network in network: 3 x 3 convolutions between 1 x 1 ones."""

    sparsified = ("conv1", "conv4", "conv5", "conv8")
    usual_dropout = 0.3
    layers = staticmethod(partial(_nin, _full_rank))


class LowRankNIN(Network):
    """The paper's low-rank NIN: every 3 x 3 convolution becomes a 1 x 3 beside a 3 x 1."""

    sparsified = _branches("conv1", "conv4", "conv5", "conv8")
    usual_dropout = 0.3
    layers = staticmethod(partial(_nin, LowRank))


class CNN(Network):
    """The paper's custom CNN, four convolutions and two linear layers, for images of 25 to 32."""

    sparsified = ("conv1", "conv2", "conv3", "conv4", "fc1")
    usual_dropout = 0.25
    layers = staticmethod(partial(_cnn, _full_rank))


class LowRankCNN(Network):
    """The paper's low-rank CNN: every 3 x 3 convolution becomes a 1 x 3 beside a 3 x 1."""

    sparsified = (*_branches("conv1", "conv2", "conv3", "conv4"), "fc1")
    usual_dropout = 0.2
    layers = staticmethod(partial(_cnn, LowRank))


class DigitNet(Network):
    """A network small enough for a laptop: 4,248 kernels, for grey digits of any size."""

    sparsified = ("conv1", "conv2", "conv3")
    usual_dropout = 0.0
    widths: ClassVar[tuple[int, int, int]] = (24, 48, 64)
    """channels of the convolutions, chosen without test digits (benchmarks/digits.py)"""

    def __init__(
        self,
        classes: int = 10,
        channels: int = 1,
        *,
        dropout: float | None = None,
        batch_norm: bool = False,
    ) -> None:
        """As every network, but for one channel unless told otherwise."""
        super().__init__(classes, channels, dropout=dropout, batch_norm=batch_norm)

    @classmethod
    def layers(cls, classes: int, channels: int, *, dropout: float, batch_norm: bool) -> Layers:
        """Three convolutions, two of them followed by a halving, and one linear layer."""
        stage = partial(_stage, batch_norm=batch_norm)
        first, second, third = cls.widths
        yield from stage(1, _halving, channels, first)
        yield from stage(2, _full_rank, first, second)
        yield "pool", nn.MaxPool2d(2)
        yield from stage(3, _full_rank, second, third)
        yield "grid", nn.AdaptiveMaxPool2d(3)
        yield "flatten", nn.Flatten()
        yield "dropout", nn.Dropout(dropout)
        yield "fc", nn.Linear(third * 3 * 3, classes)
