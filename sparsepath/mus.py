"""The mu of a path: from the norms of the blocks, log-spaced, and only ever upwards."""

import itertools
import math
from collections.abc import Sequence

import torch
from torch import Tensor

from sparsepath.admm import ADMM
from sparsepath.errors import BadInput, checked_count, checked_number
from sparsepath.penalties import Radial
from sparsepath.projections import Projection


def checked_mus(admm: ADMM, mus: Sequence[float]) -> list[float]:
    """The mu or counts of a path, refused unless they go from dense to sparse."""
    if isinstance(mus, Tensor):
        mus = mus.tolist()
    try:
        mus = list(mus)
    except TypeError as error:  # an array of no axis too
        raise BadInput(f"mus must be a list, as in mus=[0.01, 0.02], not {mus!r}.") from error
    if not mus:
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
    return [float(mu) for mu in mus] if rising else mus


def check_ranged(admm: ADMM) -> None:
    """Refuse a penalty without a threshold, whose mu cannot be found from norms."""
    if not isinstance(admm.penalty, Radial):
        raise BadInput(
            f"{admm.penalty!r} has no threshold to find mu by: give mus, as in mus=[0.5, 0.2, 0.1]."
        )


def mu_range(
    admm: ADMM, *, points: int = 20, reach: tuple[float, float] = (0.01, 0.99)
) -> list[float]:
    """Log-spaced mu that would zero, at once, these shares of the blocks that live now."""
    checked_count("points", points)
    if not 0 <= reach[0] < reach[1] <= 1:
        raise BadInput(f"A path reaches from a share of the blocks to a larger one, not {reach!r}.")
    check_ranged(admm)
    critical = sorted(pair for name in admm.W for pair in _critical_mus(admm, name))
    if not critical:
        raise BadInput(
            "Every block of this model is zero, or too small to have a norm: there is no path to "
            "walk."
        )
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
    if not norm.isfinite().all():
        raise BadInput(
            f"{name!r} has blocks whose norm is no finite number: there is no path from them."
        )
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
