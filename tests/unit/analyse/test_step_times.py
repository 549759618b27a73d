"""Timing points, stage 1's columns, slow steps, start-up."""

from __future__ import annotations

import math
import statistics
from typing import Any

import numpy as np
import polars as pl
import pytest
from polars.testing import assert_series_equal

from seatrial.analyse.measure import measure_run
from seatrial.analyse.steady_state import CountedSteps
from seatrial.analyse.step_times import (
    COLUMNS,
    STAGE1_ITER,
    last_steps,
    logged_rows,
    slow_steps,
    stage1_cells,
    stage1_iter_ms,
    stage1_iter_of,
    startup_split,
    timing_points,
)
from seatrial.core.text import format_hms
from seatrial.records.attempt import StartupFacts
from seatrial.records.columns import PER_RUN_STAGE1
from seatrial.records.eta import EtaPoint
from seatrial.records.events import PHASES, STARTUP_PARTS
from seatrial.records.measure import TimingPoint, Window
from seatrial.records.plan import TimingSpec
from seatrial.records.run_table import run_cells
from tests.unit.analyse import factory


def plainly(steps: pl.DataFrame, log_every: int, window: int) -> list[tuple[int, dict[str, float | None]]]:
    """One window after another, with numpy's own percentile."""
    rows, held, points = steps.to_dicts(), [], []
    phased = any(row["fwd_ms"] is not None for row in rows)
    logged = -1
    for row in rows:
        if phased and row["fwd_ms"] is None:
            continue
        phases = [row[name] for name in PHASES if row[name] is not None]
        held.append({**row, "iter_ms": sum(phases) if phased else row["iter_ms"]})
        if row["step"] // log_every > logged:
            logged = row["step"] // log_every
            last = [item for item in held if item["step"] > row["step"] - window]
            values: dict[str, float | None] = {}
            for name in COLUMNS:
                known = [item[name] for item in last if item[name] is not None]
                for quantile in (50, 90):
                    values[f"{name}_p{quantile}"] = float(np.percentile(known, quantile)) if known else None
            points.append((row["step"], values))
    return points


@pytest.mark.parametrize("phase_every", [1, 3, None])
@pytest.mark.parametrize(("log_every", "window"), [(10, 100), (1, 7), (7, 3), (50, 1)])
def test_equals_a_plain_computation(log_every: int, window: int, phase_every: int | None) -> None:
    generator = np.random.default_rng(1)

    def taken(step: int) -> float | None:
        return float(generator.uniform(1, 9)) if phase_every and step % phase_every == 0 else None

    phases = {name: [taken(step) for step in range(150)] for name in PHASES[1:]}
    waits = [float(generator.uniform(0, 1)) for _ in range(150)]
    steps = factory.steps_of(list(generator.uniform(40, 60, 150)), data_wait_ms=waits, **phases)
    found = timing_points(steps.with_columns(stage1_iter_ms().alias(STAGE1_ITER)), log_every, window)
    expected = plainly(steps, log_every, window)
    assert [point.step for point in found] == [step for step, _ in expected]
    assert [point.index for point in found] == list(range(len(expected)))
    for point, (_, values) in zip(found, expected, strict=True):
        assert point.values == pytest.approx(values)


@pytest.mark.parametrize(
    ("phases", "iter_ms"),
    [
        # As on a GPU: the wait for data is known for every step, the rest for one in so many.
        ({"data_wait_ms": [1.0, 2.0], "fwd_ms": [10.0, None], "bwd_ms": [20.0, None]}, [31.0, None]),
        # Wall time where forward and backward are not separate.
        ({"data_wait_ms": [1.0, 2.0], "step_ms": [3.0, 3.0]}, [50.0, 60.0]),
    ],
)
def test_the_seeds_iter_is_the_sum_of_phases_or_wall_time(phases: dict[str, list[float | None]], iter_ms: list[float | None]) -> None:
    assert factory.steps_of([50.0, 60.0], **phases).select(stage1_iter_ms()).to_series().to_list() == iter_ms


@pytest.mark.parametrize("fwd", [[1.5, 2.5], [1.5, None], [None, None]])
@pytest.mark.parametrize("bwd", [[4.1, math.nan], [None, 0.3], [None, None]])
@pytest.mark.parametrize("wait", [[0.1, 0.2], [None, 0.2]])
def test_the_column_is_what_the_expression_gives(fwd: list[float | None], bwd: list[float | None], wait: list[float | None]) -> None:
    steps = factory.steps_of([50.0, 60.0], data_wait_ms=wait, fwd_ms=fwd, bwd_ms=bwd, step_ms=[0.7, 0.9])
    assert_series_equal(stage1_iter_of(steps), steps.select(stage1_iter_ms().alias(STAGE1_ITER)).to_series(), check_exact=True)


