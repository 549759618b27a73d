"""Ranks that wait for data: now and then for long, or in every step."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl
import pytest

from seatrial.analyse.uneven_data import LEAST_STEPS, data_causes
from seatrial.analyse.uneven_span import Span
from seatrial.records.health import UnevenCause
from seatrial.records.measure import Window
from tests.unit.analyse.factory import pauses_of, steps_of, tables


def waiting(waits_ms: Sequence[float], *, work_ms: float = 90.0, rank: int = 0) -> pl.DataFrame:
    return steps_of([work_ms + wait for wait in waits_ms], rank=rank, data_wait_ms=waits_ms)


def causes(
    *parts: pl.DataFrame, span: Span | None = None, pauses: pl.DataFrame | None = None, source: str = "events"
) -> dict[str, UnevenCause]:
    return {cause.kind: cause for cause in data_causes(tables(*parts, pauses=pauses, source=source), span or Span())}


BURSTS = [100.0 if step % 10 == 9 else 10.0 for step in range(60)]


def test_bursts_are_told_with_their_rhythm_and_their_cost() -> None:
    found = causes(waiting(BURSTS))["data_wait_bursts"]
    assert found.text == (
        "In 6 of 60 steps (the whole run) the ranks waited for data for 90 ms beyond the usual 10 ms, every 10 steps: 100% of what slow "
        "steps take beyond the median, and 8% of the window's time. Raise num_workers or prefetch_factor, or look at the storage behind "
        "the data."
    )
    assert found.numbers == {
        "bursts": 6,
        "burst_ms": 90.0,
        "usual_wait_ms": 10.0,
        "explained_ratio": 1.0,
        "time_ratio": pytest.approx(540 / 6540),
        "every_steps": 10,
    }
    assert (found.file, found.n, found.strength) == ("events_rank*.jsonl", 60, 1.0)


def test_bursts_without_a_rhythm() -> None:
    waits = [100.0 if step in (3, 4, 20, 33, 58) else 10.0 for step in range(60)]
    found = causes(waiting(waits), source="log")["data_wait_bursts"]
    assert found.numbers["every_steps"] is None and "every" not in found.text and found.file == "launcher.log"


def test_one_or_two_long_waits_may_be_anything() -> None:
    assert causes(waiting([100.0 if step in (9, 19) else 10.0 for step in range(60)])) == {}
    assert "data_wait_bursts" in causes(waiting([100.0 if step in (9, 19, 29) else 10.0 for step in range(60)]))


def test_slow_steps_that_did_not_wait_are_not_the_datas() -> None:
    slow = [300.0 if wait > 10 else 100.0 for wait in BURSTS]
    table = steps_of(slow, data_wait_ms=[50.0 if wait > 10 else 5.0 for wait in BURSTS])
    assert causes(table) == {}


def test_a_wait_in_every_step_from_a_share_on() -> None:
    found = causes(waiting([30.0] * LEAST_STEPS, work_ms=170.0))["data_wait"]
    assert found.numbers == {"wait_ms": 30.0, "step_ms": 200.0, "share": 0.15} and found.strength == 0.15
    assert found.text.startswith("Of 200 ms a step takes, the ranks wait 30 ms for data (15%, medians over the whole run, n = 20).")
    assert causes(waiting([29.0] * LEAST_STEPS, work_ms=171.0)) == {}


def test_both_where_both_are_so() -> None:
    assert list(causes(waiting([wait + 20 for wait in BURSTS]))) == ["data_wait_bursts", "data_wait"]


def test_few_steps_and_no_wait_name_nothing() -> None:
    assert causes(waiting([30.0] * (LEAST_STEPS - 1), work_ms=70.0)) == {}
    assert causes(waiting([0.0] * 60)) == {} == causes(steps_of([100.0] * 60))


def test_a_step_waits_as_long_as_the_rank_that_waits_longest() -> None:
    found = causes(waiting([1.0] * 60, work_ms=99.0), waiting([40.0] * 60, work_ms=60.0, rank=1))["data_wait"]
    assert found.numbers["wait_ms"] == 40.0 and found.n == 60


def test_only_steps_of_the_window_without_a_pause_count() -> None:
    waits = [90.0 if step < 30 else 1.0 for step in range(60)]
    window = Window(first_step=30, last_step=59, n=30, warmup_steps=30)
    assert causes(waiting(waits, work_ms=100.0), span=Span(window=window)) == {}
    assert causes(waiting(waits, work_ms=100.0), pauses=pauses_of(*((0, step, "eval", 1.0) for step in range(30)))) == {}
    first = Window(first_step=0, last_step=29, n=30, warmup_steps=0)
    found = causes(waiting(waits, work_ms=100.0), span=Span(window=first))["data_wait"]
    assert found.n == 30 and found.window == "steps 0 to 29"
