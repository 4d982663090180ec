"""The settings of the paper's experiments, as this project runs them: what `reproduce` reads."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

import torch
from torch import Tensor

from sparsepath.admm import ADMM
from sparsepath.mus import log_spaced, mu_range
from sparsepath.path import Schedule, Stage
from sparsepath.penalties import Radial
from sparsepath.projections import Projection


@dataclass(frozen=True)
class DenseRecipe:
    """How a dense reference is trained: one cycle of the rate, up to its peak and down to zero."""

    epochs: int
    rate: float
    rise: float = 0.25
    dropout: float | None = None
    """None for what is usual with the network"""
    shift: int = 4
    """by how many pixels at most training images are shifted each way"""
    hole: int = 0
    """the side of the square that is blanked in each training image"""
    decay: float = 5e-4

    def rates(self, epoch: int, steps: int) -> Tensor:
        """The rate of every step of one epoch; zero once the cycle is over."""
        at = (epoch * steps + torch.arange(steps)) / (self.epochs * steps)
        return self.rate * torch.minimum(at / self.rise, (1 - at) / (1 - self.rise)).clamp(min=0)

    def plain(self) -> dict[str, Any]:
        """As JSON holds it."""
        return asdict(self)

    def completed(self, kept: Mapping[str, Any]) -> dict[str, Any]:
        """What a record keeps of its recipe; a field it lacks had its default then."""
        return {**DenseRecipe(self.epochs, self.rate).plain(), **kept}


DENSE: Mapping[str, DenseRecipe] = {
    "nin": DenseRecipe(epochs=80, rate=0.1),
    "low-rank-nin": DenseRecipe(epochs=150, rate=0.1, dropout=0.1),
    "cnn": DenseRecipe(epochs=60, rate=0.05),
    "low-rank-cnn": DenseRecipe(epochs=60, rate=0.05),
}
"""All with batch 128, momentum 0.9, and flips but for digits."""


@dataclass(frozen=True)
class PathRecipe:
    """How a path is walked; the defaults are the paper's own settings where it gives them."""

    rho: float
    reach: tuple[float, float]
    """the quantiles of the dense block norms between which the first and the last mu threshold"""
    last: int = 12
    """the last point walked of the 20: the paper reports up to here"""
    points: int = 20
    schedule: Schedule = field(default_factory=lambda: Schedule(epsilon=1e-2))
    rate: float = 0.001
    momentum: float = 0.9
    decay: float = 5e-4
    finetune_decay: float | None = None
    """None for the same decay in the fine-tune"""
    dropout: float | None = None
    """None for that of the dense network"""
    shift: int | None = None
    """None for that of the dense network"""
    hole: int | None = None
    """None for that of the dense network"""
    distil: float = 0.0
    """the share of the loss that asks for the answers of the dense network, not for the labels"""
    guard: float | None = 0.5
    ramp: float = 1.0
    """what rho and mu, so that no threshold moves, are multiplied by after each iteration"""
    restart: bool = False
    peak: float | None = None
    """the highest rate of each fine-tune, which is then one cycle; None holds `rate` throughout"""
    whole: bool = False
    """whether that cycle is over all epochs of a point, of which the fine-tune has the last"""
    span: tuple[float, float] | None = None
    """in place of `reach`: the first and the last threshold, in median norms of the dense blocks"""
    keep: tuple[float, ...] = ()
    """of a method that counts: the share of the blocks that live at each point"""
    lasso: tuple[float, ...] = ()
    """of SSL: how far the group lasso alone would shrink a block before each point, in medians"""

    @property
    def length(self) -> int:
        """How many points are walked."""
        return len(self.keep) or self.last + 1

    def mus(self, admm: ADMM) -> list[float]:
        """The mu to walk from a dense network."""
        if isinstance(admm.penalty, Projection):
            return list(self.keep)
        if self.span is None:
            found = mu_range(admm, points=self.points, reach=self.reach)
        else:
            assert isinstance(admm.penalty, Radial)
            median = median_norm(admm)
            first, last = (admm.rho * admm.penalty.step_at(x * median) for x in self.span)
            found = log_spaced(first, last, self.points)
        return found[: self.last + 1]

    def rates(self, stage: Stage, epoch: int, steps: int) -> Tensor:
        """The rate of every step of one epoch of a stage."""
        if self.peak is not None and self.whole:
            before = self.schedule.xi * self.schedule.epochs(stage.index)
            cycle = DenseRecipe(before + self.schedule.finetune_epochs(stage.index), self.peak)
            gone = before if stage.iteration is None else stage.iteration * stage.epochs
            return cycle.rates(gone + epoch, steps)
        if self.peak is not None and stage.iteration is None:
            return DenseRecipe(stage.epochs, self.peak).rates(epoch, steps)
        return torch.full((steps,), self.rate)

    def decay_in(self, stage: Stage) -> float:
        """The weight decay of a stage."""
        if stage.iteration is None and self.finetune_decay is not None:
            return self.finetune_decay
        return self.decay

    def plain(self) -> dict[str, Any]:
        """As JSON holds it."""
        plain: dict[str, Any] = json.loads(json.dumps(asdict(self)))
        return plain

    def completed(self, kept: Mapping[str, Any]) -> dict[str, Any]:
        """What a record keeps of its recipe; a field it lacks had its default then."""
        usual = PathRecipe(self.rho, self.reach).plain()
        schedule = {**usual["schedule"], **kept.get("schedule", {})}
        return {**usual, **kept, "schedule": schedule}


def median_norm(admm: ADMM) -> float:
    """The median norm of all blocks as they are now."""
    norms = [admm.blocks[name].norms(W.detach()).flatten() for name, W in admm.W.items()]
    return float(torch.cat(norms).median())
