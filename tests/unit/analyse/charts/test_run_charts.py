"""Tables that are drawn of a run, and how they are thinned."""

from __future__ import annotations

import math
import pickle
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from seatrial.analyse.charts.run_charts import (
    QUANTILES,
    detail_for,
    eta_table,
    phase_table,
    rank_table,
    run_charts,
    step_table,
    step_time_table,
)
from seatrial.analyse.charts.thinning import MIN_POINTS, cells, cells_with_marks, kept_indices, longest_kept
from seatrial.analyse.charts.timeline import first_rank
from seatrial.analyse.measure import measure_run
from seatrial.analyse.stragglers import MIN_STEPS, RankWork, rank_work
from seatrial.records.attempt import Attempt, StepTables
from seatrial.records.columns import CHART_TABLES, Columns, Detail
from seatrial.records.eta import EtaPoint
from seatrial.records.measure import RankLocation, RunMeasure, Window
from seatrial.records.plan import TimingSpec
from seatrial.records.telemetry import TelemetryTables
from tests.unit.analyse import factory
from tests.unit.analyse import factory as meeting_ranks
from tests.unit.analyse.factory import STARTED_T, pauses_of, steps_of, tables

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
    pauses = [(0, step, "eval", 9.0) for step in range(55, 600, 10)]
    for _, step, _, _ in pauses:
        times[step] = 1000.0 if step % 20 == 15 else 10.0
    times[303], times[404] = 160.0, 60.0
    table = drawn(factory.tables(factory.steps_of(times, loss=loss), pauses=factory.pauses_of(*pauses)))["steps"]
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
    pauses = factory.pauses_of(*((0, step, "eval", 9.0) for step in range(1, 60, 2)))
    table = drawn(factory.tables(factory.steps_of(slow), factory.steps_of(slow, rank=1), pauses=pauses))["ranks"]
    assert table["iter_p50_ms"] == [100.0, 100.0]
    assert max(table["n"]) <= 30


def test_quantiles_are_those_of_the_measure() -> None:
    for found_tables in (
        factory.tables(factory.steps_of(times_ms())),
        factory.tables(factory.steps_of(times_ms()), factory.steps_of(times_ms()[::-1], rank=1)),
    ):
        measure, table = measured(found_tables), drawn(found_tables)["step_times"]
        assert measure.window is not None
        by_quantile = dict(zip(table["quantile"], table["iter_ms"], strict=True))
        assert by_quantile[0.5] == pytest.approx(measure.wall_p50_ms)
        assert by_quantile[0.9] == pytest.approx(measure.wall_p90_ms)
        assert set(zip(table["first_step"], table["last_step"], table["n"], strict=True)) == {
            (measure.window.first_step, measure.window.last_step, measure.window.n)
        }


def test_the_slow_rank_works_longer_and_the_others_wait() -> None:
    locations = tuple(RankLocation(rank=rank, host="node-1", gpu=str(rank)) for rank in (0, 1, 2))
    table = drawn(meeting_ranks.run(4, 200, extra={(2, "fwd"): 20.0}, locations=locations))["ranks"]
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


def test_waiting_is_separated_only_where_enough_steps_have_their_phases() -> None:
    for count, is_told in ((MIN_STEPS + 40, True), (MIN_STEPS - 2, False)):
        tables = meeting_ranks.run(2, count, extra={(1, "fwd"): 20.0})
        window = Window(first_step=0, last_step=count - 1, n=count, warmup_steps=0)
        table = rank_table(tables, rank_work(tables, window), window, 10)
        assert (table["work_p50_ms"] != [None, None]) is is_told


def test_of_very_many_ranks_the_slowest_stays() -> None:
    parts = [factory.steps_of([250.0 if rank == 777 else 100.0 + rank % 3] * 30, rank=rank) for rank in range(1500)]
    table = drawn(factory.tables(*parts))["ranks"]
    assert len(table["rank"]) <= DETAIL.steps
    assert 777 in table["rank"]


def test_estimates_are_those_of_the_plans_mode_by_time_since_launch() -> None:
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
    slower = table(steps_of([1.0, 10.0, 20.0, 30.0, 40.0]), steps_of([1.0, 50.0, 10.0, 10.0, 10.0], rank=1))
    assert (at(slower, 0.0), at(slower, 1.0)) == (20.0, 50.0), "a step takes as long as its slowest rank"
    one = steps_of([1.0, 10.0, 20.0, 30.0, 400.0])
    assert at(table(one, pauses=pauses_of((0, 4, "eval", 5.0))), 1.0) == 30.0, "a step with a pause does not count"
    assert table(one, window=Window(first_step=50, last_step=60, n=0, warmup_steps=0)) == {}


PHASE_WINDOW = Window(first_step=5, last_step=6, n=2, warmup_steps=5)


def work(phases: dict[str, list[list[float]]], iter_ms: list[list[float]] | None = None, steps: int = 2) -> RankWork:
    tables = {name: np.array(values, dtype=float).reshape(2, steps) for name, values in phases.items()}
    known = None if iter_ms is None else np.array(iter_ms)
    return RankWork(ranks=np.arange(2), steps=np.arange(5, 5 + steps), phases=tables, shared=tuple(phases), iter_ms=known)


