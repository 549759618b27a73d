"""Intervals on logs: known values, invariances, coverage."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from seatrial.analyse.interval import Difference, contains_one, estimate, interval_of, ratio, standard_error
from seatrial.records.measure import Estimate

positive = st.floats(1e-3, 1e6)
samples = st.lists(positive, min_size=2, max_size=8)


def known(values: list[float]) -> Estimate:
    found = estimate(values)
    assert found is not None
    return found


def test_agrees_with_scipy_on_logs() -> None:
    values = [101.0, 99.0, 104.0, 97.5]
    found = known(values)
    interval = stats.ttest_1samp(np.log(values), 0).confidence_interval(0.95)
    assert found.mean == pytest.approx(stats.gmean(values))
    assert (found.low, found.high) == pytest.approx((math.exp(interval.low), math.exp(interval.high)))
    assert found.n == 4


def test_ratio_agrees_with_welch() -> None:
    fast, slow = [101.0, 99.0, 104.0, 100.0], [90.0, 95.0, 86.0, 91.0]
    found = ratio(known(slow), known(fast))
    assert (found.low, found.high) == pytest.approx(plain_welch(slow, fast))


def test_few_runs_beside_many_get_a_wider_interval_than_welch_gives() -> None:
    few, many = [100.0, 100.1], [90.0, 95.0, 86.0, 91.0, 99.0, 84.0, 93.0, 88.0, 97.0, 92.0]
    found, welch = ratio(known(few), known(many)), plain_welch(few, many)
    assert found.low is not None and found.high is not None
    assert found.low < welch[0] and found.high > welch[1]


def plain_welch(over: list[float], under: list[float]) -> tuple[float, float]:
    interval = stats.ttest_ind(np.log(over), np.log(under), equal_var=False).confidence_interval(0.95)
    return math.exp(interval.low), math.exp(interval.high)


def test_one_value_has_no_interval_and_none_has_no_mean() -> None:
    assert estimate([5.0]) == Estimate(mean=pytest.approx(5.0), n=1)
    assert estimate([]) is None
    assert estimate([0.0, math.nan, None]) is None
    assert contains_one(ratio(known([5.0]), known([4.0, 4.1]))) is None


def test_equal_values_have_an_interval_of_no_width() -> None:
    found = ratio(known([2.0, 2.0]), known([4.0, 4.0]))
    assert (found.low, found.mean, found.high) == pytest.approx((0.5, 0.5, 0.5))
    assert contains_one(found) is False


@settings(deadline=None)
@given(samples, st.floats(1e-2, 1e3))
def test_scaling_all_values_scales_the_estimate(values: list[float], scale: float) -> None:
    plain, scaled = known(values), known([value * scale for value in values])
    assert scaled.mean == pytest.approx(plain.mean * scale, rel=1e-9)
    assert standard_error(scaled) == pytest.approx(standard_error(plain), rel=1e-6, abs=1e-9)


@settings(deadline=None)
@given(samples, samples)
def test_swapping_the_groups_turns_the_ratio_over(one: list[float], other: list[float]) -> None:
    there, back = ratio(known(one), known(other)), ratio(known(other), known(one))
    assert there.low is not None and there.high is not None and back.low is not None and back.high is not None
    assert math.log(there.mean) == pytest.approx(-math.log(back.mean), abs=1e-9)
    assert math.log(there.low) == pytest.approx(-math.log(back.high), rel=1e-9, abs=1e-9)


@settings(deadline=None)
@given(samples)
def test_a_group_is_never_told_from_itself(values: list[float]) -> None:
    assert contains_one(ratio(known(values), known(values))) is True


def test_alike_groups_are_told_apart_about_one_time_in_twenty() -> None:
    generator = np.random.default_rng(11)
    draws = np.exp(generator.normal(3, 0.05, (2000, 2, 4)))
    apart = [not contains_one(ratio(known(list(one)), known(list(other)))) for one, other in draws]
    assert 0.025 < float(np.mean(apart)) < 0.075


def test_the_interval_of_a_difference_keeps_its_number_of_pairs() -> None:
    found = interval_of(Difference(mean=0.0, error=0.1, freedom=4.0, n=5, paired=True, spread=0.2))
    assert (found.mean, found.n) == (1.0, 5) and found.low is not None and found.high is not None
    assert found.low * found.high == pytest.approx(1.0) and found.low < 1 < found.high
