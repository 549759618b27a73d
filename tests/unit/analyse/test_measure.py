"""Throughput and its window on tables whose truth is known."""

from __future__ import annotations

import math

import numpy as np
import polars as pl
import pytest

from seatrial.analyse.measure import measure_run, steps_done
from seatrial.collect.manifest import manifest_row
from seatrial.records.run_spec import TimingSpec
from tests.unit.analyse import factory


def test_two_ranks_the_slower_one_gives_the_time_and_both_the_work() -> None:
    fast, slow = (
        factory.steps_of([40.0] * 100, rank=0, samples=8, tokens=800),
        factory.steps_of([50.0] * 100, rank=1, samples=8, tokens=800),
    )
    found = measure_run(factory.attempt(factory.spec(ranks=2)), factory.tables(fast, slow))
    assert found.window is not None
    assert (found.window.first_step, found.window.last_step, found.window.n, found.window.steady) == (0, 99, 100, True)
    assert found.window_s == pytest.approx(5.0)
    assert found.steps_per_s == pytest.approx(20.0)
    assert found.samples_per_s == pytest.approx(2 * 8 * 20.0)
    assert found.tokens_per_s == pytest.approx(2 * 800 * 20.0)
    assert found.wall_p50_ms == found.wall_p90_ms == 50.0
    assert found.wall_p90_over_p50 == 1.0
    assert found.startup_s == pytest.approx(5.05)
    assert found.last_step == 99


def test_rank_0_alone_stands_for_all() -> None:
    run = factory.spec(ranks=4, rank_scope="rank0")
    found = measure_run(factory.attempt(run), factory.tables(factory.steps_of([100.0] * 50, samples=2), world_size=4))
    assert found.samples_per_s == pytest.approx(4 * 2 * 10)
    assert found.cautions == ()


def test_a_rank_without_events_is_said() -> None:
    found = measure_run(factory.attempt(factory.spec(ranks=2)), factory.tables(factory.steps_of([100.0] * 50, samples=2), world_size=2))
    assert [caution.kind for caution in found.cautions] == ["ranks_not_seen"]


def test_only_steps_that_all_ranks_have_count() -> None:
    short = factory.steps_of([50.0] * 40, rank=1, samples=1)
    found = measure_run(factory.attempt(), factory.tables(factory.steps_of([50.0] * 60, samples=1), short))
    assert found.window is not None and found.window.last_step == 39
    assert found.samples_per_s == pytest.approx(40.0)


def test_steps_with_a_pause_on_any_rank_are_left_out_of_time_work_and_count() -> None:
    times = [50.0] * 100
    times[60] = 900.0
    ranks = [factory.steps_of(times, rank=rank, samples=4) for rank in range(2)]
    found = measure_run(factory.attempt(), factory.tables(*ranks, pauses=factory.pauses_of((1, 60, "eval", 800.0))))
    assert found.window is not None
    assert (found.window.n, found.window.excluded_steps) == (99, 1)
    assert found.samples_per_s == pytest.approx(2 * 4 * 20)


def test_warm_up_does_not_count() -> None:
    times = [500.0] * 20 + [50.0] * 180
    found = measure_run(factory.attempt(), factory.tables(factory.steps_of(times, samples=1)))
    assert found.window is not None
    assert (found.window.first_step, found.window.warmup_steps, found.window.n) == (20, 20, 180)
    assert found.samples_per_s == pytest.approx(20.0)


@pytest.mark.parametrize(("window", "bounds"), [("50:", (50, 199)), (":99", (0, 99)), ("10:19", (10, 19))])
def test_a_window_in_the_plan_is_kept_to(window: str, bounds: tuple[int, int]) -> None:
    run = factory.spec(timing=TimingSpec(window=window))
    found = measure_run(factory.attempt(run), factory.tables(factory.steps_of([50.0] * 200)))
    assert found.window is not None
    assert (found.window.first_step, found.window.last_step) == bounds
    assert found.window.reason == "given by the plan"


def test_a_window_without_steps_says_so() -> None:
    run = factory.spec(timing=TimingSpec(window="500:"))
    found = measure_run(factory.attempt(run), factory.tables(factory.steps_of([50.0] * 20)))
    assert found.window is None and found.steps_per_s is None
    assert found.cautions[0].kind == "too_few_steps"
    assert "window 500: that the plan gives" in found.cautions[0].text


def test_one_step_gives_no_window() -> None:
    found = measure_run(factory.attempt(), factory.tables(factory.steps_of([50.0])))
    assert found.window is None
    assert found.duration_s == 60.0
    assert [caution.kind for caution in found.cautions] == ["too_few_steps"]


def test_steps_without_any_time_give_no_window() -> None:
    untimed = factory.steps_of([50.0] * 20).with_columns(iter_ms=pl.lit(None, pl.Float64))
    found = measure_run(factory.attempt(), factory.tables(untimed))
    assert (found.window, found.steps_per_s, found.last_step) == (None, None, 19)


def test_a_whole_run_has_its_length_only() -> None:
    found = measure_run(factory.attempt(duration_s=12.5), factory.tables(source="whole", world_size=2))
    assert (found.source, found.duration_s, found.window, found.world_size) == ("whole", 12.5, None, 2)


def test_printed_rows_count_the_steps_between_them() -> None:
    rows = factory.steps_of([50.0] * 30).with_columns(pl.col("step") * 10, span=pl.lit(10))
    rows = rows.with_columns(iter_ms=pl.when(pl.col("step") == 0).then(None).otherwise(pl.col("iter_ms")))
    run = factory.spec(workload={"samples_per_step": 4.0}, ranks=2)
    found = measure_run(factory.attempt(run), factory.tables(rows, source="log:nanogpt", world_size=2))
    assert found.window is not None and found.window.n == 290
    assert found.steps_per_s == pytest.approx(20.0)
    assert found.samples_per_s == pytest.approx(2 * 4 * 20.0)


