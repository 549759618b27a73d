"""Which written steps are believed."""

from __future__ import annotations

import math

import polars as pl

from seatrial.collect.events.checks import Checked, check_steps
from seatrial.collect.step_schema import STEP_SCHEMA

NONE = pl.Series(dtype=pl.Int64)


def table(rows: list[dict[str, float | None]]) -> pl.DataFrame:
    """Steps of 10 ms, one after another, with changes."""
    full = [
        {"rank": 0, "step": at, "span": 1, "t": 1e9 + at / 100, "m": 50 + at / 100, "iter_ms": 10.0, "samples": 8.0, **row}
        for at, row in enumerate(rows)
    ]
    return pl.DataFrame(full, schema=STEP_SCHEMA)


def check(rows: list[dict[str, float | None]], world_size: int = 1) -> Checked:
    return check_steps(table(rows), world_size, 60_000.0, NONE)


def test_clean_steps_are_left_as_they_are() -> None:
    found = check([{}] * 5)
    assert found == Checked(steps=found.steps) and found.steps.equals(table([{}] * 5))


def test_a_step_whose_clock_contradicts_the_others_is_out_of_place() -> None:
    found = check([{}, {}, {"step": 900}, {}, {}])
    assert found.steps["step"].to_list() == [0, 1, 3, 4] and found.misplaced == {0: 1}


def test_one_clock_that_is_far_ahead_costs_only_its_own_step() -> None:
    found = check([{}, {}, {"m": 1e9}, {}, {}])
    assert found.steps["step"].to_list() == [0, 1, 3, 4] and found.misplaced == {0: 1}


def test_a_time_longer_than_what_passed_on_the_clock_is_none() -> None:
    found = check([{}, {}, {"iter_ms": 5000.0}, {}])
    assert found.steps["iter_ms"].to_list() == [10.0, 10.0, None, 10.0] and found.bad_times == {0: 1}


def test_a_pause_between_two_steps_is_no_contradiction() -> None:
    found = check([{}, {}, {"m": 80.0}, {"m": 80.01}])
    assert found.steps["iter_ms"].to_list() == [10.0] * 4 and found == Checked(steps=found.steps)


def test_a_clock_that_leaves_the_time_of_the_run_is_not_believed_from_there_on() -> None:
    rows = [{}, {}, {"m": 9e6}, {"m": 9e6 + 1}, {"rank": 1, "step": 0, "m": 7.0}, {"rank": 1, "step": 1, "m": 7.1}]
    found = check(rows, world_size=2)
    assert found.steps["m"].to_list() == [50.0, 50.01, None, None, 7.0, 7.1]
    assert found.steps["iter_ms"].null_count() == 0 and found.bad_times == {0: 2}


def test_a_time_longer_than_the_run_is_none_and_its_clock_stays() -> None:
    found = check([{}, {}, {"iter_ms": 1e9}, {}])
    assert found.steps["iter_ms"].to_list() == [10.0, 10.0, None, 10.0]
    assert found.steps["m"].null_count() == 0 and found.bad_times == {0: 1}


def test_values_that_cannot_be_are_none() -> None:
    found = check([{}, {"samples": -1.0, "fwd_ms": 1e9}, {"tokens": math.inf}, {"bwd_ms": 3.0}])
    assert found.steps["samples"].to_list() == [8.0, None, 8.0, 8.0]
    assert found.steps["fwd_ms"].null_count() == 4 and found.steps["tokens"].null_count() == 4
    assert found.steps["bwd_ms"].to_list()[3] == 3.0 and found.bad_values == {0: 3}


def test_ranks_the_run_does_not_have_are_left_out() -> None:
    found = check([{}, {"rank": 7}, {"rank": -1}, {}], world_size=2)
    assert found.steps["rank"].unique().to_list() == [0] and found.beyond == {7: 1, -1: 1}


def test_clocks_of_two_ranks_are_not_compared() -> None:
    found = check([{}, {}, {"rank": 1, "step": 0, "m": 3.0}, {"rank": 1, "step": 1, "m": 3.01}], world_size=2)
    assert len(found.steps) == 4 and not found.misplaced and not found.bad_times