def test_lines_that_skip_the_multiples_still_give_points() -> None:
    assert logged_rows(np.array([1, 11, 21, 31, 41, 51]), 20).tolist() == [2, 4]
    assert timing_points(factory.steps_of([]).with_columns(stage1_iter_ms().alias(STAGE1_ITER)), 20, 100) == ()


def test_tail_and_all_means_are_of_window_medians() -> None:
    run = factory.spec(settings={"micro_batch": 16}, ranks=2, steps=100, timing=TimingSpec(log_every=10, timing_window=10, tail_points=3))
    times = [100.0 + step for step in range(100)]
    found = measure_run(factory.attempt(run), factory.tables(*(factory.steps_of(times, rank=rank) for rank in range(2))))
    medians = [point.values["iter_ms_p50"] for point in found.timing_points]
    assert medians[:2] == [100.0, 105.5]
    assert found.stage1["timing_points"] == 10
    assert found.stage1["tail_points_used"] == 3
    tail_mean = statistics.fmean(medians[-3:])
    assert found.stage1["tail_mean_iter_p50_ms"] == pytest.approx(tail_mean)
    assert found.stage1["tail_std_iter_p50_ms"] == pytest.approx(10.0)
    assert found.stage1["all_mean_iter_p50_ms"] == pytest.approx(statistics.fmean(medians))
    assert found.stage1["tail_steps_per_sec"] == pytest.approx(1000 / tail_mean)
    assert found.stage1["tail_samples_per_sec"] == pytest.approx(32 * 1000 / tail_mean)
    assert set(found.stage1) <= set(PER_RUN_STAGE1)


def test_one_point_has_no_deviation() -> None:
    run = factory.spec(steps=20, timing=TimingSpec(log_every=10, timing_window=5))
    found = measure_run(factory.attempt(run), factory.tables(factory.steps_of([50.0] * 20)))
    assert (found.stage1["timing_points"], found.stage1["tail_points_used"]) == (2, 1)
    assert found.stage1["tail_std_iter_p50_ms"] == 0.0


def cold_run(num_steps: int, first_step: int = 0, **timing: Any) -> dict[str, Any]:
    """Seed columns of a run whose first 60 steps take ten times as long."""
    run = factory.spec(ranks=2, steps=first_step + num_steps, timing=TimingSpec(tail_points=10, **timing))
    times = [640.0] * min(60, num_steps) + [64.0] * (num_steps - 60)
    ranks = (factory.steps_of(times, rank=rank, first_step=first_step) for rank in range(2))
    return measure_run(factory.attempt(run), factory.tables(*ranks)).stage1


@pytest.mark.parametrize("first_step", [0, 60_000])
def test_the_tail_of_a_short_run_holds_no_cold_window(first_step: int) -> None:
    """300 steps logged every 50 have 7 points, where the tail may take 10: the windows of the first two hold the first step."""
    found = cold_run(301, first_step, log_every=50)
    assert (found["timing_points"], found["tail_points_used"], found["rank_spread_points"]) == (7, 3, 3)
    assert (found["tail_mean_iter_p50_ms"], found["tail_std_iter_p50_ms"]) == (64.0, 0.0)
    assert found["all_mean_iter_p50_ms"] > 64.0


def test_windows_with_the_first_step_are_left_out_of_the_tail_however_many_there_are() -> None:
    some = cold_run(121, log_every=10)
    assert (some["timing_points"], some["tail_points_used"]) == (13, 3)
    none = cold_run(100, log_every=10)
    assert (none["timing_points"], none["tail_points_used"]) == (10, 0)
    assert none["tail_mean_iter_p50_ms"] is None and none["tail_samples_per_sec"] is None


def test_no_point_gives_no_figures_and_no_flag() -> None:
    run = factory.spec(steps=20, timing=TimingSpec(log_every=50))
    found = measure_run(factory.attempt(run), factory.tables(factory.steps_of([50.0] * 20, first_step=1)))
    assert found.stage1["timing_points"] == 0
    assert found.stage1["tail_mean_iter_p50_ms"] is None
    assert found.stage1["unstable_run_flag"] is None


