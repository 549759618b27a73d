"""The seeds' per-run columns by their rules."""

from __future__ import annotations

import statistics

import polars as pl
import pytest

from seatrial.analyse.measure import measure_run
from seatrial.analyse.seed_metrics import seed_cells
from seatrial.records.columns import PER_RUN_SEED
from seatrial.records.eta import EtaPoint
from seatrial.records.measure import TimingPoint
from seatrial.records.run_spec import TimingSpec
from seatrial.units import format_hms
from tests.unit.analyse import factory


def test_tail_and_all_means_are_of_window_medians() -> None:
    run = factory.spec(settings={"micro_batch": 16}, ranks=2, steps=100, timing=TimingSpec(log_every=10, timing_window=10, tail_points=3))
    times = [100.0 + step for step in range(100)]
    found = measure_run(factory.attempt(run), factory.tables(*(factory.steps_of(times, rank=rank) for rank in range(2))))
    medians = [point.values["iter_ms_p50"] for point in found.timing_points]
    assert medians[:2] == [100.0, 105.5]
    assert found.seed["timing_points"] == 10
    assert found.seed["tail_points_used"] == 3
    tail_mean = statistics.fmean(medians[-3:])
    assert found.seed["tail_mean_iter_p50_ms"] == pytest.approx(tail_mean)
    assert found.seed["tail_std_iter_p50_ms"] == pytest.approx(10.0)
    assert found.seed["all_mean_iter_p50_ms"] == pytest.approx(statistics.fmean(medians))
    assert found.seed["tail_steps_per_sec"] == pytest.approx(1000 / tail_mean)
    assert found.seed["tail_samples_per_sec"] == pytest.approx(32 * 1000 / tail_mean)
    assert set(found.seed) <= set(PER_RUN_SEED)


def test_one_point_has_no_deviation() -> None:
    run = factory.spec(steps=20, timing=TimingSpec(log_every=50))
    found = measure_run(factory.attempt(run), factory.tables(factory.steps_of([50.0] * 20)))
    assert found.seed["timing_points"] == 1
    assert found.seed["tail_std_iter_p50_ms"] == 0.0


def test_no_point_gives_no_figures_and_no_flag() -> None:
    run = factory.spec(steps=20, timing=TimingSpec(log_every=50))
    found = measure_run(factory.attempt(run), factory.tables(factory.steps_of([50.0] * 20, first_step=1)))
    assert found.seed["timing_points"] == 0
    assert found.seed["tail_mean_iter_p50_ms"] is None
    assert found.seed["unstable_run_flag"] is None


@pytest.mark.parametrize(
    ("slow_ms", "step_ms", "unstable"), [(100.0, 5.0, False), (130.0, 5.0, True), (60.0, 16.0, True), (60.0, 14.0, False)]
)
def test_unstable_by_iter_above_two_or_step_above_three(slow_ms: float, step_ms: float, unstable: bool) -> None:
    run = factory.spec(timing=TimingSpec(log_every=10, timing_window=100))
    fwd = [slow_ms - step_ms if step % 5 == 0 else 45.0 for step in range(101)]
    step = [step_ms if step % 5 == 0 else 5.0 for step in range(101)]
    found = measure_run(factory.attempt(run), factory.tables(factory.steps_of([1.0] * 101, fwd_ms=fwd, bwd_ms=0.0, step_ms=step)))
    assert found.seed["unstable_run_flag"] is unstable


def test_rank_spread_is_p90_of_the_spread_at_logged_tail_steps() -> None:
    run = factory.spec(timing=TimingSpec(log_every=10, tail_points=5))
    ranks = [
        factory.steps_of([1.0] * 100, rank=rank, fwd_ms=30.0, bwd_ms=10.0, step_ms=[5.0 + rank * (step / 10) for step in range(100)])
        for rank in range(3)
    ]
    found = measure_run(factory.attempt(run), factory.tables(*ranks))
    assert found.seed["rank_spread_points"] == 5
    assert found.seed["rank_step_spread_p90_ms"] == pytest.approx(2 * (5 + 0.9 * 4))
    assert found.seed["rank_iter_spread_p90_ms"] == pytest.approx(found.seed["rank_step_spread_p90_ms"])
    assert found.seed["rank_spread_log_source"] == "events"


def test_one_rank_has_no_spread() -> None:
    found = measure_run(factory.attempt(), factory.tables(factory.steps_of([50.0] * 40)))
    assert (found.seed["rank_spread_points"], found.seed["rank_iter_spread_p90_ms"]) == (0, None)
    assert found.seed["rank_spread_log_source"] is None


def test_eta_is_the_window_mean_times_the_steps_to_go() -> None:
    run = factory.spec(steps=101, timing=TimingSpec(log_every=10))
    found = measure_run(factory.attempt(run), factory.tables(factory.steps_of([500.0] * 51)))
    assert found.seed["eta_points"] == 5
    assert (found.seed["eta_first_step"], found.seed["eta_first_sec"], found.seed["eta_first_hms"]) == (10, 45.0, "00:00:45")
    assert (found.seed["last_eta_step"], found.seed["last_eta_remaining_steps"], found.seed["last_eta_sec"]) == (50, 50, 25.0)


def test_printed_timing_points_are_taken_as_they_are() -> None:
    from seatrial.records.measure import TimingPoint

    printed = (TimingPoint(index=0, step=0, values={"iter_ms_p50": 41.0, "iter_ms_p90": 44.0}),)
    steps = factory.steps_of([50.0] * 20).with_columns(pl.col("step") * 10)
    found = measure_run(factory.attempt(), factory.tables(steps, source="log:seed", timing_points=printed))
    assert found.timing_points == printed
    assert found.seed["last_iter_p50_ms"] == 41.0


def point(index: int, **values: float | None) -> TimingPoint:
    return TimingPoint(index=index, step=10 * index, values=values)


def cells(*points: TimingPoint, estimates: tuple[EtaPoint, ...] = (), global_batch: float | None = None, tail_points: int = 2) -> dict:
    run = factory.spec(timing=TimingSpec(log_every=10, tail_points=tail_points))
    return seed_cells(points, estimates, factory.steps_of([1.0] * 3), run, source="events", global_batch=global_batch)


def test_cells_of_points_that_lack_values() -> None:
    found = cells(point(1, iter_ms_p50=10.0), point(2, iter_ms_p50=None, iter_ms_p90=30.0), point(3, iter_ms_p50=20.0), global_batch=8.0)
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
        [factory.steps_of([ms] * 3, rank=rank, fwd_ms=ms, bwd_ms=0.0, step_ms=ms) for rank, ms in enumerate((10.0, 14.0))]
    ).with_columns(seed_iter_ms=pl.col("iter_ms"))
    found = seed_cells((), (), steps, run, source="log", global_batch=None)
    assert (found["rank_spread_log_source"], found["rank_spread_points"], found["rank_step_spread_p90_ms"]) == ("launcher.log", 2, 4.0)
