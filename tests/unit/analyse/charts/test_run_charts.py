"""What can be drawn of a run, against runs of known truth."""

from __future__ import annotations

import math
import pickle
from typing import Any

import numpy as np
import polars as pl
import pytest

from seatrial.analyse.charts.eta import eta_table
from seatrial.analyse.charts.first_rank import first_rank
from seatrial.analyse.charts.ranks import rank_table
from seatrial.analyse.charts.run import run_charts
from seatrial.analyse.charts.steps import step_table
from seatrial.analyse.measure import measure_run
from seatrial.analyse.straggler import LEAST_STEPS
from seatrial.analyse.straggler_work import rank_work
from seatrial.records.attempt import Attempt
from seatrial.records.charts import CHART_TABLES, Columns, Detail
from seatrial.records.eta import EtaPoint
from seatrial.records.health import RankPlace
from seatrial.records.measure import RunMeasure, Window
from seatrial.records.run_spec import TimingSpec
from seatrial.records.steps import StepTables
from seatrial.records.telemetry import TelemetryTables
from tests.unit.analyse import factory, meeting_ranks

DETAIL = Detail(steps=120, telemetry=8, eta=10)
T = factory.STARTED_T
GPU = pl.DataFrame({"epoch_sec": [T + 1.0, T + 2.0], "gpu_index": [0.0, 0.0], "power_w": [300.0, 310.0]})


def times_ms(count: int = 600) -> list[float]:
    """Five slow steps, then even ones, one of them very slow."""
    chance = np.random.default_rng(7)
    times = [300.0] * 5 + (100.0 * chance.uniform(0.98, 1.02, count - 5)).tolist()
    times[401] = 900.0
    return times


def drawn(tables: StepTables, *, attempt: Attempt | None = None, samples: TelemetryTables | None = None) -> dict[str, Columns]:
    attempt = attempt or factory.attempt(factory.spec(steps=600))
    measure = measure_run(attempt, tables, samples)
    return run_charts(attempt, tables, samples, measure, DETAIL).tables


def measured(tables: StepTables) -> RunMeasure:
    return measure_run(factory.attempt(factory.spec(steps=600)), tables)


def every_tenth(pauses: pl.DataFrame | None = None, ranks: int = 1) -> StepTables:
    """Rows of ten steps each, of 100 ms a step."""
    ends_s = [1.0 + row for row in range(60)]
    clocks = {"t": [T + 5.0 + end for end in ends_s], "m": [100.0 + end for end in ends_s]}
    columns = {"step": range(9, 600, 10), "span": 10, **clocks}
    return factory.tables(*(factory.steps_of([100.0] * 60, rank=rank, **columns) for rank in range(ranks)), pauses=pauses)


def rows(table: Columns) -> list[dict[str, Any]]:
    return [dict(zip(table, row, strict=True)) for row in zip(*table.values(), strict=True)]


def test_every_table_has_its_columns_of_one_length_and_travels() -> None:
    tables = meeting_ranks.run(2, 200, extra={(1, "fwd"): 20.0})
    found = drawn(tables, samples=TelemetryTables(gpu=GPU), attempt=factory.attempt(factory.spec(steps=200, ranks=2)))
    assert set(found) == set(CHART_TABLES)
    for name, table in found.items():
        assert tuple(table) == CHART_TABLES[name]
        assert len({len(values) for values in table.values()}) == 1
        assert all(type(value) in (str, int, float, bool, type(None)) for values in table.values() for value in values)
    assert pickle.loads(pickle.dumps(found)) == found


def test_steps_keep_the_slowest_the_quickest_and_the_first_broken_loss() -> None:
    times = times_ms()
    loss: list[float | None] = [4.0 * 0.99**step for step in range(600)]
    loss[100], loss[333] = None, math.nan
    table = drawn(factory.tables(factory.steps_of(times, loss=loss)))["steps"]
    kept = {row["step"]: row for row in rows(table)}
    assert len(kept) <= DETAIL.steps
    assert kept[401]["iter_ms"] == 900.0
    assert min(times) in table["iter_ms"]
    assert math.isnan(kept[333]["loss"])
    assert {0, 599} <= set(kept)
    assert list(kept) == sorted(kept)
    assert all(row["loss"] is None for step, row in kept.items() if step == 100)
    assert kept[599]["t_s"] == pytest.approx(5.0 + sum(times) / 1000)
    assert kept[0]["counted"] is False
    assert kept[401]["counted"] is True


@pytest.mark.parametrize("loss", [3.0, None])
def test_the_slowest_and_quickest_step_that_count_stay_beside_slower_ones_that_do_not(loss: float | None) -> None:
    times = [100.0 + 0.001 * (step % 7) for step in range(600)]
    told = [(0, step, "eval", 9.0) for step in range(55, 600, 10)]
    for _, step, _, _ in told:
        times[step] = 1000.0 if step % 20 == 15 else 10.0
    times[303], times[404] = 160.0, 60.0
    table = drawn(factory.tables(factory.steps_of(times, loss=loss), pauses=factory.pauses_of(*told)))["steps"]
    counted = [row["iter_ms"] for row in rows(table) if row["counted"]]
    others = [row["iter_ms"] for row in rows(table) if not row["counted"]]
    assert len(table["step"]) <= DETAIL.steps
    assert (min(counted), max(counted), min(others), max(others)) == (60.0, 160.0, 10.0, 1000.0)


