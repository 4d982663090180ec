"""The regularisation path, the paper's Algorithm 1: from dense to sparse as mu grows."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from numbers import Real

import torch
from torch import Tensor, nn

from sparsepath.admm import ADMM
from sparsepath.errors import (
    BadInput,
    check_callable,
    check_kinds,
    checked_count,
    checked_flag,
    checked_number,
)
from sparsepath.metrics import Sparsity, evaluating, sparsity
from sparsepath.modules import uncompiled
from sparsepath.mus import check_ranged, checked_mus, mu_range
from sparsepath.residuals import Residuals
from sparsepath.support import Support


@dataclass(frozen=True)
class Schedule:
    """How long each mu trains: the paper's delta, nu, xi, and the residuals to stop at, epsilon."""

    delta: int = 1
    nu: int = 15
    xi: int = 10
    epsilon: float = 1e-2
    finetune: int | None = None
    """epochs of every fine-tune; None for as many as a performance step has, as the paper does"""

    def __post_init__(self) -> None:
        """Refuse counts below one, but for delta, and an epsilon that is no length.

        With delta = 0 nothing is trained before a sparsity step: with F and Gamma restarted that is
        pruning by magnitude.
        """
        checked_count("delta", self.delta, least=0)
        for name in ("nu", "xi"):
            checked_count(name, getattr(self, name))
        if self.finetune is not None:
            checked_count("finetune", self.finetune, least=0)
        checked_number("epsilon", self.epsilon, zero=True)

    def epochs(self, index: int) -> int:
        """Epochs of one performance step at the path's index-th point."""
        return self.delta * min(index + 1, self.nu)

    def finetune_epochs(self, index: int) -> int:
        """Epochs of the fine-tune at the path's index-th point."""
        return self.epochs(index) if self.finetune is None else self.finetune

    def converged(self, residuals: Residuals) -> bool:
        """The paper's stop: both residuals at most epsilon."""
        return residuals.primal <= self.epsilon and residuals.dual <= self.epsilon


def no_pull() -> float:
    """What the proximity is where nothing pulls."""
    return 0.0


@dataclass(frozen=True)
class Stage:
    """A piece of training that the path asks for: add `proximity()` to the loss, hold `support`."""

    index: int
    """the point of the path, from 0"""
    mu: float
    """its mu, or its count where the penalty is a projection"""
    iteration: int | None
    """the ADMM iteration, from 0; None for the fine-tune"""
    epochs: int
    proximity: Callable[[], Tensor | float] = field(default=no_pull, repr=False)
    """the pull towards F; zero in the fine-tune"""
    support: Support = field(default_factory=lambda: Support({}), repr=False)
    """the weights that survive; no mask at all in a performance step"""


@dataclass(frozen=True)
class PathPoint:
    """One point of the path: its sparse network and every figure about it."""

    index: int
    mu: float
    """or the count where the penalty is a projection"""
    residuals: tuple[Residuals, ...]
    """of each ADMM iteration"""
    converged: bool
    epochs: int
    """performance steps and fine-tune together"""
    accuracy_W: float
    """of the weights when ADMM stopped, not yet sparse"""
    accuracy_F: float
    """of the projected weights F, before any fine-tune"""
    accuracy: float
    """of the sparse network after its fine-tune"""
    sparsity: Sparsity
    support: Support = field(repr=False)
    weights: dict[str, Tensor] = field(repr=False)
    """the sparse network's state_dict, on the CPU"""

    def load(self, model: nn.Module) -> None:
        """Put this point's weights into a model of the same architecture."""
        uncompiled(model).load_state_dict(self.weights)


@dataclass(frozen=True)
class Progress:
    """How far a path has come: with the weights and ADMM's state, all it needs to go on."""

    index: int = 0
    residuals: tuple[Residuals, ...] = ()
    """of the iterations already done at this point"""


Train = Callable[[nn.Module, Stage], None]
Evaluate = Callable[[nn.Module], float]


def regularisation_path(
    admm: ADMM,
    train: Train,
    *,
    evaluate: Evaluate,
    mus: Sequence[float] | None = None,
    schedule: Schedule | None = None,
    restart: bool = False,
    start: Progress | None = None,
    checkpoint: Callable[[Progress], None] | None = None,
) -> Iterator[PathPoint]:
    """Walk the path of `admm`, one point per mu; leave it at any point with `break`.

    `mus` grow along the path (for a projection they are counts, and fall); `mu_range` finds 20 when
    none are given. `restart` sets F = W and Gamma = 0 at each mu, where the paper carries both on.
    `checkpoint` is called whenever state was completed; `start` goes on from what it was told.
    """
    check_callable(train=train)
    items = stages(
        admm,
        evaluate=evaluate,
        mus=mus,
        schedule=schedule,
        restart=restart,
        start=start,
        checkpoint=checkpoint,
    )
    return _trained(admm.given, train, items)


