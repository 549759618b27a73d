"""When the loop began and ended, by the slowest rank and by rank 0."""

from __future__ import annotations

import math

import polars as pl

from seatrial.analyse.loop_times import loop_times
from tests.unit.analyse.factory import STARTED_T, steps_of


def test_ends_are_those_of_the_slowest_rank_and_the_length_is_rank_0s() -> None:
    fast, slow = steps_of([100.0, 100.0, 100.0]), steps_of([150.0, 150.0, 150.0], rank=1)
    found = loop_times(pl.concat([fast, slow]), fast)
    assert math.isclose(found["first_step_t"] or 0, STARTED_T + 5.15) and math.isclose(found["last_step_t"] or 0, STARTED_T + 5.45)
    assert math.isclose(found["loop_s"] or 0, 0.2)


def test_a_single_step_has_no_length() -> None:
    one = steps_of([100.0])
    found = loop_times(one, one)
    assert found["loop_s"] is None and found["first_step_t"] == found["last_step_t"] == STARTED_T + 5.1


def test_a_clock_that_went_back_has_no_length_and_two_steps_at_once_took_none() -> None:
    two = steps_of([100.0, 100.0])
    assert loop_times(two, two.with_columns(m=pl.Series([5.0, 4.0])))["loop_s"] is None
    assert loop_times(two, two.with_columns(m=pl.Series([5.0, 5.0])))["loop_s"] == 0.0


def test_steps_without_a_wall_clock_have_no_time() -> None:
    two = steps_of([100.0, 100.0]).with_columns(t=pl.Series([math.nan, STARTED_T]))
    found = loop_times(two, two)
    assert (found["first_step_t"], found["last_step_t"]) == (None, STARTED_T)