@pytest.mark.parametrize("few", [1, 3, 30, 300])
def test_however_few_steps_count_the_table_stays_within_its_size(few: int) -> None:
    tables = factory.tables(factory.steps_of(times_ms(), loss=3.0))
    first = first_rank(tables, T, jumped=False)
    assert first is not None
    for window in (
        Window(first_step=600 - few, last_step=599, n=few, warmup_steps=0),
        Window(first_step=0, last_step=599 - few, n=600 - few, warmup_steps=0),
    ):
        for most in (24, 120):
            table = step_table(first, window, most)
            assert most // 2 < len(table["step"]) <= most
            assert {True, False} == set(table["counted"])


def test_a_row_of_several_steps_begins_with_the_first_and_counts_as_a_whole() -> None:
    # A line at every tenth step; a pause in the sixth. The plan's window begins within the third row, which is then outside.
    tables = every_tenth(factory.pauses_of((0, 59, "eval", 9.0)))
    attempt = factory.attempt(factory.spec(steps=600, timing=TimingSpec(window="25:")))
    found = drawn(tables, attempt=attempt)
    steps, spread = found["steps"], found["step_times"]
    assert steps["begin_s"][:2] == pytest.approx([5.0, 6.0])
    assert steps["t_s"][:2] == pytest.approx([6.0, 7.0])
    assert [row["step"] for row in rows(steps) if not row["counted"]] == [9, 19, 29, 59]
    assert (spread["first_step"][0], spread["last_step"][0], spread["n"][0]) == (30, 599, 560)


def test_a_row_that_reaches_out_of_the_window_counts_for_no_rank() -> None:
    tables = every_tenth(ranks=2)
    first = first_rank(tables, T, jumped=False)
    assert first is not None
    window = Window(first_step=25, last_step=594, n=560, warmup_steps=0)
    assert int(first.is_counted(window).sum()) == 56
    assert rank_table(tables, rank_work(tables, window), window, 10)["n"] == [56, 56]


def test_steps_that_held_a_pause_are_in_no_rank_s_figures() -> None:
    slow = [500.0 if step % 2 else 100.0 for step in range(60)]
    told = factory.pauses_of(*((0, step, "eval", 9.0) for step in range(1, 60, 2)))
    table = drawn(factory.tables(factory.steps_of(slow), factory.steps_of(slow, rank=1), pauses=told))["ranks"]
    assert table["iter_p50_ms"] == [100.0, 100.0]
    assert max(table["n"]) <= 30


def test_a_step_that_held_a_pause_on_any_rank_does_not_count() -> None:
    tables = factory.tables(
        factory.steps_of([100.0] * 60), factory.steps_of([100.0] * 60, rank=1), pauses=factory.pauses_of((1, 50, "eval", 9.0))
    )
    assert [row["step"] for row in rows(drawn(tables)["steps"]) if not row["counted"] and row["step"] > 40] == [50]


def test_quantiles_are_those_of_the_measure() -> None:
    for tables in (
        factory.tables(factory.steps_of(times_ms())),
        factory.tables(factory.steps_of(times_ms()), factory.steps_of(times_ms()[::-1], rank=1)),
    ):
        measure, table = measured(tables), drawn(tables)["step_times"]
        assert measure.window is not None
        by_quantile = dict(zip(table["quantile"], table["iter_ms"], strict=True))
        assert by_quantile[0.5] == pytest.approx(measure.wall_p50_ms)
        assert by_quantile[0.9] == pytest.approx(measure.wall_p90_ms)
        assert set(zip(table["first_step"], table["last_step"], table["n"], strict=True)) == {
            (measure.window.first_step, measure.window.last_step, measure.window.n)
        }


def test_phases_add_up_to_the_step_and_what_none_explains_is_other() -> None:
    steps = factory.steps_of([100.0] * 100, data_wait_ms=5.0, fwd_ms=30.0, bwd_ms=50.0)
    found = {row["phase"]: row for row in rows(drawn(factory.tables(steps))["phases"])}
    assert {name: row["mean_ms"] for name, row in found.items()} == pytest.approx({"data_wait": 5, "fwd": 30, "bwd": 50, "other": 15})
    assert sum(row["share_pct"] for row in found.values()) == pytest.approx(100)
    assert found["other"]["n"] == measured(factory.tables(steps)).window.n  # type: ignore[union-attr]


def test_phases_of_launches_that_run_ahead_are_shares_of_their_sum() -> None:
    steps = factory.steps_of([10.0] * 100, fwd_ms=30.0, bwd_ms=50.0)
    table = drawn(factory.tables(steps))["phases"]
    assert dict(zip(table["phase"], table["share_pct"], strict=True)) == pytest.approx({"fwd": 37.5, "bwd": 62.5, "other": 0.0})


