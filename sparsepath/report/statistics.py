"""Two treatments compared over pairs of runs: t-tests, effect sizes, and an interval."""

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sparsepath.errors import BadInput


@dataclass(frozen=True)
class Sample:
    """How many figures there are, their mean, and their standard deviation (of n - 1)."""

    n: int
    mean: float
    sd: float

    @classmethod
    def of(cls, figures: Sequence[float]) -> "Sample":
        """The sample of these figures; a single one has no deviation."""
        sd = statistics.stdev(figures) if len(figures) > 1 else 0.0
        return cls(len(figures), statistics.fmean(figures), sd)

    @property
    def error(self) -> float:
        """The standard error of the mean."""
        return self.sd / math.sqrt(self.n)


@dataclass(frozen=True)
class Comparison:
    """A first and a second treatment over pairs of runs that share all else."""

    first: Sample
    second: Sample
    difference: float
    """mean of first - second"""
    interval: tuple[float, float] | None
    """of the mean difference of a pair, with 95 % confidence; None, as the rest, where nothing
    varies that it would have to be told from"""
    welch_p: float | None
    paired_p: float | None
    cohen_d: float | None
    """the difference in standard deviations, both pooled"""
    paired_d: float | None
    """the difference in standard deviations of the pairs' differences"""


def compare(pairs: Sequence[tuple[float, float]]) -> Comparison:
    """Both two-sided t-tests, that for unequal variances (Welch) and that of the pairs."""
    if len(pairs) < 2:
        raise BadInput(f"A t-test needs at least two pairs, not {len(pairs)}.")
    if not all(math.isfinite(figure) for pair in pairs for figure in pair):
        raise BadInput(f"A t-test needs finite figures, not {pairs!r}.")
    first, second = (Sample.of(figures) for figures in zip(*pairs, strict=True))
    gaps = Sample.of([one - other for one, other in pairs])
    rounding = 1e-12 * max(abs(first.mean), abs(second.mean))
    within = pooled_sd(first, second)
    alone, paired = within > rounding, gaps.sd > rounding
    return Comparison(
        first,
        second,
        gaps.mean,
        interval_of(gaps) if paired else None,
        welch_p_of(first, second) if alone else None,
        paired_p_of(gaps) if paired else None,
        gaps.mean / within if alone else None,
        gaps.mean / gaps.sd if paired else None,
    )


def interval_of(gaps: Sample) -> tuple[float, float]:
    """Where the mean of differences lies with 95 % confidence, by as many as there are."""
    reach = _scipy_stats().t.ppf(0.975, gaps.n - 1) * gaps.error
    return gaps.mean - reach, gaps.mean + reach


def paired_p_of(gaps: Sample) -> float:
    """The p of the two-sided t-test whose pairs differ by so much."""
    return float(2 * _scipy_stats().t.sf(abs(gaps.mean) / gaps.error, gaps.n - 1))


def pooled_sd(first: Sample, second: Sample) -> float:
    """The standard deviation within two samples, taken together."""
    squares = (first.n - 1) * first.sd**2 + (second.n - 1) * second.sd**2
    return math.sqrt(squares / (first.n + second.n - 2))


def welch_p_of(first: Sample, second: Sample) -> float:
    """Welch's p of two samples, printed ones too: it needs no more of them than this."""
    result = _scipy_stats().ttest_ind_from_stats(
        *(first.mean, first.sd, first.n), *(second.mean, second.sd, second.n), equal_var=False
    )
    return float(result.pvalue)


def _scipy_stats() -> Any:
    try:
        from scipy import stats
    except ImportError as error:
        raise BadInput("A t-test needs scipy: pip install 'sparsepath[statistics]'.") from error
    return stats
