"""A column as numbers: NaN for what is none."""

from __future__ import annotations

import numpy as np
import polars as pl

from seatrial.analyse.column import column, known, known_mean


def test_numbers_of_any_kind_become_floats() -> None:
    table = pl.DataFrame({"whole": [1, 2], "text": ["1.5", "x"], "float": [0.5, None]})
    assert column(table, "whole").tolist() == [1.0, 2.0] and column(table, "whole").dtype == np.float64
    np.testing.assert_array_equal(column(table, "text"), [1.5, np.nan])
    np.testing.assert_array_equal(column(table, "float"), [0.5, np.nan])


def test_a_column_that_is_not_there_is_as_long_as_the_table_and_empty() -> None:
    np.testing.assert_array_equal(column(pl.DataFrame({"a": [1, 2, 3]}), "b"), [np.nan] * 3)
    assert len(column(pl.DataFrame(), "b")) == 0


def test_the_mean_is_of_what_was_told() -> None:
    values = np.array([1.0, np.nan, 3.0])
    assert known(values).tolist() == [1.0, 3.0] and known_mean(values) == 2.0
    assert known_mean(np.array([np.nan])) is None is known_mean(np.array([]))
