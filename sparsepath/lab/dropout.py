"""Dropout whose masks a key alone decides, whatever else draws numbers beside it."""

from typing import Any

import torch
from torch import Tensor, nn

from sparsepath import native

# Of MurmurHash3's last mixing (Appleby), as the signed numbers that a tensor of int32 holds.
FIRST, SECOND = -2048144789, -1028477387
# 2^32 over the golden ratio, farther than any place: sets layers and rounds apart.
APART = -1640531527
HIGHEST, WORD = 2**31 - 1, 2**32 - 1


class Dropped(torch.autograd.Function):
    """Dropout by two words of a key, in one pass over a CPU's memory; its mask is drawn twice."""

    @staticmethod
    def forward(ctx: Any, values: Tensor, words: tuple[int, int], p: float) -> Tensor:
        """The values that live, scaled; a mask is sooner drawn again than kept."""
        ctx.words, ctx.p = words, p
        living = torch.empty_like(values)
        native.drop(values, living, words=words, least=_least(p), p=p)
        return living

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        """The gradients of the values that live, scaled alike."""
        if not native.by_address(gradients[0]):  # as where it stands for those of several results
            first, second = (_as_tensor(word, gradients[0].device) for word in ctx.words)
            return dropped(gradients[0], first, second, ctx.p), None, None
        pixels = gradients[0].dim() == 4
        order = torch.channels_last if pixels else torch.contiguous_format
        gradient = gradients[0].contiguous(memory_format=order)
        # Itself again, so that gradients can be differentiated too.
        return Dropped.apply(gradient, ctx.words, ctx.p), None, None


def dropped(values: Tensor, first: Tensor, second: Tensor, p: float) -> Tensor:
    """The values that live, scaled, by torch's operations; by the same two words of the key."""
    # In the order of a GPU's memory, which has the maps (N, C, H, W) of a pixel in one row: a
    # mask in another order would have all values laid out anew.
    last = values.movedim(1, -1) if values.dim() > 2 else values
    places = torch.arange(last.numel(), dtype=torch.int32, device=values.device)
    # Two rounds: after one, the masks of two steps would be the same one at other places.
    drawn = mixed(mixed(places + first) ^ second) & HIGHEST
    living = torch.where(drawn.view(last.shape) >= _least(p), last / (1 - p), 0)
    return living.movedim(-1, 1) if values.dim() > 2 else living


def _as_tensor(word: int, device: torch.device) -> Tensor:
    signed = word - (WORD + 1) if word > HIGHEST else word
    return torch.tensor(signed, dtype=torch.int32, device=device)


def _least(p: float) -> int:
    """What a place must draw at least to live, of 31 bits."""
    return round(p * 2**31)


class Keyed(nn.Dropout):
    """Dropout by a hash of a value's place, the layer's number and a key, which is a tensor.

    Torch's own generator serves all networks of a process: their masks would depend on who trains
    beside them, and a training that goes on elsewhere would draw others. Whoever computes forward
    twice for one gradient (gradient checkpointing) must keep the key as it was until then.
    """

    key: Tensor

    def __init__(self, p: float, key: Tensor, number: int) -> None:
        """The layer of this number, with this share of zeros."""
        super().__init__(p)
        self.register_buffer("key", key, persistent=False)
        self.number = number

    def forward(self, input: Tensor) -> Tensor:
        """The values that live, scaled so that their mean stays; all of them in evaluation."""
        if not self.training or self.p == 0:
            return input
        if _least(self.p) > HIGHEST:  # nothing can be drawn that lives
            return input * 0
        first = mixed(self.key + self.number * APART)
        second = mixed(first + APART)
        if native.takes(input):
            words = int(first) & WORD, int(second) & WORD
            living: Tensor = Dropped.apply(input, words, self.p)
            return living
        return dropped(input, first, second, self.p)


def mixed(words: Tensor) -> Tensor:
    """Whole numbers of 32 bits, each bit of which now hangs on all of them."""
    words = (words ^ ((words >> 16) & 0xFFFF)) * FIRST
    words = (words ^ ((words >> 13) & 0x7FFFF)) * SECOND
    return words ^ ((words >> 16) & 0xFFFF)


def keyed(model: nn.Module, key: Tensor) -> None:
    """Let all dropout of a model follow this key."""
    found = [name for name, part in model.named_modules() if isinstance(part, nn.Dropout)]
    for number, name in enumerate(found):
        parent, _, last = name.rpartition(".")
        old = model.get_submodule(name)
        assert isinstance(old, nn.Dropout)
        setattr(model.get_submodule(parent), last, Keyed(old.p, key, number).train(old.training))
