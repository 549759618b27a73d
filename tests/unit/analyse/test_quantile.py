"""Medians and percentiles, bit for bit against numpy's."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from seatrial.analyse.quantile import median, percentiles, row_medians

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


def test_what_is_given_stays_as_it_is() -> None:
    array = np.array([3.0, 1.0, 2.0, 0.0])
    median(array), percentiles(array, [90]), row_medians(array.reshape(2, 2))
    assert array.tolist() == [3.0, 1.0, 2.0, 0.0]
