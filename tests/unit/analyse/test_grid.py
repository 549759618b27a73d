"""Ranks laid over one another: the way for clean runs against the one for any."""

from __future__ import annotations

from dataclasses import fields

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from seatrial.analyse.grid import any_grid, find_grid, full_grid, is_among

# (rank, step) of every row, sorted.
ODD_ROWS = {
    "no rows": [],
    "a rank lacks its last step": [(0, 0), (0, 1), (1, 0)],
    "a rank lacks its first step": [(0, 0), (0, 1), (1, 1), (2, 0), (2, 1)],
    "as many steps but others": [(0, 0), (0, 1), (1, 0), (1, 2)],
    "two short ranks look like one": [(0, 0), (0, 1), (1, 0), (2, 1)],
    "a step twice": [(0, 0), (0, 0), (1, 0), (1, 0)],
}
CLEAN_ROWS = {
    "one row": [(3, 7)],
    "one rank": [(0, 0), (0, 1), (0, 5)],
    "several ranks": [(rank, step) for rank in (0, 2, 3) for step in (4, 5, 9, 10)],
}


def columns(rows: list[tuple[int, int]]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rank, step = np.array(rows, dtype=np.int64).reshape(-1, 2).T
    return rank, step, np.random.default_rng(1).uniform(0, 9, len(rows))


@pytest.mark.parametrize("name", ODD_ROWS)
def test_odd_rows_are_no_full_grid(name: str) -> None:
    rank, step, _ = columns(ODD_ROWS[name])
    assert full_grid(rank, step) is None
    assert not find_grid(rank, step).is_full


@pytest.mark.parametrize("name", CLEAN_ROWS)
def test_clean_rows_are_one(name: str) -> None:
    rank, step, _ = columns(CLEAN_ROWS[name])
    assert find_grid(rank, step).is_full


@given(st.sets(st.tuples(st.integers(0, 3), st.integers(0, 4))))
def test_both_ways_say_the_same(rows: set[tuple[int, int]]) -> None:
    rank, step, times = columns(sorted(rows))
    found, known = find_grid(rank, step), any_grid(rank, step)
    for name in (field.name for field in fields(known) if field.name != "is_full"):
        assert getattr(found, name).tolist() == getattr(known, name).tolist(), name
    assert found.longest(times).tolist() == known.longest(times).tolist()


@given(numbers=st.sets(st.integers(0, 30)), some=st.lists(st.integers(-3, 33), max_size=8))
def test_which_numbers_are_among_some(numbers: set[int], some: list[int]) -> None:
    ordered, others = np.array(sorted(numbers), dtype=np.int64), np.array(some, dtype=np.int64)
    assert is_among(ordered, others).tolist() == np.isin(ordered, others).tolist()
