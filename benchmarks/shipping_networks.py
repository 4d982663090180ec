"""How the networks of the shipping table are made: fewer weights in fc1, then fewer numbers.

Both learn from the dense network's answers to training images, shifted and mirrored anew in every
step: its answers say more about an image than the label.
"""

import copy
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor, nn
from torch.nn import functional

from sparsepath.deploy.bits.clusters import clusters
from sparsepath.deploy.bits.weights import matches, weights_of
from sparsepath.lab.data import Data, augment, normalise

TEMPERATURE = 2.0


@dataclass(frozen=True, eq=False)
class Lessons:
    """Training images and the network whose answers to them are to be learned, on one device."""

    data: Data
    teacher: nn.Module
    device: torch.device

    def batches(self, steps: int, size: int) -> Iterator[tuple[Tensor, Tensor]]:
        """So many batches of images and answers: whole rounds in ever new orders."""
        data, teacher = self.data.to(self.device), copy.deepcopy(self.teacher).to(self.device)
        generator = torch.Generator().manual_seed(0)
        rounds = -(-steps * size // len(data.train))
        orders = [torch.randperm(len(data.train), generator=generator) for _ in range(rounds)]
        for batch in torch.cat(orders)[: steps * size].split(size):
            images = normalise(data.train.images[batch.to(self.device)], data)
            images = augment(images, generator, pad=4, flip=True)
            images = images.contiguous(memory_format=torch.channels_last)
            with torch.no_grad(), self.arithmetic():
                answers = teacher.eval()(images)
            yield images, answers

    def arithmetic(self) -> torch.autocast:
        """bfloat16 on a GPU, where it is many times faster; float32 elsewhere."""
        return torch.autocast(self.device.type, torch.bfloat16, enabled=self.device.type == "cuda")


def distance(given: Tensor, wanted: Tensor) -> Tensor:
    """How far answers are from the teacher's, both softened."""
    soft = functional.softmax(wanted.float() / TEMPERATURE, 1)
    logs = functional.log_softmax(given.float() / TEMPERATURE, 1)
    return TEMPERATURE**2 * functional.kl_div(logs, soft, reduction="batchmean")


class Shaped(Protocol):
    """A weight that learns under a condition."""

    def show(self) -> None:
        """Before the network runs: let it see what the condition allows."""

    def hide(self) -> None:
        """Once there is a gradient: let the optimizer see what learns."""

    def keep(self, progress: float) -> None:
        """Take over what was learned."""


@dataclass(eq=False)
class Thinned:
    """A weight of which more and more numbers, the least ones, are zero."""

    weight: nn.Parameter
    zero: float
    """the share at the end; what is zero at the start stays so"""

    def __post_init__(self) -> None:
        """Remember what lives."""
        self.alive = self.weight.detach() != 0

    def show(self) -> None:
        """The weight is always as it may be."""

    def hide(self) -> None:
        """No dead number learns."""
        assert self.weight.grad is not None
        self.weight.grad *= self.alive

    @torch.no_grad()
    def keep(self, progress: float) -> None:
        """Let the least die, fewer by and by, all of them by half of the time."""
        self.weight.mul_(self.alive)
        count = int(self.zero * (1 - (1 - min(1.0, 2 * progress)) ** 3) * self.weight.numel())
        if count:
            size = self.weight.abs()
            self.alive &= size > size.flatten().kthvalue(count).values
            self.weight.mul_(self.alive)


@dataclass(eq=False)
class Rounded:
    """A weight that learns as it is while the network sees few numbers instead."""

    weight: nn.Parameter
    numbers: Tensor
    """in rising order"""

    def __post_init__(self) -> None:
        """Keep the weight as it is, and where it lives."""
        self.exact = self.weight.detach().clone()
        self.alive = self.exact != 0

    @torch.no_grad()
    def show(self) -> None:
        """Show the nearest numbers, which then become the means of their weights."""
        edges = (self.numbers[1:] + self.numbers[:-1]) / 2
        nearest = torch.bucketize(self.exact, edges)
        one_hot = self.alive.to(self.exact).flatten()
        counts = torch.zeros_like(self.numbers).index_add_(0, nearest.flatten(), one_hot)
        sums = torch.zeros_like(self.numbers)
        sums.index_add_(0, nearest.flatten(), self.exact.flatten())  # what is dead adds nothing
        self.numbers = torch.where(counts > 0, sums / counts.clamp(min=1), self.numbers)
        self.weight.copy_(self.numbers[nearest] * self.alive)

    @torch.no_grad()
    def hide(self) -> None:
        """Show the weight itself, whose gradient is that of its numbers."""
        self.weight.copy_(self.exact)
        assert self.weight.grad is not None
        self.weight.grad *= self.alive

    def keep(self, progress: float) -> None:
        """Take over what the weight has learned."""
        self.exact.copy_(self.weight.detach())


def with_sparse_fc1(
    model: nn.Module, lessons: Lessons, *, zero: float, steps: int, rate: float
) -> nn.Module:
    """A copy whose fc1 has a share of zero elements; all other zeros stay where they are."""
    made = copy.deepcopy(model).to(lessons.device)
    layers = [
        Thinned(weight, zero if matches(name, "fc1") else 0.0)
        for name, weight in weights_of(made).items()
    ]
    return _taught(made, lessons, layers, steps=steps, rate=rate)


def with_few_numbers(
    model: nn.Module, bits: Mapping[str, int], lessons: Lessons, *, steps: int, rate: float
) -> nn.Module:
    """A copy whose weights learned which of a layer's few numbers each of them is."""
    made = copy.deepcopy(model).to(lessons.device)
    layers = []
    for name, weight in weights_of(made, [*bits]).items():
        count = 1 << next(n for pattern, n in bits.items() if matches(name, pattern))
        plain = weight.detach().cpu().double().numpy()
        numbers = torch.from_numpy(clusters(plain[plain != 0], count).centroids)
        layers.append(Rounded(weight, numbers.to(weight)))
    return _taught(made, lessons, layers, steps=steps, rate=rate)


def _taught(
    made: nn.Module,
    lessons: Lessons,
    layers: Sequence[Shaped],
    *,
    steps: int,
    rate: float,
    size: int = 128,
) -> nn.Module:
    """Teach a network by Adam, its rate falling to zero."""
    made.eval().to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    optimizer = torch.optim.Adam(made.parameters(), lr=rate)
    for step, (images, answers) in enumerate(lessons.batches(steps, size)):
        optimizer.param_groups[0]["lr"] = rate * (1 + math.cos(math.pi * step / steps)) / 2
        optimizer.zero_grad()
        for layer in layers:
            layer.show()
        with lessons.arithmetic():
            given = made(images)
        distance(given, answers).backward()
        for layer in layers:
            layer.hide()
        optimizer.step()
        for layer in layers:
            layer.keep((step + 1) / steps)
    for layer in layers:
        layer.show()
    return made.cpu()
