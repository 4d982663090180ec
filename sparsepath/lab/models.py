"""The paper's four networks (table 1) and a small one for digits, with the layers to sparsify."""

import difflib
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from typing import ClassVar

import torch
from torch import nn

from sparsepath.errors import BadInput, checked_count

Named = Iterator[tuple[str, nn.Module]]
Convolution = Callable[[int, int], nn.Module]


class Network(nn.Sequential):
    """A chain of named layers that knows which of them the paper sparsifies, in the paper's order."""

    sparsified: ClassVar[tuple[str, ...]]

    def __init__(
        self, classes: int, channels: int, *, dropout: float, batch_norm: bool, layers: Named
    ) -> None:
        checked_count("classes", classes, least=2)
        checked_count("channels", channels)
        if not 0 <= dropout < 1:
            raise BadInput(f"dropout must lie in [0, 1), not {dropout!r}.")
        super().__init__(OrderedDict(layers))
        for layer in self.modules():
            if isinstance(layer, nn.Conv2d | nn.Linear):
                nn.init.kaiming_normal_(layer.weight, nonlinearity="relu")
                if layer.bias is not None:
                    nn.init.zeros_(layer.bias)
