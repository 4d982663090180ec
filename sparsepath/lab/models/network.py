"""What the lab's own networks have in common: a chain of named layers, some to sparsify."""

from collections.abc import Iterator
from typing import ClassVar

import torch
from torch import nn

from sparsepath.errors import BadInput, checked_count, checked_number
from sparsepath.lab.models import cpu

Layers = Iterator[tuple[str, nn.Module]]


class Network(nn.Module):
    """A chain of named layers that says which of them are sparsified, in the paper's order."""

    sparsified: ClassVar[tuple[str, ...]]
    usual_dropout: ClassVar[float]

    def __init__(
        self,
        classes: int = 10,
        channels: int = 3,
        *,
        dropout: float | None = None,
        batch_norm: bool = False,
    ) -> None:
        """Lay out the layers and draw their weights; `dropout` is the network's usual if None."""
        super().__init__()
        checked_count("classes", classes, least=2)
        checked_count("channels", channels)
        rate = self.usual_dropout if dropout is None else dropout
        if checked_number("dropout", rate, zero=True) >= 1:
            raise BadInput(f"dropout must be below 1, not {rate!r}.")
        for name, layer in self.layers(classes, channels, dropout=rate, batch_norm=batch_norm):
            self.add_module(name, layer)
        self._draw_weights()

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """The logits: every layer in turn."""
        if self.training and images.is_cuda and images.dtype is torch.bfloat16:
            from sparsepath.lab.models import chains  # wants Triton, which a GPU's torch has

            if chains.ROOMY:
                return chains.trained(self.children(), images)
        if self.training and images.is_cpu:
            return cpu.trained(self.children(), images)
        for layer in self.children():
            images = layer(images)
        return images

    def _draw_weights(self) -> None:
        weighted = [part for part in self.modules() if isinstance(part, nn.Conv2d | nn.Linear)]
        for layer in weighted:
            # Without batch norm the forward signal must keep its scale: hence fan-in.
            nn.init.kaiming_normal_(layer.weight, mode="fan_in", nonlinearity="relu")
            if layer.bias is not None:
                nn.init.zeros_(layer.bias)
        with torch.no_grad():
            # A classifier at full scale starts at a loss above 5, and the CNNs die of its gradient.
            weighted[-1].weight.mul_(0.1)

    @staticmethod
    def layers(classes: int, channels: int, *, dropout: float, batch_norm: bool) -> Layers:
        """The network's layers by name, first to last."""
        raise NotImplementedError