def test_phases_told_of_every_tenth_step_say_of_how_many_they_are() -> None:
    tables = meeting_ranks.run(2, 400, phase_every=10)
    window, table = measured(tables).window, drawn(tables)["phases"]
    assert window is not None
    assert 0 < table["n"][0] <= window.n // 10 + 1  # type: ignore[operator]


def test_the_slow_rank_works_longer_and_the_others_wait() -> None:
    places = tuple(RankPlace(rank=rank, host="node-1", gpu=str(rank)) for rank in (0, 1, 2))
    table = drawn(meeting_ranks.run(4, 200, extra={(2, "fwd"): 20.0}, places=places))["ranks"]
    found = rows(table)
    assert [row["rank"] for row in found] == [0, 1, 2, 3]
    assert max(found, key=lambda row: row["work_p50_ms"])["rank"] == 2
    assert found[2]["wait_p50_ms"] == pytest.approx(0.0, abs=0.5)
    assert found[0]["wait_p50_ms"] == pytest.approx(20.0, abs=3.0)
    assert (found[2]["host"], found[2]["gpu"], found[3]["host"]) == ("node-1", "2", "")


def test_ranks_without_phases_have_step_times_only_and_a_single_rank_no_row() -> None:
    tables = factory.tables(factory.steps_of([100.0] * 60), factory.steps_of([120.0] * 59, rank=1))
    table = drawn(tables)["ranks"]
    assert table["iter_p50_ms"] == [100.0, 120.0]
    assert table["work_p50_ms"] == table["wait_p50_ms"] == [None, None]
    assert "ranks" not in drawn(factory.tables(factory.steps_of([100.0] * 60)))


def test_waiting_is_told_apart_only_where_enough_steps_tell_their_phases() -> None:
    for count, is_told in ((LEAST_STEPS + 40, True), (LEAST_STEPS - 2, False)):
        tables = meeting_ranks.run(2, count, extra={(1, "fwd"): 20.0})
        window = Window(first_step=0, last_step=count - 1, n=count, warmup_steps=0)
        table = rank_table(tables, rank_work(tables, window), window, 10)
        assert (table["work_p50_ms"] != [None, None]) is is_told


def test_of_very_many_ranks_the_slowest_stays() -> None:
    parts = [factory.steps_of([250.0 if rank == 777 else 100.0 + rank % 3] * 30, rank=rank) for rank in range(1500)]
    table = drawn(factory.tables(*parts))["ranks"]
    assert len(table["rank"]) <= DETAIL.steps
    assert 777 in table["rank"]


def test_estimates_are_those_of_the_asked_mode_by_time_since_launch() -> None:
    table = drawn(factory.tables(factory.steps_of(times_ms())))["eta"]
    assert len(table["step"]) <= DETAIL.eta
    first = rows(table)[0]
    assert first["elapsed_s"] == pytest.approx(5.0 + sum(times_ms()[: first["step"] + 1]) / 1000)
    assert first["low_s"] < first["eta_s"] < first["high_s"]


def test_an_estimate_at_a_step_that_has_no_row_has_no_time() -> None:
    tables = every_tenth()
    first = first_rank(tables, T, jumped=False)
    assert first is not None
    points = [EtaPoint(index=0, step=step, remain_steps=1, eta_s=1.0, mode="rank0", source="events") for step in (9, 12, 700)]
    table = eta_table(points, "rank0", first, 10)
    assert table["elapsed_s"] == [pytest.approx(6.0), None, None]


def test_where_the_clock_was_set_samples_and_spans_are_left_out_and_steps_go_on() -> None:
    steps = factory.steps_of([100.0] * 60)
    jumped = steps.with_columns(t=pl.when(pl.col("step") > 30).then(pl.col("t") + 3600).otherwise(pl.col("t")))
    found = drawn(factory.tables(jumped), samples=TelemetryTables(gpu=GPU))
    assert not {"telemetry", "spans"} & set(found)
    assert found["steps"]["t_s"] == pytest.approx([5.1 + 0.1 * step for step in range(60)])


def test_without_a_time_of_launch_the_first_thing_known_is_the_origin() -> None:
    for attempt in (factory.attempt(started_t=0.0), factory.attempt(started_t=T + 900), factory.attempt(outcome=None)):
        found = drawn(factory.tables(factory.steps_of([100.0] * 60)), attempt=attempt)
        assert found["steps"]["t_s"][0] == pytest.approx(0.1)


def test_a_run_without_steps_shows_what_the_machine_did() -> None:
    attempt = factory.attempt()
    found = run_charts(attempt, factory.tables(source="whole"), TelemetryTables(gpu=GPU), None, DETAIL).tables
    assert set(found) == {"telemetry"}
    assert run_charts(attempt, factory.tables(source="whole"), None, None, DETAIL).tables == {}


def test_lines_of_a_script_without_times_are_drawn_by_step() -> None:
    nothing: list[None] = [None] * 60
    steps = factory.steps_of([100.0] * 60, t=nothing, m=nothing)
    found = drawn(factory.tables(steps, source="log:seed"))
    assert found["steps"]["t_s"] == nothing
    assert "spans" not in found
