"""How the networks of the shipping table are made: fewer weights in fc1, then shared ones.

Both learn from the dense network's answers to a pool of training images, each shifted and mirrored
once: its answers say more about an image than the label, so that a few hundred steps are enough.
"""

import copy
import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from sparsepath.deploy import compile
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


def teaching(pool: Pool, *, steps: int, rate: float, size: int = 64) -> Callable[[nn.Module], None]:
    """A short loop for shared weights: Adam, whose rate falls to nothing by a cosine."""

    def train(model: nn.Module) -> None:
        optimizer = torch.optim.Adam(model.parameters(), lr=rate)
        model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        for step, batch in enumerate(pool.batches(steps, size)):
            optimizer.param_groups[0]["lr"] = _fallen(rate, step, steps)
            images = pool.images[batch].contiguous(memory_format=torch.channels_last)
            optimizer.zero_grad()
            distance(model(images), pool.answers[batch]).backward()
            optimizer.step()

    return train


def _fallen(rate: float, step: int, steps: int) -> float:
    return rate * (1 + math.cos(math.pi * step / steps)) / 2
