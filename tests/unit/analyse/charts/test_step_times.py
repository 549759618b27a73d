"""How the times of the counted steps are spread."""

from __future__ import annotations

import polars as pl

from seatrial.analyse.charts.first_rank import first_rank
from seatrial.analyse.charts.step_times import QUANTILES, step_time_table
from seatrial.records.charts import Columns
from seatrial.records.measure import Window
from tests.unit.analyse.factory import STARTED_T, pauses_of, steps_of, tables

WINDOW = Window(first_step=1, last_step=4, n=4, warmup_steps=1)


def table(*parts: pl.DataFrame, window: Window = WINDOW, pauses: pl.DataFrame | None = None) -> Columns:
    made = tables(*parts, pauses=pauses)
    return step_time_table(made, first_rank(made, STARTED_T, jumped=False), window)


def at(found: Columns, quantile: float) -> object:
    return found["iter_ms"][list(QUANTILES).index(quantile)]


def test_only_steps_of_the_window_count_and_ends_are_the_extremes() -> None:
    found = table(steps_of([999.0, 10.0, 20.0, 30.0, 40.0, 999.0]))
    assert (at(found, 0.0), at(found, 0.5), at(found, 1.0)) == (10.0, 25.0, 40.0)
    assert found["quantile"] == list(QUANTILES) and found["n"] == [4] * len(QUANTILES)
    assert (found["first_step"][0], found["last_step"][0]) == (1, 4)


def test_a_step_takes_as_long_as_its_slowest_rank() -> None:
    found = table(steps_of([1.0, 10.0, 20.0, 30.0, 40.0]), steps_of([1.0, 50.0, 10.0, 10.0, 10.0], rank=1))
    assert (at(found, 0.0), at(found, 1.0)) == (20.0, 50.0)


def test_a_step_with_a_pause_does_not_count_and_nothing_of_no_steps() -> None:
    one = steps_of([1.0, 10.0, 20.0, 30.0, 400.0])
    assert at(table(one, pauses=pauses_of((0, 4, "eval", 5.0))), 1.0) == 30.0
    assert table(one, window=Window(first_step=50, last_step=60, n=0, warmup_steps=0)) == {}
