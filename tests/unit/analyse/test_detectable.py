"""What runs could have shown, checked against how often they do."""

from __future__ import annotations

import math

import numpy as np
import pytest

from seatrial.analyse.detectable import MOST_REPEATS, detectable_pct, repeats_needed
from seatrial.analyse.interval import Difference, chance_of, welch_difference


def difference(n: int, spread: float, mean: float = 0.0) -> Difference:
    return Difference(mean=mean, error=spread / math.sqrt(n), freedom=n - 1, n=n, paired=True, spread=spread)


def test_a_difference_of_that_size_is_told_four_times_in_five() -> None:
    random, n, cv = np.random.default_rng(1), 5, 0.01
    true = difference(n, cv * math.sqrt(2))
    shift = math.log1p(detectable_pct(Difference(**{**vars(true), "freedom": 2 * n - 2, "paired": False})) / 100)
    told = 0
    for _ in range(2000):
        found = welch_difference(list(random.normal(0, cv, n)), list(random.normal(shift, cv, n)))
        assert found is not None
        told += chance_of(found) < 0.05
    assert told / 2000 == pytest.approx(0.8, abs=0.04)


def test_repeats_needed_are_the_fewest_that_show_it() -> None:
    wanted = math.log1p(0.02)
    needed = repeats_needed(difference(3, 0.02), wanted)
    assert needed is not None
    assert detectable_pct(difference(needed, 0.02)) <= 2.0 < detectable_pct(difference(needed - 1, 0.02))


def test_out_of_reach_is_none() -> None:
    assert repeats_needed(difference(3, 1.0), 1e-4) is None
    assert repeats_needed(difference(3, 0.0), 0.0) is None
    assert repeats_needed(difference(3, 0.0), 0.01) == 2
    assert MOST_REPEATS == 1000


def test_far_out_it_is_still_a_number() -> None:
    assert math.isfinite(detectable_pct(difference(2, 0.5), 1 - 0.05 / 5000))


def test_two_repeats_tell_what_is_needed_as_more_do() -> None:
    """What counts is the freedom that each further repeat adds, and how much one repeat scatters."""
    assert (
        repeats_needed(difference(2, 0.02), 0.03) == repeats_needed(difference(3, 0.02), 0.03) == repeats_needed(difference(9, 0.02), 0.03)
    )
