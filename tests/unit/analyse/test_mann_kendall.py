"""Kendall's test for a trend, against scipy's."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from seatrial.analyse.mann_kendall import mann_kendall


@pytest.mark.parametrize(("count", "decimals"), [(8, 6), (11, 6), (34, 6), (34, 0), (60, 0), (250, 6)])
@pytest.mark.parametrize("slope", [-0.1, -0.02, 0.0, 0.02, 0.1])
def test_it_says_what_scipy_says(count: int, slope: float, decimals: int) -> None:
    noise = np.random.default_rng(count).normal(size=count)
    values = np.round(slope * np.arange(count) + noise, decimals)

    found, known = mann_kendall(values), stats.kendalltau(np.arange(count), values)

    assert found.sign == np.sign(known.statistic)
    assert found.chance == pytest.approx(known.pvalue, abs=0.035)


@pytest.mark.parametrize("decimals", [0, 6])
def test_every_pair_is_compared(decimals: int) -> None:
    values = np.round(np.random.default_rng(5).normal(size=40), decimals)
    score = sum(np.sign(after - before) for place, before in enumerate(values) for after in values[place + 1 :])
    assert mann_kendall(values).sign == np.sign(score)
    assert mann_kendall(values[::-1]).sign == -np.sign(score)
    assert mann_kendall(values[::-1]).chance == mann_kendall(values).chance


@pytest.mark.parametrize("values", [[3.0] * 20, [1.0, 2.0, 2.0, 1.0]])
def test_no_trend_is_no_trend(values: list[float]) -> None:
    found = mann_kendall(np.array(values))
    assert (found.sign, found.chance) == (0, 1.0)
