"""The same chances as scipy's, over odd sizes, ties and none."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import mannwhitneyu

from seatrial.analyse.mann_whitney import chance_of_one_level


@pytest.mark.parametrize("num_some", [1, 2, 7, 8, 9, 30])
@pytest.mark.parametrize("num_others", [1, 3, 8, 9, 57, 400])
@pytest.mark.parametrize("decimals", [12, 1])
@pytest.mark.parametrize("shift", [0.0, 0.7, -3.0])
def test_as_scipy_says(num_some: int, num_others: int, decimals: int, shift: float) -> None:
    chance = np.random.default_rng(num_some * 1000 + num_others)
    some = np.round(chance.normal(size=num_some) + shift, decimals)
    others = np.round(chance.normal(size=num_others), decimals)
    expected = float(mannwhitneyu(some, others).pvalue)
    assert chance_of_one_level(some, others) == pytest.approx(expected, rel=1e-9, abs=1e-12)


def test_values_that_are_all_the_same_are_on_one_level() -> None:
    assert chance_of_one_level(np.ones(20), np.ones(30)) == 1.0
