"""Whether a loss falls, on losses whose truth is known."""

from __future__ import annotations

import math

import numpy as np
import pytest

from seatrial.analyse.loss import ABOVE_ERRORS, _ends_above, loss_fall_pct, loss_falls
from seatrial.analyse.quantile import MEDIAN_TO_MEAN_ERROR


def test_loss_falls_needs_eight_losses_and_a_number_at_the_end() -> None:
    falling = list(np.linspace(4, 2, 40))
    assert loss_falls(falling) is True
    assert loss_falls(falling[::-1]) is False
    assert loss_falls(falling[:7]) is None
    assert loss_falls([*falling, math.nan]) is False
    assert loss_falls([math.nan]) is False
    assert loss_falls([]) is None
    noisy = [value + (3 if index == 38 else 0) for index, value in enumerate(falling)]
    assert loss_falls(noisy) is True


def of_flat(count: int, seeds: int = 300) -> list[bool | None]:
    return [loss_falls(3 + np.random.default_rng([count, seed]).normal(0, 0.1, count)) for seed in range(seeds)]


@pytest.mark.parametrize("count", [8, 20, 60, 200])
def test_a_flat_noisy_loss_is_neither_taken_to_fall_nor_to_rise(count: int) -> None:
    found = of_flat(count)
    assert found.count(True) / len(found) <= 0.07
    assert found.count(False) / len(found) <= 0.08
    assert found.count(None) / len(found) >= 0.85


@pytest.mark.parametrize("count", [20, 60, 200])
def test_a_noisy_fall_is_seen(count: int) -> None:
    course = 1 + 3 * np.exp(-4 * np.arange(count) / count)
    found = [loss_falls(course * np.exp(np.random.default_rng(seed).normal(0, 0.1, count))) for seed in range(300)]
    assert found.count(True) >= 297


@pytest.mark.parametrize("count", [20, 60, 200])
def test_a_noisy_rise_is_seen(count: int) -> None:
    found = [loss_falls(3 + np.linspace(0, 0.5, count) + np.random.default_rng(seed).normal(0, 0.1, count)) for seed in range(300)]
    assert found.count(False) >= 290


@pytest.mark.parametrize("count", [10, 20, 60, 600])
def test_a_loss_that_explodes_at_the_end_does_not_fall(count: int) -> None:
    falling = np.linspace(4, 3, count) + np.random.default_rng(count).normal(0, 0.05, count)
    falling[-(count // 10) :] = 50.0
    assert loss_falls(falling) is False


def test_one_loss_that_is_no_number_is_enough() -> None:
    falling = list(np.linspace(4, 2, 60))
    assert loss_falls([*falling[:10], *[math.nan] * 44, *falling[54:]]) is False
    assert loss_falls([*falling[:10], math.inf, *falling[10:]]) is False


def test_a_constant_loss_says_nothing() -> None:
    assert loss_falls([3.0] * 40) is None


def test_a_long_run_is_judged_as_a_short_one() -> None:
    generator = np.random.default_rng(1)
    assert loss_falls(np.linspace(4, 3, 100_000) + generator.normal(0, 0.1, 100_000)) is True


def test_how_far_a_loss_falls() -> None:
    assert loss_fall_pct([4.0] * 4 + [3.0] * 8 + [1.0] * 4) == pytest.approx(75.0)
    assert loss_fall_pct([4.0, 1.0]) is None
    assert loss_fall_pct([4.0] * 7 + [math.nan]) is None
    assert loss_fall_pct([0.0] * 8) is None


@pytest.mark.parametrize(("share", "above"), [(0.999, False), (1.001, True)])
def test_an_end_above_the_start_is_beyond_the_error_of_both_medians(share: float, above: bool) -> None:
    """Of 10 losses before and 40 after, the error of the difference is that of two medians, added as squares."""
    error = MEDIAN_TO_MEAN_ERROR * 0.5 * (1 / 10 + 1 / 40) ** 0.5
    assert _ends_above(np.zeros(10), np.full(40, share * ABOVE_ERRORS * error), 0.5) is above
