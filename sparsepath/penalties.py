"""Penalties on block norms with their exact prox: the paper's l1 and l0, and l1/2."""

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Self

import torch
from torch import Tensor

from sparsepath.blocks import Blocks, norms
from sparsepath.errors import checked_number
from sparsepath.native import threshold_blocks


class Penalty(ABC):
    """A sparsity penalty f with the exact solution of the sparsity step."""

    @abstractmethod
    def value(self, F: Tensor, blocks: Blocks) -> Tensor:
        """f(F), summed over blocks."""

    @abstractmethod
    def prox(self, V: Tensor, blocks: Blocks, step: float, *, out: Tensor | None = None) -> Tensor:
        """The global minimiser over F of step * f(F) + 1/2 ||F - V||^2, where step = mu / rho."""

    @property
    def identity(self) -> str:
        """What must be equal for saved state to go on with this penalty."""
        return repr(self)

    def check(self, blocks: Mapping[str, Blocks]) -> None:
        """Refuse blocks that this penalty cannot take, naming their weight."""
        return

    def per_layer(self, norms: Mapping[str, Tensor]) -> Mapping[str, "Penalty"]:
        """The penalty each layer takes once the norms of all layers are known."""
        return dict.fromkeys(norms, self)


class Radial(Penalty):
    """A sum over blocks of cost * phi(||block||): its prox scales each block towards zero."""

    soft: ClassVar[bool | None] = None
    """whether blocks above the threshold are shortened by it (or left); None for anything else"""

    @abstractmethod
    def phi(self, t: Tensor) -> Tensor:
        """The penalty of one block of norm t."""

    @abstractmethod
    def shrunk(self, x: Tensor, s: float | Tensor) -> Tensor:
        """The global minimiser over t >= 0 of s * phi(t) + 1/2 (t - x)^2; zero wins a tie.

        An answer that is not a number keeps its block as it is, so that what diverged shows: so it
        must be one where, and only where, the norm is one.
        """

    @abstractmethod
    def threshold(self, step: float) -> float:
        """The largest norm that the prox at this step sets to zero."""

    @abstractmethod
    def step_at(self, threshold: float) -> float:
        """The step whose threshold this is: the inverse of `threshold`."""

    def scaled(self, unit: float) -> Self:
        """This penalty with its shape parameters counted in another unit of the block norm."""
        return self

    def value(self, F: Tensor, blocks: Blocks) -> Tensor:
        """f(F) = sum over blocks of cost * phi(||block||)."""
        norm = blocks.norms(F)
        return (_on(blocks.cost, norm) * self.phi(norm)).sum()

    @torch.no_grad()
    def prox(self, V: Tensor, blocks: Blocks, step: float, *, out: Tensor | None = None) -> Tensor:
        """The sparsity step, block by block, a cacheful at a time: V is read and F written once."""
        step = checked_number("step", step, zero=True)
        F = torch.empty_like(V) if out is None else out
        if step == 0:
            return F.copy_(V)
        if self._fused(V, F, blocks, step):
            return F
        source, target = blocks.of(V), blocks.of(F)
        # A GPU has no such cache: there every slab would only be one more round of launches.
        slabs = blocks.slabs() if V.device.type == "cpu" else (slice(None),)
        for slab in slabs:
            v = source[slab]
            x = norms(v, blocks.inside)
            cost = blocks.cost[slab] if isinstance(blocks.cost, Tensor) else blocks.cost
            t = self.shrunk(x, _within(step * _on(cost, x), x))
            # A chosen zero is +0, where a product with zero could be -0.
            living = v if self.soft is False else v * (t / x)
            # Asked so that what is not a number lives and shows, as it does by the compiled kernel.
            target[slab] = torch.where(t <= 0, 0.0, living)
        return F

    def _fused(self, V: Tensor, F: Tensor, blocks: Blocks, step: float) -> bool:
        """Do the whole prox by the compiled kernel, where there is one; whether it was done."""
        if self.soft is None or isinstance(blocks.cost, Tensor):
            return False
        threshold = self.threshold(step * blocks.cost)
        return threshold_blocks(V, F, blocks, threshold=threshold, soft=self.soft)


def _on(cost: float | Tensor, like: Tensor) -> float | Tensor:
    return cost.to(like) if isinstance(cost, Tensor) else cost


def _within(s: float | Tensor, like: Tensor) -> float | Tensor:
    """A step that the norms' own numbers can hold: infinity times the penalty of zero is none."""
    most = torch.finfo(like.dtype).max
    return s.clamp(max=most) if isinstance(s, Tensor) else min(s, most)


@dataclass(frozen=True)
class L1(Radial):
    """Group lasso, phi(t) = t: the soft threshold at step (equation 9)."""

    soft = True

    def phi(self, t: Tensor) -> Tensor:
        """The norm itself."""
        return t

    def shrunk(self, x: Tensor, s: float | Tensor) -> Tensor:
        """The norm less the step."""
        return (x - s).clamp_(min=0)

    def threshold(self, step: float) -> float:
        """The paper's a = mu / rho."""
        return step

    def step_at(self, threshold: float) -> float:
        """The threshold itself."""
        return threshold


@dataclass(frozen=True)
class L0(Radial):
    """Number of non-zero blocks, phi(t) = 1 for t > 0: the hard threshold (equation 10)."""

    soft = False

    def phi(self, t: Tensor) -> Tensor:
        """One for a block that lives."""
        return (t > 0).to(t.dtype)

    def shrunk(self, x: Tensor, s: float | Tensor) -> Tensor:
        """All or nothing."""
        b = torch.sqrt(2 * s) if isinstance(s, Tensor) else math.sqrt(2 * s)
        return torch.where(x <= b, 0.0, x)

    def threshold(self, step: float) -> float:
        """The paper's b = sqrt(2 mu / rho)."""
        return math.sqrt(2 * step)

    def step_at(self, threshold: float) -> float:
        """Half the threshold's square."""
        return threshold**2 / 2


@dataclass(frozen=True)
class L12(Radial):
    """The l_{1/2} penalty, phi(t) = sqrt(t): half thresholding (Xu et al. 2012)."""

    def phi(self, t: Tensor) -> Tensor:
        """The root of the norm."""
        return t.sqrt()

    def shrunk(self, x: Tensor, s: float | Tensor) -> Tensor:
        """The largest root of the cubic in sqrt(t), by its cosine form, above the jump."""
        below = x <= 1.5 * s ** (2 / 3)
        # At the jump the argument is sqrt(1/2); the clamp only serves blocks below it.
        angle = torch.arccos((s / 4 * (x / 3) ** -1.5).clamp(max=1))
        t = 2 / 3 * x * (1 + torch.cos(2 / 3 * (math.pi - angle)))
        return torch.where(below, 0.0, t)

    def threshold(self, step: float) -> float:
        """Three halves of the step's cubic root squared."""
        return float(1.5 * step ** (2 / 3))

    def step_at(self, threshold: float) -> float:
        """The inverse power."""
        return float((threshold / 1.5) ** 1.5)
