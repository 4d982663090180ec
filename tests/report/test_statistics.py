"""The t-tests against figures worked out by hand and by independent formulas."""

import itertools
import math
import random
import sys

import pytest
from scipy import integrate
from scipy import stats as scipy_stats

from sparsepath.errors import BadInput
from sparsepath.report.statistics import Sample, compare, pooled_sd, welch_p_of

# By hand: means 4 and 2; squared deviations 2 + 0 + 2 = 8 / 2 and so on.
BY_HAND = [(2.0, 1.0), (4.0, 3.0), (6.0, 2.0)]


def two_sided(t, degrees):
    """The p of Student's t by integrating its density."""

    def density(x):
        scale = math.lgamma((degrees + 1) / 2) - math.lgamma(degrees / 2)
        return (
            math.exp(scale)
            / math.sqrt(degrees * math.pi)
            * (1 + x * x / degrees) ** (-(degrees + 1) / 2)
        )

    return 2 * integrate.quad(density, abs(t), math.inf)[0]


def test_a_case_worked_out_by_hand():
    found = compare(BY_HAND)
    assert (found.first.mean, found.second.mean) == (4.0, 2.0)
    assert found.first.sd == pytest.approx(2.0)  # squares 4 + 0 + 4 over 2
    assert found.second.sd == pytest.approx(1.0)  # squares 1 + 1 + 0 over 2
    assert found.difference == 2.0
    # Differences 1, 1, 4: their sd is sqrt((1 + 1 + 4) / 2) = sqrt 3.
    assert found.paired_d == pytest.approx(2 / math.sqrt(3))
    assert found.cohen_d == pytest.approx(2 / math.sqrt((4 + 1) / 2))
    # t = 2 / (sqrt 3 / sqrt 3) = 2 with 2 degrees: p = 1 - 2 / sqrt(2^2 + 2), in closed form.
    assert found.paired_p == pytest.approx(1 - 2 / math.sqrt(6))
    # The 97.5 % point of t with 2 degrees is 0.95 sqrt(2 / (1 - 0.95^2)); sd / sqrt n is 1.
    reach = 0.95 * math.sqrt(2 / (1 - 0.95**2))
    assert found.interval == pytest.approx((2 - reach, 2 + reach))


def test_welch_by_hand():
    # Variances of the means 4/3 and 1/3: t = 2 / sqrt(5/3), degrees (5/3)^2 / (16/18 + 1/18).
    expected = two_sided(2 / math.sqrt(5 / 3), (25 / 9) / (17 / 18))
    assert compare(BY_HAND).welch_p == pytest.approx(expected)


@pytest.mark.parametrize("seed", range(3))
def test_both_p_values_are_those_of_scipy_on_the_raw_figures(seed):
    draw = random.Random(seed).gauss
    pairs = [(91.3 + draw(0, 0.04), 91.1 + draw(0, 0.3)) for _ in range(15)]
    found = compare(pairs)
    first, second = zip(*pairs, strict=True)
    welch = scipy_stats.ttest_ind(first, second, equal_var=False)
    assert found.welch_p == pytest.approx(welch.pvalue)
    rel = scipy_stats.ttest_rel(first, second)
    assert found.paired_p == pytest.approx(rel.pvalue)
    assert found.interval == pytest.approx(tuple(rel.confidence_interval(0.95)))


def test_the_paired_p_is_near_that_of_flipping_every_sign():
    """A permutation test that knows nothing of t: all 2^10 signs of the differences."""
    draw = random.Random(7).gauss
    pairs = [(draw(0.5, 1), draw(0, 1)) for _ in range(10)]
    gaps = [one - other for one, other in pairs]
    sums = [
        abs(sum(sign * gap for sign, gap in zip(signs, gaps, strict=True)))
        for signs in itertools.product((-1, 1), repeat=10)
    ]
    exact = sum(total >= abs(sum(gaps)) - 1e-9 for total in sums) / len(sums)
    assert compare(pairs).paired_p == pytest.approx(exact, abs=0.02)


def test_pairs_that_move_together_are_told_apart_by_the_paired_test_alone():
    pairs = [(x + 0.1 + 0.001 * (x % 2), x) for x in map(float, range(10))]
    found = compare(pairs)
    assert found.paired_p < 1e-9
    assert found.welch_p > 0.9
    assert found.paired_d > 100 * found.cohen_d


def test_the_order_of_the_arms_changes_signs_and_nothing_else():
    found, turned = compare(BY_HAND), compare([pair[::-1] for pair in BY_HAND])
    assert turned.difference == -found.difference
    assert turned.cohen_d == pytest.approx(-found.cohen_d)
    assert turned.interval == pytest.approx((-found.interval[1], -found.interval[0]))
    assert turned.paired_p == pytest.approx(found.paired_p)


def test_samples_of_unequal_size_are_pooled_by_their_degrees_of_freedom():
    assert pooled_sd(Sample(2, 0, 3.0), Sample(5, 0, 1.0)) == pytest.approx(math.sqrt(13 / 5))


def test_a_constant_arm_is_no_obstacle():
    found = compare([(1.0, 0.5), (2.0, 0.5), (4.0, 0.5)])
    assert found.second.sd == 0
    assert 0 < found.welch_p < 1
    assert found.welch_p == pytest.approx(found.paired_p)


@pytest.mark.parametrize(
    ("pairs", "says"),
    [
        ([], "at least two pairs, not 0"),
        ([(1.0, 2.0)], "at least two pairs, not 1"),
        ([(1.0, 2.0), (math.nan, 2.0)], "finite figures"),
    ],
)
def test_pairs_without_sense_are_refused(pairs, says):
    with pytest.raises(BadInput, match=says):
        compare(pairs)


@pytest.mark.parametrize("sign", [1, -1])
def test_what_varies_by_rounding_alone_has_no_p(sign):
    found = compare([(sign * one, sign * other) for one, other in ((91.1, 91.0), (91.4, 91.3))])
    assert found.interval is None
    assert found.paired_p is None
    assert found.paired_d is None
    assert found.difference == pytest.approx(sign * 0.1)
    assert 0 < found.welch_p < 1
    assert found.cohen_d == pytest.approx(sign * 0.1 / (0.3 / 2**0.5))


def test_a_missing_scipy_is_named_with_the_extra_that_brings_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "scipy", None)
    with pytest.raises(BadInput, match=r"needs scipy: pip install 'sparsepath\[statistics\]'"):
        welch_p_of(Sample(15, 91.34, 0.04), Sample(15, 91.09, 0.06))
