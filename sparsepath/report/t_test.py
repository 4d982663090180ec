"""The paper's t-test (Appendix A) made from records: ADMM against standard fine-tuning."""

import statistics
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from sparsepath.lab.folders import Record
from sparsepath.report.layout import Table
from sparsepath.report.reported import DATA, NETWORKS
from sparsepath.report.statistics import Comparison, Sample, compare, pooled_sd, welch_p_of
from sparsepath.report.tables import percent


@dataclass(frozen=True)
class _Trial:
    """What one record of pairs says, accuracies in percent."""

    dense_networks: int
    dense: float
    of_blocks: float
    tuning: Comparison
    """ADMM against fine-tuning"""
    start: Comparison
    """ADMM against the dense network that it started from"""

    @classmethod
    def of(cls, record: Record) -> "_Trial":
        pairs = record["pairs"]
        accuracies = [
            [100 * pair[arm] for pair in pairs] for arm in ("admm", "fine_tuning", "dense")
        ]
        admm, tuned, dense = accuracies
        return cls(
            len({pair["dense_seed"] for pair in pairs}),
            statistics.fmean(dense),
            statistics.fmean(pair["of_blocks"] for pair in pairs),
            compare(list(zip(admm, tuned, strict=True))),
            compare(list(zip(admm, dense, strict=True))),
        )


@dataclass(frozen=True)
class _Paper:
    """What the paper prints."""

    admm: Sample
    tuned: Sample
    dense: float
    sparsity: float
    p: float

    @classmethod
    def of(cls, printed: Record) -> "_Paper":
        admm, tuned = (
            Sample(printed["runs"], printed[arm]["mean"], printed[arm]["std"])
            for arm in ("admm_l0", "fine_tuning")
        )
        dense, sparsity = printed["baseline"]["mean"], printed["admm_l0"]["sparsity"]
        return cls(admm, tuned, dense, sparsity, printed["p_value"])

    @property
    def gap(self) -> float:
        return self.admm.mean - self.tuned.mean


@dataclass(frozen=True)
class _Row:
    title: str
    paper: Callable[[_Paper], str]
    ours: Callable[[_Trial], str]


def _nothing(paper: _Paper) -> str:
    return ""


def _interval(found: Comparison) -> str:
    return " to ".join(f"{end:+.2f}" for end in found.interval or ())


def _figure(value: float | None, digits: str) -> str:
    return "" if value is None else format(value, digits)


_ROWS = (
    _Row("pairs of runs", lambda p: str(p.admm.n), lambda t: str(t.tuning.first.n)),
    _Row("dense networks", lambda p: "1", lambda t: str(t.dense_networks)),
    _Row("dense: mean accuracy", lambda p: f"{p.dense:.2f}", lambda t: f"{t.dense:.2f}"),
    _Row("ADMM: mean (sd)", lambda p: _mean_and_sd(p.admm), lambda t: _mean_and_sd(t.tuning.first)),
    _Row(
        "fine-tuning: mean (sd)",
        lambda p: _mean_and_sd(p.tuned),
        lambda t: _mean_and_sd(t.tuning.second),
    ),
    _Row(
        "ADMM: zero kernels",
        lambda p: f"{p.sparsity:.2f} as printed",
        lambda t: percent(t.of_blocks),
    ),
    _Row("ADMM - fine-tuning", lambda p: f"{p.gap:+.2f}", lambda t: f"{t.tuning.difference:+.2f}"),
    _Row("its 95 % interval", _nothing, lambda t: _interval(t.tuning)),
    _Row(
        "p (Welch)",
        lambda p: f"{p.p:g} as printed, {welch_p_of(p.admm, p.tuned):.2g} from its figures",
        lambda t: _figure(t.tuning.welch_p, ".2g"),
    ),
    _Row("p (paired)", _nothing, lambda t: _figure(t.tuning.paired_p, ".2g")),
    _Row(
        "Cohen's d",
        lambda p: f"{p.gap / pooled_sd(p.admm, p.tuned):.2f} from its figures",
        lambda t: _figure(t.tuning.cohen_d, ".2f"),
    ),
    _Row("paired d", _nothing, lambda t: _figure(t.tuning.paired_d, ".2f")),
    _Row(
        "ADMM - dense",
        lambda p: f"{p.admm.mean - p.dense:+.2f}",
        lambda t: f"{t.start.difference:+.2f}",
    ),
    _Row(
        "p (ADMM - dense)",
        lambda p: f"{p.p:g} as printed",
        lambda t: _figure(t.start.paired_p, ".2g"),
    ),
)


def _mean_and_sd(sample: Sample) -> str:
    return f"{sample.mean:.2f} ({sample.sd:.2f})"


def t_test(paper: Record, records: Mapping[str, Record]) -> Table:
    """The paper's table beside ours, a column for each record under its title.

    A record has `pairs`, each with the shares `dense`, `admm`, `fine_tuning` (test accuracies)
    and `of_blocks` (zero blocks after ADMM), and the `dense_seed` of the network it started from.
    """
    about = paper["t_test"]
    printed = _Paper.of(about)
    trials = [_Trial.of(record) for record in records.values()]
    rows = [
        [row.title, row.paper(printed), *(map(row.ours, trials) if trials else ["missing"])]
        for row in _ROWS
    ]
    return Table(
        f"ADMM (l0) against standard fine-tuning with equal epochs: "
        f"{NETWORKS[about['model']]} on {DATA[about['dataset']]}.",
        ["figure", "paper", *(records or ["ours"])],
        rows,
        "Accuracies and zero kernels in percent, differences in points; p of two-sided t-tests, "
        "that against the dense network paired with the run's own. The paper does not say of "
        "which test its p is. Cohen's d: the difference in pooled standard deviations of the runs; "
        "paired d: in standard deviations of the pairs' differences. Empty where nothing varies.",
    )
