"""The regularisation path, the paper's Algorithm 1: from dense to sparse as mu grows."""

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from numbers import Real

import torch
from torch import Tensor, nn

from sparsepath.admm import ADMM
from sparsepath.errors import BadInput, checked_count, checked_number
from sparsepath.metrics import Sparsity, evaluating, sparsity
from sparsepath.penalties import Radial
from sparsepath.projections import Projection
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
        model.load_state_dict(self.weights)


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
    for item in stages(
        admm,
        evaluate=evaluate,
        mus=mus,
        schedule=schedule,
        restart=restart,
        start=start,
        checkpoint=checkpoint,
    ):
        if isinstance(item, PathPoint):
            yield item
        else:
            train(admm.model, item)


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
    schedule = schedule or Schedule()
    start = start or Progress()
    checkpoint = checkpoint or (lambda progress: None)
    if mus is None and start != Progress():
        raise BadInput("To go on from `start`, give the `mus` that the path was started with.")
    mus = mu_range(admm) if mus is None else _checked_mus(admm, mus)
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
    with evaluating(admm.model):
        accuracy: object = evaluate(admm.model)
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


def _checked_mus(admm: ADMM, mus: Sequence[float]) -> list[float]:
    if not len(mus):
        raise BadInput("A path needs at least one mu, and an empty list was given.")
    rising = not isinstance(admm.penalty, Projection)
    for mu in mus:
        if isinstance(admm.penalty, Projection):
            admm.penalty.at(mu).check(admm.blocks)
        else:
            checked_number("mu", mu, zero=True)
    for before, after in itertools.pairwise(mus):
        if (after <= before) if rising else (after >= before):
            raise BadInput(
                f"A path goes from dense to sparse: {'mu must grow' if rising else 'counts fall'}, "
                f"but {after!r} follows {before!r}."
            )
    return [float(mu) for mu in mus] if rising else list(mus)


def mu_range(
    admm: ADMM, *, points: int = 20, reach: tuple[float, float] = (0.01, 0.99)
) -> list[float]:
    """Log-spaced mu that would zero, at once, these shares of the blocks that live now."""
    checked_count("points", points)
    if not 0 <= reach[0] < reach[1] <= 1:
        raise BadInput(f"A path reaches from a share of the blocks to a larger one, not {reach!r}.")
    if not isinstance(admm.penalty, Radial):
        raise BadInput(
            f"{admm.penalty!r} has no threshold to find mu by: give mus, as in mus=[0.5, 0.2, 0.1]."
        )
    critical = sorted(pair for name in admm.W for pair in _critical_mus(admm, name))
    if not critical:
        raise BadInput("Every block of this model is zero: there is no path to walk.")
    mu_min, mu_max = (_quantile(critical, share) for share in reach)
    return [mu_max] if mu_min == mu_max else log_spaced(mu_min, mu_max, points)


def log_spaced(first: float, last: float, points: int) -> list[float]:
    """So many mu from the first to the last, evenly spaced in their logarithm."""
    if points == 1:
        return [last]
    growth = math.log(last / first) / (points - 1)
    return [first * math.exp(growth * k) for k in range(points)]


def _critical_mus(admm: ADMM, name: str, sample: int = 200) -> list[tuple[float, float]]:
    """The mu that would zero a block, at evenly spaced ranks, and how many blocks it stands for."""
    blocks, penalty = admm.blocks[name], admm.penalties[name]
    assert isinstance(penalty, Radial)
    norm = blocks.norms(admm.W[name].detach()).flatten()
    living = norm.argsort()[int((norm == 0).sum()) :]
    # In float64: float32 would round the last of many million ranks past the end.
    ranks = torch.linspace(
        0, len(living) - 1, min(sample, len(living)), dtype=torch.float64, device=norm.device
    )
    chosen = living[ranks.round().long()]
    cost = (
        blocks.cost.to(norm).flatten()[chosen]
        if isinstance(blocks.cost, Tensor)
        else torch.full_like(ranks, blocks.cost)
    )
    return [
        (admm.rho * penalty.step_at(x) / c, len(living) / len(chosen))
        for x, c in zip(norm[chosen].tolist(), cost.tolist(), strict=True)
    ]


def _quantile(weighted: list[tuple[float, float]], share: float) -> float:
    """The value below which this share of the weight lies, in a sorted list of (value, weight)."""
    total = sum(weight for _, weight in weighted)
    cumulative = itertools.accumulate(weight for _, weight in weighted)
    return next(
        value
        for (value, _), below in zip(weighted, cumulative, strict=True)
        if below >= share * total * (1 - 1e-12)
    )
