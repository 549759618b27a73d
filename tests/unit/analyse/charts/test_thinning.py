"""Thinning never loses an extreme, an end or the first value that is no number, and never keeps more than was asked for."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from seatrial.analyse.charts.detail import detail_for
from seatrial.analyse.charts.thinning import LEAST_POINTS, kept_places, longest_kept

NUMBERS = st.floats(allow_nan=False, allow_infinity=False, width=32)
CELLS = st.one_of(st.none(), NUMBERS, st.sampled_from([math.nan, math.inf, -math.inf]))


def series(cells: list[float | None]) -> tuple[np.ndarray, np.ndarray]:
    """Values, and which of them are there."""
    return np.array([math.nan if cell is None else cell for cell in cells]), np.array([cell is not None for cell in cells], dtype=bool)


@given(st.lists(CELLS, min_size=1, max_size=300), st.integers(1, 60))
def test_extremes_ends_and_marks_stay(cells: list[float | None], most: int) -> None:
    values, told = series(cells)
    kept = kept_places(values, most, told)
    assert len(kept) <= max(most, LEAST_POINTS)
    assert (np.diff(kept) > 0).all()
    assert kept[0] == 0
    assert kept[-1] == len(cells) - 1
    finite = values[told & np.isfinite(values)]
    if len(finite):
        drawn = values[kept][told[kept]]
        assert finite.min() in drawn
        assert finite.max() in drawn
    broken = np.flatnonzero(told & ~np.isfinite(values))
    assert not len(broken) or broken[0] in kept


@given(st.lists(NUMBERS, min_size=1, max_size=300), st.integers(1, 60))
def test_every_stretch_keeps_its_lowest_and_highest(numbers: list[float], most: int) -> None:
    values, most = np.array(numbers), max(most, LEAST_POINTS)
    kept = set(kept_places(values, most).tolist())
    assert len(kept) <= most
    if len(values) <= most:
        assert kept == set(range(len(values)))
        return
    length = -(-len(values) // ((most - 2) // 2))
    for begin in range(0, len(values), length):
        part = values[begin : begin + length]
        drawn = [value for place, value in enumerate(part, begin) if place in kept]
        assert part.min() in drawn
        assert part.max() in drawn


def test_values_that_are_not_there_are_kept_only_at_the_ends() -> None:
    values, told = series([None] * 50 + [3.0] + [None] * 50)
    assert kept_places(values, 20, told).tolist() == [0, 50, 100]
    assert kept_places(np.full(100, math.nan), 20, np.zeros(100, dtype=bool)).tolist() == [0, 99]


def test_a_series_of_nothing_but_broken_values_uses_all_points() -> None:
    kept = kept_places(np.full(1000, math.nan), 100)
    assert 90 <= len(kept) <= 100


def test_nothing_and_little_stay_as_they_are() -> None:
    assert kept_places(np.array([]), 10).tolist() == []
    assert kept_places(np.array([2.0, math.nan, 1.0]), 1).tolist() == [0, 1, 2]


@given(st.lists(st.floats(0, 1e6), max_size=200), st.integers(1, 50))
def test_of_many_lengths_the_longest_stays(lengths: list[float], most: int) -> None:
    kept = longest_kept(np.array(lengths), most)
    assert len(kept) <= most
    assert not lengths or max(lengths) in np.array(lengths)[kept]


@pytest.mark.parametrize(("runs", "expected"), [(0, (1500, 400, 150)), (4, (1500, 400, 150)), (1000, (100, 8, 10)), (100_000, (16, 8, 5))])
def test_a_few_runs_are_drawn_in_full_and_many_still_fit(runs: int, expected: tuple[int, int, int]) -> None:
    detail = detail_for(runs)
    assert (detail.steps, detail.telemetry, detail.eta) == expected
