"""Numbers as cells of a table."""

from __future__ import annotations

import math

import numpy as np
import pytest

from seatrial.analyse.charts.cells import cells, cells_with_marks


def test_what_is_no_number_is_none() -> None:
    assert cells(np.array([1.0, np.nan, np.inf, -np.inf, 2.5])) == [1.0, None, None, None, 2.5]
    assert cells(np.array([1.0, 2.0])) == [1.0, 2.0] and cells(np.array([])) == []
    assert all(type(value) is float for value in cells(np.array([1.0, 2.0]))), "plain numbers travel between processes"


def test_what_was_told_stays_whatever_it_is() -> None:
    found = cells_with_marks(np.array([np.nan, np.inf, np.nan]), np.array([True, True, False]))
    assert math.isnan(found[0]) and found[1:] == [math.inf, None]
    assert cells_with_marks(np.array([1.0, np.inf]), np.array([True, True])) == [1.0, math.inf]


def test_values_and_marks_are_of_one_length() -> None:
    with pytest.raises(ValueError, match="zip"):
        cells_with_marks(np.array([1.0, 2.0]), np.array([False]))