def test_shares_are_of_the_step_and_other_is_what_no_phase_explains() -> None:
    found = phase_table(work({"fwd": [[10, 20], [30, 20]], "bwd": [[40, 40], [40, 40]]}, [[100, 100], [100, 100]]), PHASE_WINDOW)
    assert found == {
        "phase": ["fwd", "bwd", "other"],
        "mean_ms": [20.0, 40.0, 40.0],
        "share_pct": [20.0, 40.0, 40.0],
        "first_step": [5] * 3,
        "last_step": [6] * 3,
        "n": [2] * 3,
    }


def test_phases_longer_than_the_step_are_shares_of_their_sum() -> None:
    found = phase_table(work({"fwd": [[60, 60], [60, 60]], "bwd": [[60, 60], [60, 60]]}, [[100, 100], [100, 100]]), PHASE_WINDOW)
    assert found["share_pct"] == [50.0, 50.0, 0.0]
    assert sum(found["share_pct"]) == pytest.approx(100.0)


def test_nothing_of_no_steps_no_phases_or_no_time() -> None:
    assert phase_table(work({"fwd": [[], []]}, steps=0), PHASE_WINDOW) == {}
    assert phase_table(work({}, [[1.0, 1.0], [1.0, 1.0]]), PHASE_WINDOW) == {}
    assert phase_table(work({"fwd": [[0, 0], [0, 0]]}), PHASE_WINDOW) == {}


def test_what_is_no_number_is_none() -> None:
    assert cells(np.array([1.0, np.nan, np.inf, -np.inf, 2.5])) == [1.0, None, None, None, 2.5]
    assert cells(np.array([1.0, 2.0])) == [1.0, 2.0] and cells(np.array([])) == []
    assert all(type(value) is float for value in cells(np.array([1.0, 2.0]))), "plain numbers travel between processes"


def test_what_was_reported_stays_whatever_it_is() -> None:
    found = cells_with_marks(np.array([np.nan, np.inf, np.nan]), np.array([True, True, False]))
    assert math.isnan(found[0]) and found[1:] == [math.inf, None]
    assert cells_with_marks(np.array([1.0, np.inf]), np.array([True, True])) == [1.0, math.inf]


NUMBERS = st.floats(allow_nan=False, allow_infinity=False, width=32)
CELLS = st.one_of(st.none(), NUMBERS, st.sampled_from([math.nan, math.inf, -math.inf]))


def series(cells: list[float | None]) -> tuple[np.ndarray, np.ndarray]:
    """Values, and which of them are there."""
    return np.array([math.nan if cell is None else cell for cell in cells]), np.array([cell is not None for cell in cells], dtype=bool)


@given(st.lists(CELLS, min_size=1, max_size=300), st.integers(1, 60))
def test_extremes_ends_and_marks_stay(cells: list[float | None], most: int) -> None:
    values, present = series(cells)
    kept = kept_indices(values, most, present)
    assert len(kept) <= max(most, MIN_POINTS)
    assert (np.diff(kept) > 0).all()
    assert kept[0] == 0
    assert kept[-1] == len(cells) - 1
    finite = values[present & np.isfinite(values)]
    if len(finite):
        drawn = values[kept][present[kept]]
        assert finite.min() in drawn
        assert finite.max() in drawn
    broken = np.flatnonzero(present & ~np.isfinite(values))
    assert not len(broken) or broken[0] in kept


@given(st.lists(NUMBERS, min_size=1, max_size=300), st.integers(1, 60))
def test_every_stretch_keeps_its_lowest_and_highest(numbers: list[float], most: int) -> None:
    values, most = np.array(numbers), max(most, MIN_POINTS)
    kept = set(kept_indices(values, most).tolist())
    assert len(kept) <= most
    if len(values) <= most:
        assert kept == set(range(len(values)))
        return
    length = -(-len(values) // ((most - 2) // 2))
    for begin in range(0, len(values), length):
        part = values[begin : begin + length]
        drawn = [value for place, value in enumerate(part, begin) if place in kept]
        assert part.min() in drawn
        assert part.max() in drawn


def test_values_that_are_not_there_are_kept_only_at_the_ends() -> None:
    values, present = series([None] * 50 + [3.0] + [None] * 50)
    assert kept_indices(values, 20, present).tolist() == [0, 50, 100]
    assert kept_indices(np.full(100, math.nan), 20, np.zeros(100, dtype=bool)).tolist() == [0, 99]
    assert 90 <= len(kept_indices(np.full(1000, math.nan), 100)) <= 100, "broken values use all points"
    assert kept_indices(np.array([2.0, math.nan, 1.0]), 1).tolist() == [0, 1, 2]


@given(st.lists(st.floats(0, 1e6), max_size=200), st.integers(1, 50))
def test_of_many_lengths_the_longest_stays(lengths: list[float], most: int) -> None:
    kept = longest_kept(np.array(lengths), most)
    assert len(kept) <= most
    assert not lengths or max(lengths) in np.array(lengths)[kept]


@pytest.mark.parametrize(("runs", "expected"), [(0, (1500, 400, 150)), (4, (1500, 400, 150)), (1000, (100, 8, 10)), (100_000, (16, 8, 5))])
def test_a_few_runs_are_drawn_in_full_and_many_still_fit(runs: int, expected: tuple[int, int, int]) -> None:
    detail = detail_for(runs)
    assert (detail.steps, detail.telemetry, detail.eta) == expected