def test_rank_spread_is_p90_of_the_spread_at_logged_tail_steps() -> None:
    run = factory.spec(timing=TimingSpec(log_every=10, tail_points=5))
    ranks = [
        factory.steps_of([1.0] * 100, rank=rank, fwd_ms=30.0, bwd_ms=10.0, step_ms=[5.0 + rank * (step / 10) for step in range(100)])
        for rank in range(3)
    ]
    found = measure_run(factory.attempt(run), factory.tables(*ranks))
    assert found.stage1["rank_spread_points"] == 5
    assert found.stage1["rank_step_spread_p90_ms"] == pytest.approx(2 * (5 + 0.9 * 4))
    assert found.stage1["rank_iter_spread_p90_ms"] == pytest.approx(found.stage1["rank_step_spread_p90_ms"])
    assert found.stage1["rank_spread_log_source"] == "events"


def test_one_rank_has_no_spread() -> None:
    found = measure_run(factory.attempt(), factory.tables(factory.steps_of([50.0] * 40)))
    assert (found.stage1["rank_spread_points"], found.stage1["rank_iter_spread_p90_ms"]) == (0, None)
    assert found.stage1["rank_spread_log_source"] is None


def test_printed_timing_points_are_taken_as_they_are() -> None:
    printed = (TimingPoint(index=0, step=0, values={"iter_ms_p50": 41.0, "iter_ms_p90": 44.0}),)
    steps = factory.steps_of([50.0] * 20).with_columns(pl.col("step") * 10)
    found = measure_run(factory.attempt(), factory.tables(steps, source="log:seed", timing_points=printed))
    assert found.timing_points == printed
    assert found.stage1["last_iter_p50_ms"] == 41.0


def point(index: int, **values: float | None) -> TimingPoint:
    return TimingPoint(index=index, step=10 * index, values=values)


def cells(*points: TimingPoint, estimates: tuple[EtaPoint, ...] = (), global_batch: float | None = None, tail_points: int = 2) -> dict:
    run = factory.spec(timing=TimingSpec(log_every=10, timing_window=10, tail_points=tail_points))
    return stage1_cells(points, estimates, factory.steps_of([1.0] * 3), run, source="events", global_batch=global_batch)


def test_cells_of_points_that_lack_values() -> None:
    values = ({"iter_ms_p50": 10.0}, {}, {"iter_ms_p50": None, "iter_ms_p90": 30.0}, {"iter_ms_p50": 20.0})
    found = cells(*(point(index, **one) for index, one in enumerate(values)), global_batch=8.0)
    assert (found["tail_points_used"], found["tail_mean_iter_p50_ms"], found["tail_mean_iter_p90_ms"]) == (2, 20.0, 30.0)
    assert (found["all_mean_iter_p50_ms"], found["all_std_iter_p50_ms"]) == (15.0, pytest.approx(50**0.5))
    assert (found["tail_steps_per_sec"], found["tail_samples_per_sec"], found["global_batch"]) == (50.0, 400.0, 8.0)
    assert (found["last_iter_p50_ms"], found["iter_p90_over_p50"], found["last_step"]) == (20.0, None, 2)


def test_a_ratio_needs_a_median_above_nothing_and_limits_are_not_unstable() -> None:
    assert cells(point(1, iter_ms_p50=0.0, iter_ms_p90=1.0))["iter_p90_over_p50"] is None
    at_limit = {"iter_ms_p50": 10.0, "iter_ms_p90": 20.0, "step_ms_p50": 1.0, "step_ms_p90": 3.0}
    assert cells(point(1, **at_limit))["unstable_run_flag"] is False
    assert cells(point(1, **{**at_limit, "iter_ms_p90": 20.1}))["unstable_run_flag"] is True
    assert cells(point(1, **{**at_limit, "step_ms_p90": 3.1}))["unstable_run_flag"] is True
    assert cells(point(1, step_ms_p50=1.0, step_ms_p90=9.0))["unstable_run_flag"] is None


def test_the_first_and_the_last_estimate_of_the_time_to_go() -> None:
    first = EtaPoint(index=0, step=10, remain_steps=90, eta_s=90.06, mode="rank0", source="events")
    last = EtaPoint(index=1, step=60, remain_steps=40, eta_s=3661.0, mode="rank0", source="events")
    found = cells(estimates=(first, last))
    assert (found["eta_points"], found["eta_first_step"], found["eta_first_sec"], found["last_eta_remaining_steps"]) == (2, 10, 90.1, 40)
    assert found["eta_last_step"] == found["last_eta_step"] == 60 and found["last_eta_mode"] == found["eta_mode_effective"] == "rank0"
    assert found["eta_last_hms"] == found["last_eta_hms"] == format_hms(3661.0)
    assert cells()["eta_points"] == 0 and cells()["tail_steps_per_sec"] is None


