"""Where the measured window lies on the wall clock."""

from __future__ import annotations

import dataclasses

import polars as pl
import pytest

from seatrial.analyse.window_span import WindowSpan, window_span
from seatrial.collect.step_schema import STEP_SCHEMA, empty_pauses
from seatrial.records.measure import Window
from seatrial.records.steps import StepTables


def tables(first_t: float | None = 10.0) -> StepTables:
    rows = [{"rank": rank, "step": step, "span": 1, "t": 10.0 + step, "samples": 4.0} for rank in (0, 1) for step in range(5)]
    rows[0]["t"] = first_t
    return StepTables(source="events", steps=pl.DataFrame(rows, schema=STEP_SCHEMA), pauses=empty_pauses(), world_size=2)


def test_it_begins_where_the_step_before_ended_and_counts_all_ranks() -> None:
    window = Window(first_step=1, last_step=3, n=3, warmup_steps=1)
    assert window_span(tables(), window) == WindowSpan(first_t=10.0, last_t=13.0, samples=24.0)


def test_what_is_not_known_is_none() -> None:
    assert window_span(tables(), None) == WindowSpan()
    whole = Window(first_step=0, last_step=4, n=5, warmup_steps=0)
    assert window_span(tables(), whole).first_t is None
    assert window_span(tables(first_t=None), Window(first_step=1, last_step=4, n=4, warmup_steps=1)).first_t is None


def test_samples_that_are_not_told_or_none_are_not_known_and_few_are() -> None:
    window = Window(first_step=1, last_step=3, n=3, warmup_steps=1)
    made = tables()
    for told, samples in ((None, None), (0.0, None), (0.1, pytest.approx(0.6))):
        steps = made.steps.with_columns(samples=pl.lit(told, dtype=pl.Float64))
        assert window_span(dataclasses.replace(made, steps=steps), window).samples == samples
