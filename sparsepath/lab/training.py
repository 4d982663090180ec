"""A plain training loop in which the numbers of an epoch decide its every random choice."""

import hashlib
import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.optim import SGD

from sparsepath.lab.data import Data, Split, augment, normalise
from sparsepath.path import no_pull
from sparsepath.support import Support


class Diverged(RuntimeError):
    """Training whose loss or weights are no longer finite."""


@dataclass(frozen=True)
class Recipe:
    """How SGD trains: its rate rises in a line to its peak and then falls by a cosine."""

    rate: float
    """the peak"""
    momentum: float = 0.9
    decay: float = 5e-4
    batch: int = 64
    shift: int = 0
    """images move by up to so many pixels"""
    flip: bool = False
    """images are mirrored half of the time"""
    warmup: float = 0.0
    """share of all steps in which the rate rises"""
    final: float = 1.0
    """share of the peak at the end: 1 holds it constant"""

    def rate_at(self, progress: float) -> float:
        """The rate when this share of all steps is done."""
        if progress < self.warmup:
            return self.rate * progress / self.warmup
        fallen = (1 - math.cos(math.pi * (progress - self.warmup) / (1 - self.warmup))) / 2
        return self.rate * (1 - fallen * (1 - self.final))


@dataclass(frozen=True)
class Momenta:
    """Where to go on with a training that was stopped: its next epoch and SGD's momenta."""

    epoch: int = 0
    by_name: Mapping[str, Tensor] = field(default_factory=dict)
    loss: float = math.nan
    """the mean over the steps of the epoch just done, with the pull towards F where there is one"""


def train(
    model: nn.Module,
    data: Data,
    recipe: Recipe,
    *,
    epochs: int,
    key: tuple[object, ...],
    proximity: Callable[[], Tensor | float] = no_pull,
    support: Support | None = None,
    start: Momenta | None = None,
    on_epoch: Callable[[Momenta], None] = lambda momenta: None,
) -> None:
    """Train the model; `key` and an epoch's number decide its order, shifts, flips and dropout.

    `on_epoch` is told after every epoch what, with the weights, `start` needs to go on from there.
    """
    start = start or Momenta()
    optimizer = SGD(
        model.parameters(), lr=recipe.rate, momentum=recipe.momentum, weight_decay=recipe.decay
    )
    for name, momentum in start.by_name.items():
        weight = model.get_parameter(name)
        optimizer.state[weight]["momentum_buffer"] = momentum.to(weight)
    model.train()
    with (support or Support({})).held(model, optimizer):
        for epoch in range(start.epoch, epochs):
            seed = seed_of(*key, epoch)
            with seeded(seed, data.train.labels.device):  # for dropout
                loss: Tensor | float = 0.0
                for images, labels, share in _batches(data, recipe, seed):
                    optimizer.param_groups[0]["lr"] = recipe.rate_at((epoch + share) / epochs)
                    loss += _step(model, optimizer, images, labels, proximity)
            _check_finite(model, float(loss), epoch)
            mean = float(loss) / math.ceil(len(data.train) / recipe.batch)
            on_epoch(Momenta(epoch + 1, _momenta(model, optimizer), mean))


def seed_of(*key: object) -> int:
    """A seed that depends on all parts of the key and on nothing else."""
    return int.from_bytes(hashlib.sha256(repr(key).encode()).digest()[:7])


@contextmanager
def seeded(seed: int, device: torch.device) -> Iterator[None]:
    """Torch's own generators started from this seed, and put back as they were afterwards."""
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
        torch.manual_seed(seed)
        yield


def _batches(data: Data, recipe: Recipe, seed: int) -> Iterator[tuple[Tensor, Tensor, float]]:
    """One epoch in a fresh order: images, labels, and the share of the epoch at mid-batch."""
    generator = torch.Generator().manual_seed(seed)
    order = torch.randperm(len(data.train), generator=generator).to(data.train.labels.device)
    batches = order.split(recipe.batch)
    for number, batch in enumerate(batches):
        images = data.train.images[batch]
        if recipe.shift or recipe.flip:
            images = augment(images, generator, pad=recipe.shift, flip=recipe.flip)
        yield normalise(images, data), data.train.labels[batch], (number + 0.5) / len(batches)


def _step(
    model: nn.Module,
    optimizer: SGD,
    images: Tensor,
    labels: Tensor,
    proximity: Callable[[], Tensor | float],
) -> Tensor:
    """One step of SGD; its loss, left on the device."""
    loss = functional.cross_entropy(model(images), labels) + proximity()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss.detach()


def _check_finite(model: nn.Module, loss: float, epoch: int) -> None:
    # A last step may break the weights after a finite loss.
    if not math.isfinite(loss) or not all(bool(W.isfinite().all()) for W in model.parameters()):
        raise Diverged(f"loss or weights were no longer finite in epoch {epoch + 1}")


def _momenta(model: nn.Module, optimizer: SGD) -> dict[str, Tensor]:
    state = {name: optimizer.state.get(weight, {}) for name, weight in model.named_parameters()}
    return {
        name: kept["momentum_buffer"] for name, kept in state.items() if "momentum_buffer" in kept
    }


@torch.no_grad()
def accuracy(model: nn.Module, split: Split, data: Data, *, batch: int = 500) -> float:
    """The share of a split's images that the model names rightly."""
    training = model.training
    model.eval()
    right = sum(
        int((model(normalise(images, data)).argmax(1) == labels).sum())
        for images, labels in zip(split.images.split(batch), split.labels.split(batch), strict=True)
    )
    model.train(training)
    return right / len(split)