def test_the_spread_between_ranks_names_the_log_it_was_read_from() -> None:
    run = factory.spec(timing=TimingSpec(log_every=1, tail_points=2))
    steps = pl.concat(
        [factory.steps_of([ms] * 4, rank=rank, fwd_ms=ms, bwd_ms=0.0, step_ms=ms) for rank, ms in enumerate((10.0, 14.0))]
    ).with_columns(stage1_iter_ms=pl.col("iter_ms"))
    found = stage1_cells((), (), steps, run, source="log", global_batch=None)
    assert (found["rank_spread_log_source"], found["rank_spread_points"], found["rank_step_spread_p90_ms"]) == ("launcher.log", 2, 4.0)


def counted(times_ms: list[float] | np.ndarray, *, span: int = 1, **changes: Any) -> CountedSteps:
    times = np.asarray(times_ms, dtype=float)
    spans = np.full(len(times), span)
    window = Window(first_step=10, last_step=9 + int(spans.sum()), n=int(spans.sum()), warmup_steps=10)
    values = {"rows": len(times), "usable": len(times), "ranks": 2, "wall_ms": times, "spans": spans, "last_steps": 9 + np.cumsum(spans)}
    return CountedSteps(**{"window": window, **values, **changes})


def test_slow_steps_are_named_longest_first() -> None:
    times = np.full(100, 50.0)
    times[[7, 20, 30, 40, 50, 60]] = [500.0, 400.0, 100.0, 90.0, 80.0, 70.0]
    found = slow_steps(counted(times))
    assert found is not None
    assert found.count == 6
    assert [(one.step, one.ms) for one in found.worst] == [(17, 500.0), (30, 400.0), (40, 100.0), (50, 90.0), (60, 80.0)]
    assert found.worst[0].over_median == pytest.approx(10)
    assert found.time_share == pytest.approx((450 + 350 + 50 + 40 + 30 + 20) / times.sum())


def test_a_long_step_that_the_next_ones_make_up_for_is_not_slow() -> None:
    """As on a GPU whose host runs ahead and waits for it at every tenth step."""
    times = np.random.default_rng(3).normal(100.0, 1.0, 300)
    times[9::10], times[::10], times[1::10] = 257.0, 20.0, 25.0
    assert abs(times.mean() / np.median(times) - 1) < 0.01
    assert slow_steps(counted(times)) is None


def test_what_is_made_up_for_in_part_counts_for_the_rest() -> None:
    times = np.full(100, 100.0)
    times[[10, 50]], times[[11, 51]] = 400.0, 40.0
    found = slow_steps(counted(times))
    assert found is not None
    assert (found.count, found.time_share) == (2, pytest.approx((2 * 300 - 2 * 60) / times.sum()))


@pytest.mark.parametrize("width", [0.01, 0.05])
def test_noise_makes_up_for_nothing(width: float) -> None:
    named = 0
    for seed in range(50):
        times = 100 * np.exp(np.random.default_rng(seed).normal(0, width, 1000))
        times[500] = 700.0
        found = slow_steps(counted(times))
        named += found is not None and found.time_share == pytest.approx(0.006, rel=0.2)
    assert named == 50


def test_wall_times_of_launching_show_nothing() -> None:
    times = np.full(100, 50.0)
    times[[7, 20, 30]] = 500.0
    assert slow_steps(counted(times), phases_p50_ms=49.0) is not None
    assert slow_steps(counted(times), phases_p50_ms=80.0) is None


def test_plain_noise_and_a_little_more_have_none() -> None:
    assert slow_steps(counted(50 * np.exp(np.random.default_rng(1).normal(0, 0.1, 2000)))) is None
    assert slow_steps(counted([50.0] * 99 + [60.0])) is None


def test_too_few_steps_and_no_window_have_none() -> None:
    assert slow_steps(counted([50.0] * 8 + [5000.0])) is None
    empty = counted([], window=None)
    assert slow_steps(empty) is None
    assert last_steps(empty, 2) is None
    assert last_steps(counted(np.zeros(20)), world_size=2) is None


def test_the_last_fifty_by_mean_and_deviation() -> None:
    times = np.concatenate([np.full(100, 900.0), np.tile([40.0, 60.0], 25)])
    found = last_steps(counted(times, samples=150 * 2 * 8.0), world_size=4)
    assert found is not None
    assert (found.n, found.mean_ms) == (50, 50.0)
    assert found.stdev_ms == pytest.approx(np.std(times[-50:], ddof=1))
    assert found.per_s == pytest.approx(4 * 8 / 0.05)


