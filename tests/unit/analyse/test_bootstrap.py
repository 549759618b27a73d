"""Resampled ratios: repeatable, and pairs kept together."""

from __future__ import annotations

import numpy as np
import pytest

from seatrial.analyse.bootstrap import bootstrap_ratio


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


def test_one_run_has_no_resamples() -> None:
    assert bootstrap_ratio([1.0], [1.0, 2.0], paired=False) is None
