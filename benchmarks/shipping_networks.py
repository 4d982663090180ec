"""How the networks of the shipping table are made: fewer weights in fc1, then fewer numbers.

Both learn from the dense network's answers to a pool of training images, each shifted and mirrored
once: its answers say more about an image than the label, so that a few hundred steps are enough.
"""

import copy
import math
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from sparsepath.deploy import compile
from sparsepath.deploy.bits.clusters import clusters
from sparsepath.deploy.bits.weights import matches, weights_of
from sparsepath.lab.data import Data, augment, normalise

TEMPERATURE = 2.0
LAST = "flatten"
"""the layer of the CNN before which everything is a convolution"""


@dataclass(frozen=True, eq=False)
class Pool:
    """Images, normalised, and what the dense network answers."""

    images: Tensor
    answers: Tensor

    def batches(self, steps: int, size: int) -> list[Tensor]:
        """The numbers of the images of so many batches: whole rounds in ever new orders."""
        generator = torch.Generator().manual_seed(0)
        rounds = -(-steps * size // len(self.images))
        orders = [torch.randperm(len(self.images), generator=generator) for _ in range(rounds)]
        return list(torch.cat(orders)[: steps * size].split(size))


def pool_of(data: Data, teacher: nn.Module, count: int) -> Pool:
    """So many training images, the first of a drawn order, and the teacher's answers."""
    generator = torch.Generator().manual_seed(0)
    picked = torch.randperm(len(data.train), generator=generator)[:count]
    images = normalise(data.train.images[picked], data)
    images = augment(images, generator, pad=4, flip=True)
    return Pool(images, by_parts(teacher, images))


def by_parts(model: nn.Module, images: Tensor) -> Tensor:
    """What a model in eval mode gives for many images."""
    run = compile(model.eval(), images[:64], threads=1)
    return torch.cat([run(part) for part in images.split(64)])


def distance(given: Tensor, wanted: Tensor) -> Tensor:
    """How far answers are from the teacher's, both softened."""
    soft = functional.softmax(wanted / TEMPERATURE, 1)
    logs = functional.log_softmax(given / TEMPERATURE, 1)
    return TEMPERATURE**2 * functional.kl_div(logs, soft, reduction="batchmean")


def with_sparse_fc1(
    model: nn.Module, pool: Pool, *, zero: float, steps: int = 1000, rate: float = 1e-3
) -> nn.Module:
    """A copy whose fc1 has a share of zero elements, the least ones, fewer by and by.

    Only the linear layers learn; their inputs are computed once, since no convolution changes.
    """
    made = copy.deepcopy(model).eval()
    parts = dict(made.named_children())
    names = list(parts)
    front = nn.Sequential(*(parts[name] for name in names[: names.index(LAST) + 1]))
    features = by_parts(front, pool.images)
    head = nn.Sequential(*(parts[name] for name in names[names.index(LAST) + 1 :]))
    weight = made.get_parameter("fc1.weight")
    optimizer = torch.optim.Adam(head.parameters(), lr=rate)
    for step, batch in enumerate(pool.batches(steps, 128)):
        optimizer.param_groups[0]["lr"] = _fallen(rate, step, steps)
        optimizer.zero_grad()
        distance(head(features[batch]), pool.answers[batch]).backward()
        optimizer.step()
        rise = min(1.0, 2 * step / steps)
        _drop_least(weight, zero * (1 - (1 - rise) ** 3))
    _drop_least(weight, zero)
    return made


@torch.no_grad()
def _drop_least(weight: Tensor, zero: float) -> None:
    count = int(zero * weight.numel())
    if count:
        weight[weight.abs() <= weight.abs().flatten().kthvalue(count).values] = 0


@dataclass(eq=False)
class Rounded:
    """A layer's weights, which learn as they are while the network sees few numbers instead."""

    weight: nn.Parameter
    numbers: Tensor
    """in rising order"""

    def __post_init__(self) -> None:
        """Keep the weights as they are, and where they live."""
        self.exact = self.weight.detach().clone()
        self.alive = self.exact != 0

    @torch.no_grad()
    def round(self) -> None:
        """Show the nearest numbers, which then become the means of their weights."""
        living = self.exact[self.alive]
        edges = (self.numbers[1:] + self.numbers[:-1]) / 2
        nearest = torch.bucketize(living, edges)
        sums = torch.zeros_like(self.numbers).index_add_(0, nearest, living)
        counts = nearest.bincount(minlength=len(self.numbers))
        self.numbers = torch.where(counts > 0, sums / counts.clamp(min=1), self.numbers)
        self.weight[self.alive] = self.numbers[nearest]

    @torch.no_grad()
    def restore(self) -> None:
        """Show the weights themselves, whose gradient is that of their numbers."""
        self.weight.copy_(self.exact)
        assert self.weight.grad is not None
        self.weight.grad *= self.alive

    def keep(self) -> None:
        """Take over what the weights have learned."""
        self.exact.copy_(self.weight.detach())


def with_few_numbers(
    model: nn.Module,
    bits: Mapping[str, int],
    pool: Pool,
    *,
    steps: int,
    rate: float,
    size: int = 64,
    device: str = "cpu",
) -> nn.Module:
    """A copy whose weights learned, by Adam, which of a layer's few numbers each of them is."""
    made = copy.deepcopy(model).eval().to(device)
    layers = []
    for name, weight in weights_of(made, [*bits]).items():
        count = 1 << next(n for pattern, n in bits.items() if matches(name, pattern))
        plain = weight.detach().cpu().double().numpy()
        numbers = torch.from_numpy(clusters(plain[plain != 0], count).centroids)
        layers.append(Rounded(weight, numbers.to(weight)))
    optimizer = torch.optim.Adam(made.parameters(), lr=rate)
    made.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    for step, batch in enumerate(pool.batches(steps, size)):
        optimizer.param_groups[0]["lr"] = _fallen(rate, step, steps)
        optimizer.zero_grad()
        for layer in layers:
            layer.round()
        images = pool.images[batch].to(device).contiguous(memory_format=torch.channels_last)
        distance(made(images), pool.answers[batch].to(device)).backward()
        for layer in layers:
            layer.restore()
        optimizer.step()
        for layer in layers:
            layer.keep()
    for layer in layers:
        layer.round()
    return made.cpu()


def _fallen(rate: float, step: int, steps: int) -> float:
    return rate * (1 + math.cos(math.pi * step / steps)) / 2
