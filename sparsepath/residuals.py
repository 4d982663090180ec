"""Primal and dual residuals of one ADMM iteration, and the rule that balances rho by them."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

from sparsepath.errors import BadInput, checked_number


@dataclass(frozen=True)
class Residuals:
    """How far one iteration was from the constraint W = F and from standing still."""

    primal: float
    """||W - F||"""
    dual: float
    """||F - F_previous||, the paper's, without rho"""
    primal_relative: float
    """||W - F|| / max(||W||, ||F||)"""
    dual_relative: float
    """||F - F_previous|| / ||Gamma / rho||"""
    flipped: int = 0
    """how many blocks of F died or came back: an l0 path that stops while this is not small has a
    support that depends on where it stopped"""
    guarded: tuple[str, ...] = ()
    """the weights whose threshold the guard lowered: their prox was not the exact one"""

    @classmethod
    def of(
        cls, norms: Mapping[str, float], rho: float, *, flipped: int, guarded: tuple[str, ...]
    ) -> Self:
        """From ||W - F||, ||F - F_previous||, ||W||, ||F|| and ||Gamma||."""
        primal, dual = norms["W - F"], norms["F - F_previous"]
        return cls(
            primal,
            dual,
            _share(primal, max(norms["W"], norms["F"])),
            _share(dual, norms["Gamma"] / rho),
            flipped,
            guarded,
        )


def _share(part: float, whole: float) -> float:
    """part / whole, where nothing of nothing is nothing."""
    return part / whole if whole else (math.inf if part else 0.0)


@dataclass(frozen=True)
class ResidualBalancing:
    """Grow or shrink rho by `factor` when one relative residual is `ratio` times the other."""

    ratio: float = 10.0
    factor: float = 2.0

    def __post_init__(self) -> None:
        """Refuse a ratio or factor that balances nothing."""
        for name, value in (("ratio", self.ratio), ("factor", self.factor)):
            if checked_number(f"The balancing {name}", value) <= 1:
                raise BadInput(f"The balancing {name} must be above 1, not {value!r}.")

    def __call__(self, rho: float, residuals: Residuals) -> float:
        """The next rho (Wohlberg 2017: relative residuals, since the raw ones depend on units)."""
        if math.isinf(residuals.dual_relative):
            # Gamma = 0: nothing is pruned yet, so W = F and there is nothing to balance.
            return rho
        if residuals.primal_relative > self.ratio * residuals.dual_relative:
            return rho * self.factor
        if residuals.dual_relative > self.ratio * residuals.primal_relative:
            return rho / self.factor
        return rho
