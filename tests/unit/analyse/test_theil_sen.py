"""Slopes and their intervals on courses whose slope is known."""

from __future__ import annotations

import numpy as np
import pytest

from seatrial.analyse.theil_sen import MOST_POINTS, _rank_autocorrelation, batched, theil_sen


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
    at, values = batched(np.arange(1001.0), np.arange(1001.0), MOST_POINTS)
    assert len(at) == len(values) <= MOST_POINTS
    assert values[-1] == 997.5


def test_what_the_fourier_transform_gives_is_what_the_sums_give() -> None:
    residuals = correlated(40, 0.6, 3)
    ranks = np.argsort(np.argsort(residuals)) - 19.5
    shares = np.array([float(ranks[lag:] @ ranks[:-lag]) for lag in range(1, 20)]) / float(ranks @ ranks)
    expected = shares * 40 / (40 - np.arange(1, 20)) + (1 + 4 * max(float(shares[0]), 0.0)) / 40
    np.testing.assert_allclose(_rank_autocorrelation(residuals), expected)
