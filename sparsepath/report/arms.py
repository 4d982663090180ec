"""Several methods compared at equal sparsity: accuracies over seeds, and a table of them."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from sparsepath.errors import BadInput
from sparsepath.report.layout import Table
from sparsepath.report.statistics import Sample, interval_of, paired_p_of

Points = Sequence[tuple[float, float]]
"""(share of zero blocks, share of images right), in the order in which they were walked."""

Arms = Mapping[str, Mapping[Any, Points]]
"""The points of each method (arm) and seed."""

LEVELS = (0.5, 0.6, 0.7, 0.8, 0.85, 0.9, 0.95)
_SAME = 1e-9  # points: differences that vary no more are equal but for rounding
_NEAR = 2e-3  # so close to a level a point counts as at it: blocks come in whole numbers


def accuracies_at(seeds: Mapping[Any, Points], zeros: float) -> list[float] | None:
    """Each seed's accuracy at this share of zero blocks, None where a seed has no points around it.

    Between its points a seed is interpolated, and never beyond them. Of several points with as many
    zeros the last counts.
    """
    curves = [sorted(dict(points).items()) for points in seeds.values()]
    if any(zeros < c[0][0] - _NEAR or zeros > c[-1][0] + _NEAR for c in curves):
        return None
    return [float(np.interp(zeros, *np.array(curve).T)) for curve in curves]


def shared_zeros(arm: str, seeds: Mapping[Any, Points]) -> list[float]:
    """The shares of zero blocks of any seed's points that lie within every seed's path, if any."""
    _check(arm, seeds)
    low = max(min(points)[0] for points in seeds.values())
    high = min(max(points)[0] for points in seeds.values())
    return sorted({x for points in seeds.values() for x, _ in points if low <= x <= high})


def _check(arm: str, seeds: Mapping[Any, Points]) -> None:
    if not seeds or not all(seeds.values()):
        raise BadInput(f"The arm {arm!r} has a seed without points, or no seed: give it some.")


def usual_levels(seeds: Mapping[Any, Points]) -> list[float]:
    """The usual levels as far as all these paths go, and where the first of them ends."""
    end = min(max(points)[0] for points in seeds.values())
    return [*(level for level in LEVELS if level < end - _NEAR), end]


def arms_table(
    arms: Arms,
    *,
    title: str,
    against: str,
    levels: Sequence[float] | None = None,
    controls: Arms | None = None,
) -> Table:
    """Mean and deviation of each arm at each level, and by how much one arm is above the others.

    It is compared with the controls too, which have no rows of their own.
    """
    if against not in arms:
        raise BadInput(f"There is no arm {against!r} among {', '.join(map(repr, arms))}.")
    for arm, seeds in arms.items():
        _check(arm, seeds)
    levels = usual_levels(arms[against]) if levels is None else levels
    samples = {arm: [_sample(seeds, level) for level in levels] for arm, seeds in arms.items()}
    rows = [[arm, str(len(arms[arm])), *map(_shown, found)] for arm, found in samples.items()]
    others = {arm: seeds for arm, seeds in arms.items() if arm != against}
    others |= controls or {}
    for arm, seeds in others.items():
        gaps = [_gaps(arms[against], seeds, level) for level in levels]
        rows.append([f"{against} - {arm}", "", *map(_difference, gaps)])
        if any(each is not None and each.n > 1 for each in gaps):
            rows.append(["its 95 % interval, p", "", *map(_certainty, gaps)])
    beside = (
        f"; below, how many points {against} is above the others, the standard error of the "
        "difference, and its interval and p by a t-test, by pairs of the same seed where there "
        "are two or more, not corrected for the columns that are looked at"
    )
    return Table(
        title,
        ["arm", "seeds", *(f"{100 * level:.3g}% zero" for level in levels)],
        rows,
        "Test accuracy in percent, mean (sd) over seeds, interpolated between the points of a "
        f"path{beside if others else ''}. Empty where an arm has no points.",
    )


def _sample(seeds: Mapping[Any, Points], level: float) -> Sample | None:
    found = accuracies_at(seeds, level)
    return None if found is None else Sample.of([100 * share for share in found])


def _shown(sample: Sample | None) -> str:
    if sample is None:
        return ""
    return f"{sample.mean:.2f} ({sample.sd:.2f})" if sample.n > 1 else f"{sample.mean:.2f}"


def _gaps(one: Mapping[Any, Points], other: Mapping[Any, Points], level: float) -> Sample | None:
    """The differences, in points, over the seeds that both have."""
    shared = [seed for seed in one if seed in other]
    found = [
        accuracies_at({seed: arm[seed] for seed in shared}, level) if shared else None
        for arm in (one, other)
    ]
    if found[0] is None or found[1] is None:
        return None
    return Sample.of([100 * (a - b) for a, b in zip(found[0], found[1], strict=True)])


def _difference(gaps: Sample | None) -> str:
    if gaps is None:
        return ""
    return f"{gaps.mean:+.2f}" if gaps.n < 2 else f"{gaps.mean:+.2f} ± {gaps.error:.2f}"


def _certainty(gaps: Sample | None) -> str:
    """What the differences of a few seeds say of the mean of many."""
    if gaps is None or gaps.n < 2 or gaps.sd <= _SAME:
        return ""
    low, high = interval_of(gaps)
    return f"{low:+.2f} to {high:+.2f}, {paired_p_of(gaps):.2g}"