def _trained(
    model: nn.Module, train: Train, items: Iterator[Stage | PathPoint]
) -> Iterator[PathPoint]:
    """The points of a path, whose stages are trained as they come."""
    for item in items:
        if isinstance(item, PathPoint):
            yield item
        else:
            train(model, item)


def stages(
    admm: ADMM,
    *,
    evaluate: Evaluate,
    mus: Sequence[float] | None = None,
    schedule: Schedule | None = None,
    restart: bool = False,
    start: Progress | None = None,
    checkpoint: Callable[[Progress], None] | None = None,
) -> Iterator[Stage | PathPoint]:
    """The path as a generator that hands out its training, so that several can go side by side."""
    schedule = Schedule() if schedule is None else schedule
    start = Progress() if start is None else start
    checkpoint = (lambda progress: None) if checkpoint is None else checkpoint
    checked_flag("restart", restart)
    check_kinds(admm=(admm, ADMM), schedule=(schedule, Schedule), start=(start, Progress))
    check_callable(evaluate=evaluate, checkpoint=checkpoint)
    if mus is None and start != Progress():
        raise BadInput("To go on from `start`, give the `mus` that the path was started with.")
    if mus is None:
        check_ranged(admm)
    else:
        mus = checked_mus(admm, mus)
        if not 0 <= start.index <= len(mus):
            raise BadInput(
                f"`start` is at point {start.index} of a path of {len(mus)}: give the `mus` that "
                "the path was started with."
            )
    return _walked(admm, evaluate, mus, schedule, restart, start, checkpoint)


def _walked(
    admm: ADMM,
    evaluate: Evaluate,
    mus: Sequence[float] | None,
    schedule: Schedule,
    restart: bool,
    start: Progress,
    checkpoint: Callable[[Progress], None],
) -> Iterator[Stage | PathPoint]:
    """The path itself, every argument checked."""
    if start == Progress() and not any(Gamma.any() for Gamma in admm.Gamma.values()):
        # Nothing pulls yet: the model may have been trained, or loaded, since F was copied.
        admm.restart()
    mus = mu_range(admm) if mus is None else mus
    for index in range(start.index, len(mus)):
        residuals = start.residuals if index == start.index else ()
        admm.position = mus[index]
        if restart and not residuals:
            admm.restart()
        epochs = schedule.epochs(index)
        while not _finished(residuals, schedule):
            if epochs:
                yield Stage(index, mus[index], len(residuals), epochs, admm.proximity)
            residuals = (*residuals, admm.step())
            checkpoint(Progress(index, residuals))
        support = admm.support()
        accuracy_W, accuracy_F = _judged(admm, evaluate), _judged_F(admm, evaluate)
        support.impose(admm.model)
        finetune = schedule.finetune_epochs(index)
        if finetune:
            yield Stage(index, mus[index], None, finetune, support=support)
        _check_held(admm, support)
        point = PathPoint(
            index=index,
            mu=mus[index],
            residuals=residuals,
            converged=schedule.converged(residuals[-1]),
            epochs=epochs * len(residuals) + finetune,
            accuracy_W=accuracy_W,
            accuracy_F=accuracy_F,
            accuracy=_judged(admm, evaluate),
            sparsity=sparsity(admm.model, admm.blocks),
            support=support,
            weights={n: t.detach().cpu().clone() for n, t in admm.model.state_dict().items()},
        )
        yield point
        checkpoint(Progress(index + 1))


def _finished(residuals: tuple[Residuals, ...], schedule: Schedule) -> bool:
    return bool(residuals) and (len(residuals) >= schedule.xi or schedule.converged(residuals[-1]))


def _judged(admm: ADMM, evaluate: Evaluate) -> float:
    """The accuracy, in eval mode: validation images must not move a batch norm's statistics."""
    with evaluating(admm.given):
        accuracy: object = evaluate(admm.given)
    if isinstance(accuracy, Tensor) and accuracy.numel() == 1:
        accuracy = accuracy.item()
    if isinstance(accuracy, bool) or not isinstance(accuracy, Real):
        raise BadInput(f"evaluate must return the accuracy as a number, not {accuracy!r}.")
    return float(accuracy)


def _check_held(admm: ADMM, support: Support) -> None:
    """Refuse a fine-tune that brought zeros back: its points would be dense."""
    for name, mask in support.items():
        if bool((admm.W[name].detach() != 0).logical_and(~mask).any()):
            raise BadInput(
                f"The fine-tune changed zeros of {name!r}: train with "
                f"`with stage.support.held(model, optimizer):` around its steps."
            )


@torch.no_grad()
def _judged_F(admm: ADMM, evaluate: Evaluate) -> float:
    """The accuracy of the network whose weights are F, the model's own weights put back after."""
    kept = {name: W.clone() for name, W in admm.W.items()}
    try:
        for name, W in admm.W.items():
            W.copy_(admm.F[name])
        return _judged(admm, evaluate)
    finally:
        for name, W in admm.W.items():
            W.copy_(kept[name])
