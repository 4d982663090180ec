"""Penalties between l1 and l0, concave in the block norm: MCP, SCAD and the log-sum."""

import math
from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Self

import torch
from torch import Tensor

from sparsepath.errors import BadInput, checked_number
from sparsepath.penalties import Radial


def _best(
    x: Tensor, s: float | Tensor, phi: Callable[[Tensor], Tensor], candidates: list[Tensor]
) -> Tensor:
    """The candidate t of least s * phi(t) + 1/2 (t - x)^2, the first among equals."""
    best, least = candidates[0], s * phi(candidates[0]) + 0.5 * (candidates[0] - x).square()
    for t in candidates[1:]:
        objective = s * phi(t) + 0.5 * (t - x).square()
        best = torch.where(least <= objective, best, t)
        least = torch.minimum(objective, least)
    return best


class Plateau(Radial):
    """A penalty of slope 1 at zero that is flat, at half its `width`, from some norm on."""

    @property
    @abstractmethod
    def width(self) -> float:
        """Twice the height of the plateau."""

    def threshold(self, step: float) -> float:
        """The step itself, as for l1, or the jump on to the plateau where that comes first."""
        return step if step <= self.width else math.sqrt(step * self.width)

    def step_at(self, threshold: float) -> float:
        """The inverse of `threshold`."""
        return threshold if threshold <= self.width else threshold**2 / self.width


@dataclass(frozen=True)
class MCP(Plateau):
    """Minimax concave penalty, phi(t) = t - t^2 / (2 theta) up to theta, then theta / 2."""

    theta: float = 3.0

    def __post_init__(self) -> None:
        """Refuse a theta that is no length; 3 and 3.0 are one."""
        object.__setattr__(self, "theta", checked_number("MCP's theta", self.theta))

    @property
    def width(self) -> float:
        """Twice theta / 2."""
        return self.theta

    def scaled(self, unit: float) -> Self:
        """Theta in the given unit."""
        return replace(self, theta=self.theta * unit)

    def phi(self, t: Tensor) -> Tensor:
        """A parabola up to theta, flat beyond."""
        inner = t.clamp(max=self.theta)
        return inner - inner.square() / (2 * self.theta)

    def shrunk(self, x: Tensor, s: float | Tensor) -> Tensor:
        """Firm threshold while s < theta; beyond, the parabola is concave and an end must win."""
        s = torch.as_tensor(s, dtype=x.dtype, device=x.device)
        firm = ((x - s).clamp(min=0) / (1 - s / self.theta)).clamp(max=self.theta)
        inner = torch.where(s < self.theta, firm, 0.0)
        return _best(x, s, self.phi, [inner, x.clamp(min=self.theta)])


@dataclass(frozen=True)
class SCAD(Plateau):
    """Smoothly clipped absolute deviation: slope 1 up to theta, falling to 0 at a * theta."""

    theta: float = 1.0
    a: float = 3.7

    def __post_init__(self) -> None:
        """Refuse parameters that leave no room to bend; 3 and 3.0 are one."""
        object.__setattr__(self, "theta", checked_number("SCAD's theta", self.theta))
        object.__setattr__(self, "a", checked_number("SCAD's a", self.a))
        if self.a <= 1:
            raise BadInput(f"SCAD's a must be above 1 (3.7 is usual), not {self.a!r}.")

    @property
    def width(self) -> float:
        """Twice the height (a + 1) theta / 2."""
        return (self.a + 1) * self.theta

    def scaled(self, unit: float) -> Self:
        """Theta in the given unit; a has none."""
        return replace(self, theta=self.theta * unit)

    def phi(self, t: Tensor) -> Tensor:
        """Linear, then a parabola, then flat."""
        bent = (t.clamp(max=self.a * self.theta) - self.theta).clamp(min=0)
        return t.clamp(max=self.a * self.theta) - bent.square() / (2 * (self.a - 1) * self.theta)

    def shrunk(self, x: Tensor, s: float | Tensor) -> Tensor:
        """The best of the three pieces' own minimisers."""
        s = torch.as_tensor(s, dtype=x.dtype, device=x.device)
        low, high, bend = self.theta, self.a * self.theta, (self.a - 1) * self.theta
        # A piece that is not convex has its least at an end, which its neighbours also offer.
        middle = ((x - s * self.a / (self.a - 1)) / (1 - s / bend)).clamp(low, high)
        middle = torch.where(s < bend, middle, low)
        return _best(x, s, self.phi, [(x - s).clamp(0, low), middle, x.clamp(min=high)])


@dataclass(frozen=True)
class LogSum(Radial):
    """The log-sum penalty, phi(t) = log(1 + t / theta)."""

    theta: float = 1.0

    def __post_init__(self) -> None:
        """Refuse a theta that is no length; 3 and 3.0 are one."""
        object.__setattr__(self, "theta", checked_number("LogSum's theta", self.theta))

    def scaled(self, unit: float) -> Self:
        """Theta in the given unit."""
        return replace(self, theta=self.theta * unit)

    def phi(self, t: Tensor) -> Tensor:
        """The logarithm, exact near zero."""
        return torch.log1p(t / self.theta)

    def shrunk(self, x: Tensor, s: float | Tensor) -> Tensor:
        """Zero or the larger stationary point, by whichever form of its root does not cancel."""
        root = ((x + self.theta).square() - 4 * s).clamp(min=0).sqrt()
        below = 2 * (x * self.theta - s) / (self.theta - x + root)
        t = torch.where(x < self.theta, below, (x - self.theta + root) / 2).clamp(min=0)
        s = torch.as_tensor(s, dtype=x.dtype, device=x.device)
        # Where the problem is convex its stationary point is the answer, and comparing two nearly
        # equal objectives would only lose digits.
        best = _best(x, s, self.phi, [torch.zeros_like(x), t])
        return torch.where(s <= self.theta**2, t, best)

    def threshold(self, step: float) -> float:
        """The least over t of step * phi(t) / t + t / 2, which is convex; at 0 for small steps."""
        if step <= self.theta**2:
            return step / self.theta
        return _least(
            lambda t: step * math.log1p(t / self.theta) / t + t / 2, 2 * step / self.theta
        )

    def step_at(self, threshold: float) -> float:
        """The largest over t of t (threshold - t / 2) / phi(t), a unimodal function."""
        if threshold <= self.theta:
            return threshold * self.theta
        return -_least(
            lambda t: -t * (threshold - t / 2) / math.log1p(t / self.theta), 2 * threshold
        )


def _least(function: Callable[[float], float], high: float) -> float:
    """The least value of a unimodal function on (0, high), by golden section."""
    golden = (math.sqrt(5) - 1) / 2
    low = 0.0
    left, right = high * (1 - golden), high * golden
    at_left, at_right = function(left), function(right)
    for _ in range(100):
        if at_left < at_right:
            high, right, at_right = right, left, at_left
            left = high - golden * (high - low)
            at_left = function(left)
        else:
            low, left, at_left = left, right, at_right
            right = low + golden * (high - low)
            at_right = function(right)
    return min(at_left, at_right)