def test_samples_that_some_steps_lack_give_no_rate() -> None:
    found = measure_run(factory.attempt(), factory.tables(factory.steps_of([50.0] * 20, samples=[4.0] * 19 + [None])))
    assert found.samples_per_s is None
    assert found.steps_per_s is not None


def test_a_clock_set_back_gives_no_startup() -> None:
    found = measure_run(factory.attempt(started_t=factory.STARTED_T + 1e6), factory.tables(factory.steps_of([50.0] * 20)))
    assert found.startup_s is None


def test_losses_are_those_of_rank_0() -> None:
    ranks = [factory.steps_of([50.0] * 16, rank=rank, loss=[5.0 - 0.1 * step * (1 - rank) for step in range(16)]) for rank in range(2)]
    found = measure_run(factory.attempt(), factory.tables(*ranks))
    assert (found.first_loss, found.last_loss, found.loss_falls) == (5.0, pytest.approx(3.5), True)


def test_a_script_of_unknown_length_gets_timing_points_too() -> None:
    run = factory.spec(steps=None, timing=TimingSpec(log_every=50, tail_points=20))
    found = measure_run(factory.attempt(run), factory.tables(factory.steps_of([50.0] * 25)))
    assert [point.step for point in found.timing_points] == list(range(0, 25, 2))
    assert found.seed["tail_points_used"] == 6


def test_a_loss_of_any_rank_that_is_no_number_is_no_fall() -> None:
    falling = [5.0 - 0.1 * step for step in range(16)]
    ranks = [factory.steps_of([50.0] * 16, rank=0, loss=falling), factory.steps_of([50.0] * 16, rank=1, loss=[*falling[:15], math.nan])]
    found = measure_run(factory.attempt(), factory.tables(*ranks))
    assert (found.last_loss, found.loss_falls) == (pytest.approx(3.5), False)


def test_a_rank_that_tells_no_loss_is_not_one_that_has_none() -> None:
    falling = [5.0 - 0.1 * step for step in range(16)]
    found = measure_run(
        factory.attempt(), factory.tables(factory.steps_of([50.0] * 16, loss=falling), factory.steps_of([50.0] * 16, rank=1))
    )
    assert found.loss_falls is True


def test_start_up_ends_with_the_slowest_ranks_first_step() -> None:
    ranks = [factory.steps_of([100.0] * 20, rank=0), factory.steps_of([9000.0] + [100.0] * 19, rank=1)]
    assert measure_run(factory.attempt(), factory.tables(*ranks)).startup_s == pytest.approx(14.0)


def test_a_rank_whose_first_step_is_lost_does_not_lengthen_the_start_up() -> None:
    ranks = [factory.steps_of([100.0] * 20, rank=0), factory.steps_of([100.0] * 20, rank=1).slice(5)]
    assert measure_run(factory.attempt(), factory.tables(*ranks)).startup_s == pytest.approx(5.1)


@pytest.mark.parametrize(("first_step", "startup_s"), [(0, 5.1), (1, 5.1), (2, None), (50, None)])
def test_start_up_of_a_log_is_known_when_its_first_line_speaks_of_the_first_step(first_step: int, startup_s: float | None) -> None:
    printed = factory.steps_of([100.0] * 20, first_step=first_step)
    found = measure_run(factory.attempt(), factory.tables(printed, source="log:nanogpt"))
    assert found.startup_s == (startup_s and pytest.approx(startup_s))
    resumed = measure_run(factory.attempt(), factory.tables(printed, source="events"))
    assert resumed.startup_s == pytest.approx(5.1)


def test_lines_that_came_in_one_chunk_tell_no_start_up() -> None:
    printed = factory.steps_of([100.0] * 20)
    chunk = printed.with_columns(m=pl.when(pl.col("step") < 5).then(pl.lit(107.0)).otherwise("m"), t=pl.lit(factory.STARTED_T + 12.0))
    assert measure_run(factory.attempt(), factory.tables(chunk, source="log:nanogpt")).startup_s is None


def test_tables_show_the_batch_that_the_rates_are_of() -> None:
    run = factory.spec(ranks=2, steps=60)
    ranks = [factory.steps_of([100.0] * 60, rank=rank, samples=8) for rank in range(2)]
    found = measure_run(factory.attempt(run), factory.tables(*ranks))
    assert found.seed["global_batch"] == 16 and isinstance(found.seed["global_batch"], int)
    assert found.seed["tail_samples_per_sec"] == pytest.approx(160.0)
    row = manifest_row(factory.attempt(run), found)
    assert row["global_batch"] == 16


def test_steps_of_unlike_size_have_no_batch() -> None:
    found = measure_run(factory.attempt(), factory.tables(factory.steps_of([100.0] * 20, samples=[8.0, 7.0] * 10)))
    assert found.seed["global_batch"] is None
    known = measure_run(factory.attempt(factory.spec(settings={"micro_batch": 4})), factory.tables(factory.steps_of([100.0] * 20)))
    assert known.seed["global_batch"] == 4


@pytest.mark.parametrize(
    ("numbers", "done"),
    [([0, 1, 2], 3), ([1, 2, 3], 3), ([10, 20, 30], 30), ([100, 110, 120], 30), ([0], 1), ([5], 1), ([0, 50, 100], 101)],
)
def test_how_many_steps_were_done(numbers: list[int], done: int) -> None:
    assert steps_done(np.array(numbers)) == done
