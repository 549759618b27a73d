"""Which steps count, on tables whose truth is known."""

from __future__ import annotations

import polars as pl
import pytest

from seatrial.analyse.window import Counted, count_steps
from tests.unit.analyse import factory


def printed(count: int, every: int, *, first: int = 0, iter_ms: float = 100.0) -> pl.DataFrame:
    """Lines at every so many steps; the first has nothing before it to be timed from."""
    rows = factory.steps_of([iter_ms] * count).with_columns(step=pl.col("step") * every + first)
    is_first = pl.col("step") == first
    return rows.with_columns(
        span=pl.when(is_first).then(1).otherwise(every).cast(pl.Int64), iter_ms=pl.when(is_first).then(None).otherwise(pl.col("iter_ms"))
    )


def counted(steps: pl.DataFrame, window: str = "auto", paused: tuple[int, ...] = ()) -> Counted:
    return count_steps(steps, pl.Series("step", paused, dtype=pl.Int64), window)


def figures(found: Counted) -> tuple[int, int, int, int, int]:
    assert found.window is not None
    return (
        found.window.first_step,
        found.window.last_step,
        found.window.n,
        found.window.warmup_steps,
        found.window.excluded_steps,
    )


def test_a_row_of_several_steps_begins_with_the_first_of_them() -> None:
    assert figures(counted(printed(20, 10))) == (1, 190, 190, 1, 0)
    assert figures(counted(printed(12, 50, first=50))) == (51, 600, 550, 1, 0)


@pytest.mark.parametrize("paused", [(), (50,), (50, 100)])
def test_n_is_what_first_and_last_enclose_less_what_is_left_out(paused: tuple[int, ...]) -> None:
    first, last, n, _, excluded = figures(counted(printed(20, 10), paused=paused))
    assert n == last - first + 1 - excluded
    assert excluded == 10 * len(paused)


def test_steps_before_the_window_count_once_though_two_rows_speak_of_them() -> None:
    """Lines 1 to 5 came in one chunk: untimed but the last, whose row speaks of all."""
    steps = factory.steps_of([500.0] * 6 + [100.0] * 54)
    late = steps.with_columns(
        iter_ms=pl.when(pl.col("step") < 5).then(None).otherwise(pl.col("iter_ms")),
        span=pl.when(pl.col("step") == 5).then(5).otherwise(1).cast(pl.Int64),
    )
    assert figures(counted(late)) == (6, 59, 54, 6, 0)


def test_steps_that_were_lost_before_the_window_are_not_known() -> None:
    steps = factory.steps_of([500.0] * 12 + [100.0] * 58).filter(~pl.col("step").is_in([2, 3]))
    assert figures(counted(steps)) == (12, 69, 58, 10, 0)


def test_numbers_that_do_not_start_at_0_count_no_steps_before_them() -> None:
    assert figures(counted(factory.steps_of([500.0] * 5 + [100.0] * 95, first_step=1000))) == (1005, 1099, 95, 5, 0)


def test_rows_that_reach_out_of_the_plans_window_do_not_count() -> None:
    assert figures(counted(printed(20, 10), "15:100"))[:3] == (21, 100, 80)
    assert figures(counted(printed(20, 10), "11:109"))[:3] == (11, 100, 90)


def test_the_reason_names_a_step_by_its_number() -> None:
    steps = factory.steps_of([100.0] * 100 + [200.0] * 300, first_step=1000)
    found = counted(steps).window
    assert found is not None and "from 100 ms to 200 ms at about step 1100:" in found.reason


@pytest.mark.parametrize("broken", [float("nan"), float("inf"), -5.0])
def test_a_time_that_is_none_does_not_count(broken: float) -> None:
    found = counted(factory.steps_of([100.0] * 30 + [broken] + [100.0] * 29))
    assert (found.rows, found.window_s, found.lost) == (59, pytest.approx(5.9), {0: 1})


def test_steps_that_a_rank_lacks_are_counted_by_rank() -> None:
    whole, half = factory.steps_of([100.0] * 60), factory.steps_of([100.0] * 60, rank=1)
    found = counted(pl.concat([whole, half.filter((pl.col("step") % 2 == 0) | (pl.col("step") > 53))]))
    assert found.lost == {1: 27}
    assert found.window is not None and found.window.n == 33


def test_a_rank_that_begins_late_or_ends_early_has_lost_none() -> None:
    whole, part = factory.steps_of([100.0] * 60), factory.steps_of([100.0] * 40, rank=1, first_step=5)
    assert counted(pl.concat([whole, part])).lost == {}
    assert counted(printed(20, 10)).lost == {}


def test_steps_before_the_window_are_those_that_the_first_rank_tells() -> None:
    """Rank 0 lost the line of step 2, which rank 1 has."""
    first = factory.steps_of([100.0] * 40).filter(pl.col("step") != 2)
    assert figures(counted(pl.concat([first, factory.steps_of([100.0] * 40, rank=1)]), "5:39"))[3] == 4