def test_work_is_samples_else_tokens_else_steps() -> None:
    times = [100.0] * 60
    assert last_steps(counted(times, tokens=60 * 2 * 1024.0), 2).per_s == pytest.approx(2 * 1024 * 10)
    assert last_steps(counted(times), 2).per_s == pytest.approx(10)


def test_rows_of_several_steps_count_as_such_and_fewer_than_fifty_are_all() -> None:
    assert last_steps(counted([100.0] * 20, span=20), 1).n == 60
    short = last_steps(counted([100.0, 200.0]), 1)
    assert (short.n, short.mean_ms) == (2, 150.0)


# The table's first step of 400 ms ends 5.4 s after launch, at 100.4 on the monotonic clock.
STEPS = factory.steps_of([400.0, 50.0, 50.0])
T = factory.STARTED_T


def facts(**changes: object) -> StartupFacts:
    spans = (("process_group", 0.5, 97.5), ("model", 1.0, 98.5), ("data", 0.25, 99.0), ("data", 0.25, 99.9))
    return StartupFacts(**{"rank": 0, "start_t": T + 2.0, "process_t": T + 1.25, "spans": spans, **changes})


def test_every_part_and_the_rest() -> None:
    split = startup_split(factory.attempt(), factory.tables(STEPS, startup=facts()))
    assert split == pytest.approx(
        {"launch": 1.25, "import": 0.75, "process_group": 0.5, "model": 1.0, "data": 0.5, "first_step": 0.4, "other": 1.0}, abs=1e-6
    )
    assert list(split) == [part for part in STARTUP_PARTS if part in split]


def test_the_parts_are_cells_of_the_run_and_add_up_to_its_start_up() -> None:
    attempt = factory.attempt()
    measure = measure_run(attempt, factory.tables(STEPS, startup=facts()))
    assert sum(measure.startup.values()) == pytest.approx(measure.startup_s)
    cells = run_cells(attempt, measure)
    assert (cells["startup_launch_sec"], cells.get("startup_compile_sec")) == (pytest.approx(1.25), None)


def test_the_rank_that_was_ready_last_is_the_one_that_is_split() -> None:
    slow = factory.steps_of([900.0, 50.0, 50.0], rank=1)
    split = startup_split(factory.attempt(), factory.tables(STEPS, slow, startup=facts(rank=1)))
    assert split["first_step"] == pytest.approx(0.9)
    assert sum(split.values()) == pytest.approx(5.9)


def test_a_compiler_inside_the_first_step_is_not_counted_as_the_step_too() -> None:
    split = startup_split(factory.attempt(), factory.tables(STEPS, startup=facts(spans=(("compile", 0.3, 100.35),))))
    assert (split["compile"], split["first_step"]) == (pytest.approx(0.3), pytest.approx(0.1))


def test_the_build_of_ops_is_a_part_and_a_cell_of_its_own() -> None:
    measure = measure_run(attempt := factory.attempt(), factory.tables(STEPS, startup=facts(spans=(("ops_build", 1.5, 99.0),))))
    assert measure.startup["ops_build"] == run_cells(attempt, measure)["startup_ops_build_sec"] == pytest.approx(1.5)


def test_without_the_age_of_the_process_launch_and_import_are_not_separated() -> None:
    split = startup_split(factory.attempt(), factory.tables(STEPS, startup=facts(process_t=None)))
    assert "launch" not in split
    assert "import" not in split
    assert split["other"] == pytest.approx(3.0)


@pytest.mark.parametrize("process_t", [T - 30.0, T + 60.0])
def test_a_wall_clock_that_was_corrected_makes_no_part_negative(process_t: float) -> None:
    split = startup_split(factory.attempt(), factory.tables(STEPS, startup=facts(process_t=process_t)))
    assert min(split.values()) >= 0
    assert sum(split.values()) == pytest.approx(5.4)
    assert split["model"] == 1.0


def test_nothing_for_a_script_without_the_probe_or_a_clock_set_back_over_the_launch() -> None:
    assert startup_split(factory.attempt(), factory.tables(STEPS, source="log:seed")) == {}
    assert startup_split(factory.attempt(started_t=T + 99.0), factory.tables(STEPS, startup=facts())) == {}
    assert startup_split(factory.attempt(outcome=None), factory.tables(STEPS, startup=facts())) == {}
    assert startup_split(factory.attempt(), factory.tables(startup=facts())) == {}, "no first step"
