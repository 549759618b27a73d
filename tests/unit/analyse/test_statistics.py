"""Statistics against scipy, numpy and simulation: intervals, tests, slopes."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from scipy.stats import mannwhitneyu

from seatrial.analyse.statistics import (
    MAX_SLOPE_POINTS,
    Difference,
    batch_series,
    bootstrap_ratio,
    contains_one,
    detectable_pct,
    estimate,
    holm_correction,
    mann_kendall,
    mann_whitney_p,
    median,
    p_value,
    percentiles,
    rank_autocorrelation,
    ratio_of,
    repeats_needed,
    row_medians,
    theil_sen,
    welch_difference,
)
from seatrial.records.measure import Estimate

values = st.lists(st.floats(-1e12, 1e12), min_size=1, max_size=60)


@given(values)
def test_the_median_is_numpy_s(given_values: list[float]) -> None:
    array = np.array(given_values)
    assert median(array) == np.median(array)


@given(values, st.lists(st.sampled_from([0, 1, 10, 50, 90, 95, 99, 100]), min_size=1))
def test_percentiles_are_numpy_s(given_values: list[float], percents: list[float]) -> None:
    array = np.array(given_values)
    assert percentiles(array, percents) == np.percentile(array, percents).tolist()


@given(st.integers(1, 7), st.integers(1, 7), st.integers(0, 2**32))
def test_medians_of_rows_are_numpy_s(rows: int, width: int, seed: int) -> None:
    table = np.random.default_rng(seed).normal(500, 20, (rows, width))
    assert row_medians(table).tolist() == np.median(table, axis=1).tolist()


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
    found = ratio_of(known(slow), known(fast))
    assert (found.low, found.high) == pytest.approx(plain_welch(slow, fast))


def test_few_runs_beside_many_get_a_wider_interval_than_welch_gives() -> None:
    few, many = [100.0, 100.1], [90.0, 95.0, 86.0, 91.0, 99.0, 84.0, 93.0, 88.0, 97.0, 92.0]
    found, welch = ratio_of(known(few), known(many)), plain_welch(few, many)
    assert found.low is not None and found.high is not None
    assert found.low < welch[0] and found.high > welch[1]


def plain_welch(over: list[float], under: list[float]) -> tuple[float, float]:
    interval = stats.ttest_ind(np.log(over), np.log(under), equal_var=False).confidence_interval(0.95)
    return math.exp(interval.low), math.exp(interval.high)


def test_one_value_has_no_interval_and_none_has_no_mean() -> None:
    assert estimate([5.0]) == Estimate(mean=pytest.approx(5.0), n=1)
    assert estimate([]) is None
    assert estimate([0.0, math.nan, None]) is None
    assert contains_one(ratio_of(known([5.0]), known([4.0, 4.1]))) is None


def test_equal_values_have_an_interval_of_no_width() -> None:
    found = ratio_of(known([2.0, 2.0]), known([4.0, 4.0]))
    assert (found.low, found.mean, found.high) == pytest.approx((0.5, 0.5, 0.5))
    assert contains_one(found) is False


@settings(deadline=None)
@given(samples, samples)
def test_swapping_the_groups_turns_the_ratio_over(one: list[float], other: list[float]) -> None:
    there, back = ratio_of(known(one), known(other)), ratio_of(known(other), known(one))
    assert there.low is not None and there.high is not None and back.low is not None and back.high is not None
    assert math.log(there.mean) == pytest.approx(-math.log(back.mean), abs=1e-9)
    assert math.log(there.low) == pytest.approx(-math.log(back.high), rel=1e-9, abs=1e-9)


def test_the_same_runs_give_the_same_ends_around_the_ratio() -> None:
    a, b = np.log([100.0, 102.0, 98.0]), np.log([110.0, 111.0, 109.0])
    first = bootstrap_ratio(a, b, paired=False)
    assert first == bootstrap_ratio(a, b, paired=False)
    assert first is not None and first[0] < 1.1 < first[1]


def test_pairs_stay_together() -> None:
    a = np.log([100.0, 200.0, 50.0])
    assert bootstrap_ratio(a, a + 0.1, paired=True) == pytest.approx((np.exp(0.1), np.exp(0.1)))
    apart = bootstrap_ratio(a, a + 0.1, paired=False)
    assert apart is not None and apart[1] / apart[0] > 2
    assert bootstrap_ratio([1.0], [1.0, 2.0], paired=False) is None


def difference(n: int, spread: float, mean: float = 0.0) -> Difference:
    return Difference(mean=mean, error=spread / math.sqrt(n), freedom=n - 1, n=n, paired=True, spread=spread)


def test_a_difference_of_that_size_is_found_four_times_in_five() -> None:
    random, n, cv = np.random.default_rng(1), 5, 0.01
    true = difference(n, cv * math.sqrt(2))
    shift = math.log1p(detectable_pct(Difference(**{**vars(true), "freedom": 2 * n - 2, "paired": False})) / 100)
    significant = 0
    for _ in range(2000):
        found = welch_difference(list(random.normal(0, cv, n)), list(random.normal(shift, cv, n)))
        assert found is not None
        significant += p_value(found) < 0.05
    assert significant / 2000 == pytest.approx(0.8, abs=0.04)


def test_repeats_needed_are_the_fewest_that_show_it() -> None:
    wanted = math.log1p(0.02)
    needed = repeats_needed(difference(3, 0.02), wanted)
    assert needed is not None
    assert detectable_pct(difference(needed, 0.02)) <= 2.0 < detectable_pct(difference(needed - 1, 0.02))


def test_out_of_reach_is_none() -> None:
    assert repeats_needed(difference(3, 1.0), 1e-4) is None
    assert repeats_needed(difference(3, 0.0), 0.0) is None
    assert repeats_needed(difference(3, 0.0), 0.01) == 2


def test_far_out_it_is_still_a_number() -> None:
    assert math.isfinite(detectable_pct(difference(2, 0.5), 1 - 0.05 / 5000))


def test_two_repeats_show_what_is_needed_as_more_do() -> None:
    """What counts is the freedom that each further repeat adds, and how much one repeat scatters."""
    assert (
        repeats_needed(difference(2, 0.02), 0.03) == repeats_needed(difference(3, 0.02), 0.03) == repeats_needed(difference(9, 0.02), 0.03)
    )


def test_holm_steps_down_and_stops_at_the_first_that_is_not_significant() -> None:
    levels, corrected = holm_correction([0.04, 0.001, None, 0.03], 3)
    assert levels == [2, 3, 3, 2]
    assert corrected == [pytest.approx(0.06), pytest.approx(0.003), None, pytest.approx(0.06)]


@pytest.mark.parametrize(("count", "decimals"), [(8, 6), (11, 6), (34, 6), (34, 0), (60, 0), (250, 6)])
@pytest.mark.parametrize("slope", [-0.1, -0.02, 0.0, 0.02, 0.1])
def test_mann_kendall_is_scipys(count: int, slope: float, decimals: int) -> None:
    noise = np.random.default_rng(count).normal(size=count)
    values = np.round(slope * np.arange(count) + noise, decimals)

    found, known = mann_kendall(values), stats.kendalltau(np.arange(count), values)

    assert found.sign == np.sign(known.statistic)
    assert found.p_value == pytest.approx(known.pvalue, abs=0.035)


@pytest.mark.parametrize("values", [[3.0] * 20, [1.0, 2.0, 2.0, 1.0]])
def test_no_trend_is_no_trend(values: list[float]) -> None:
    found = mann_kendall(np.array(values))
    assert (found.sign, found.p_value) == (0, 1.0)


@pytest.mark.parametrize("num_some", [1, 8, 9, 30])
@pytest.mark.parametrize("num_others", [1, 8, 9, 400])
@pytest.mark.parametrize("decimals", [12, 1])
@pytest.mark.parametrize("shift", [0.0, 0.7, -3.0])
def test_mann_whitney_is_scipys(num_some: int, num_others: int, decimals: int, shift: float) -> None:
    chance = np.random.default_rng(num_some * 1000 + num_others)
    some = np.round(chance.normal(size=num_some) + shift, decimals)
    others = np.round(chance.normal(size=num_others), decimals)
    expected = float(mannwhitneyu(some, others).pvalue)
    assert mann_whitney_p(some, others) == pytest.approx(expected, rel=1e-9, abs=1e-12)


def test_values_that_are_all_the_same_are_on_one_level() -> None:
    assert mann_whitney_p(np.ones(20), np.ones(30)) == 1.0


def correlated(count: int, keep: float, seed: int) -> np.ndarray:
    pushes, values = np.random.default_rng([count, seed]).normal(0, 1, count + 200), [0.0]
    for push in pushes:
        values.append(keep * values[-1] + float(push))
    return np.array(values[-count:])


def test_a_line_has_its_slope_and_no_width() -> None:
    found = theil_sen(np.arange(50.0), 3 * np.arange(50.0) + 7)
    assert found is not None
    assert (found.value, found.low, found.high, found.n) == pytest.approx((3, 3, 3, 50))


def test_wild_values_do_not_move_it() -> None:
    values = 2 * np.arange(60.0)
    values[[5, 20, 41]] = 1e9
    found = theil_sen(np.arange(60.0), values)
    assert found is not None and found.low is not None
    assert found.value == pytest.approx(2)
    assert found.low > 1.9


@pytest.mark.parametrize(("count", "keep"), [(24, 0.0), (200, 0.5), (200, 0.8), (900, 0.8)])
def test_nine_of_ten_intervals_hold_the_slope_also_where_samples_hang_together(count: int, keep: float) -> None:
    at = np.arange(count, dtype=float)
    found = [theil_sen(at, correlated(count, keep, seed) + 0.3 * at) for seed in range(100)]
    assert sum(one is not None and (one.low or 0) <= 0.3 <= (one.high or 0) for one in found) >= 88


def test_few_points_have_a_slope_but_no_interval_and_one_has_neither() -> None:
    found = theil_sen(np.arange(3.0), np.array([1.0, 2.0, 4.0]))
    assert found is not None and (found.low, found.high) == (None, None)
    assert theil_sen(np.array([1.0]), np.array([2.0])) is None
    assert theil_sen(np.array([1.0, 1.0]), np.array([2.0, 3.0])) is None


def test_equal_values_are_no_slope() -> None:
    found = theil_sen(np.arange(300.0), np.full(300, 5.0))
    assert found is not None and (found.value, found.low, found.high) == (0, 0, 0)


def test_long_courses_are_made_short() -> None:
    at, values = batch_series(np.arange(1001.0), np.arange(1001.0), MAX_SLOPE_POINTS)
    assert len(at) == len(values) <= MAX_SLOPE_POINTS
    assert values[-1] == 997.5


def test_what_the_fourier_transform_gives_is_what_the_sums_give() -> None:
    residuals = correlated(40, 0.6, 3)
    ranks = np.argsort(np.argsort(residuals)) - 19.5
    shares = np.array([float(ranks[lag:] @ ranks[:-lag]) for lag in range(1, 20)]) / float(ranks @ ranks)
    expected = shares * 40 / (40 - np.arange(1, 20)) + (1 + 4 * max(float(shares[0]), 0.0)) / 40
    np.testing.assert_allclose(rank_autocorrelation(residuals), expected)
