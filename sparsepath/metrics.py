"""One definition of each figure of a sparse network: its blocks, weights and multiplications."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.modules.conv import _ConvNd

from sparsepath.blocks import Blocks


@dataclass(frozen=True)
class Sparsity:
    """How much of a network is zero, counted three ways."""

    blocks: Mapping[str, int]
    """blocks in each sparsified weight"""
    zero_blocks: Mapping[str, int]
    """zero blocks in each sparsified weight"""
    of_blocks: float
    """zero blocks / blocks"""
    of_sparsified: float
    """zero weights / weights in the sparsified layers"""
    of_model: float
    """zero weights / weights of the model, biases and all other parameters included"""


def sparsity(model: nn.Module, blocks: Mapping[str, Blocks]) -> Sparsity:
    """Count the zeros of a model whose sparsified weights are cut into `blocks`."""
    parameters = dict(model.named_parameters(remove_duplicate=False))
    total = {name: cut.count for name, cut in blocks.items()}
    zero = {name: int((~cut.alive(parameters[name])).sum()) for name, cut in blocks.items()}
    sparsified = [parameters[name] for name in blocks]
    return Sparsity(
        blocks=total,
        zero_blocks=zero,
        of_blocks=sum(zero.values()) / max(1, sum(total.values())),
        of_sparsified=_zero_share(sparsified),
        of_model=_zero_share(list(model.parameters())),
    )


def _zero_share(tensors: list[nn.Parameter]) -> float:
    return sum(int((t == 0).sum()) for t in tensors) / max(1, sum(t.numel() for t in tensors))


@dataclass(frozen=True)
class Macs:
    """Multiplications and additions of one forward pass, in convolutions and linear layers."""

    dense: int
    """all of them"""
    sparse: int
    """those whose weight is not zero"""

    @property
    def speedup(self) -> float:
        """The theoretical gain, dense / sparse; nothing here was timed."""
        return self.dense / max(1, self.sparse)


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """The model in eval mode and without gradients; every module's own mode is put back after."""
    training = {module: module.training for module in model.modules()}
    try:
        model.eval()
        with torch.no_grad():
            yield
    finally:
        for module, mode in training.items():
            module.training = mode


def macs(model: nn.Module, example: Tensor | Sequence[Tensor]) -> Macs:
    """Count the MACs of one forward pass of `example`, as a weight's uses times the weights.

    A model of several inputs takes an example of as many.
    """
    given = (example,) if isinstance(example, Tensor) else tuple(example)
    dense = sparse = 0

    def count(layer: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        nonlocal dense, sparse
        weight = layer.weight
        assert isinstance(weight, Tensor)
        # A transposed convolution uses each weight once per input position, all others per output.
        walked = inputs[0] if getattr(layer, "transposed", False) else output
        # Counted from the end, where an input without a batch has its channels too.
        uses = walked.numel() // walked.shape[1 - weight.dim()]
        dense += uses * weight.numel()
        sparse += uses * int((weight != 0).sum())

    layers = [layer for layer in model.modules() if isinstance(layer, (nn.Linear, _ConvNd))]
    handles = [layer.register_forward_hook(count) for layer in layers]
    try:
        with evaluating(model):
            model(*given)
    finally:
        for handle in handles:
            handle.remove()
    return Macs(dense, sparse)
