"""Which steps count: warm-up and steady state, the window, the grid of ranks and steps, clock jumps."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as st_numpy

from seatrial.analyse.steady_state import (
    MIN_STEPS,
    ClockJump,
    CountedSteps,
    any_grid,
    batch_medians,
    change_point,
    count_steps,
    find_clock_jump,
    find_grid,
    find_steady_state,
    is_among,
    level_changes,
    ms_text,
    relative_shift,
    trend,
)
from seatrial.collect.event_steps import STEP_SCHEMA
from tests.unit.analyse import factory
from tests.unit.analyse.factory import golden

SENTENCES = golden("steady_state")


def noise(count: int, level_ms: float = 50.0, width: float = 0.03, seed: int = 7) -> np.ndarray:
    return level_ms * np.exp(np.random.default_rng(seed).normal(0, width, count))


@pytest.mark.parametrize("seed", range(5))
def test_a_fivefold_warm_up_of_twenty_steps_is_cut_whole(seed: int) -> None:
    times = noise(300, seed=seed)
    times[:20] *= 5
    found = find_steady_state(times)
    assert found.steady
    assert 20 <= found.warmup <= 30


def test_a_warm_up_that_fades_is_cut_where_it_has_faded() -> None:
    times = noise(400, width=0.01) * (1 + 2 * np.exp(-np.arange(400) / 15))
    found = find_steady_state(times)
    assert found.steady
    assert 40 <= found.warmup <= 90


def test_pauses_in_a_saw_tooth_do_not_upset_it() -> None:
    times = noise(400)
    times[49::50] *= 10
    found = find_steady_state(times)
    assert found.steady
    assert found.warmup <= 10


def test_a_heavy_tail_is_steady() -> None:
    generator = np.random.default_rng(3)
    times = 50 * (1 + 0.1 * generator.pareto(1.5, 500))
    found = find_steady_state(times)
    assert found.steady
    assert found.warmup <= 25


def test_eight_steps_are_too_few_to_be_steady() -> None:
    found = find_steady_state(noise(8))
    assert not found.steady
    assert found.reason in SENTENCES


def test_a_warm_up_longer_than_half_is_not_steady() -> None:
    found = find_steady_state(np.concatenate([noise(140, 150.0), noise(60, 50.0, seed=8)]))
    assert not found.steady
    assert found.warmup <= 100


@pytest.mark.parametrize(
    ("slow", "count", "warmup"),
    [({3: 5000.0}, 60, 4), ({7: 50_000.0}, 2000, 8), ({0: 5000.0, 3: 5000.0}, 60, 4), ({95: 50_000.0}, 2000, 96), ({3: 5000.0}, 12, 4)],
)
def test_warm_up_ends_after_the_last_slow_step_among_the_leading_ones(slow: dict[int, float], count: int, warmup: int) -> None:
    times = np.full(count, 100.0)
    times[list(slow)] = list(slow.values())
    found = find_steady_state(times)
    assert found.warmup == warmup
    assert times[found.warmup :].mean() == 100.0
    assert found.steady is (count - warmup >= MIN_STEPS)


@pytest.mark.parametrize(("slow_at", "count"), [(11, 60), (50, 60), (101, 2000), (7, 13)])
def test_a_slow_step_later_on_stays_in(slow_at: int, count: int) -> None:
    times = np.full(count, 100.0)
    times[slow_at] = 5000.0
    assert find_steady_state(times).warmup == 0


def test_slow_steps_that_the_job_always_has_are_not_warm_up_but_a_slower_one_is() -> None:
    times = np.where(np.arange(200) % 10 == 9, 1000.0, 100.0)
    assert find_steady_state(times).warmup == 0
    times[5] = 50_000.0
    assert find_steady_state(times).warmup == 6


def test_the_reason_names_the_step_by_its_own_number() -> None:
    times = np.concatenate([np.full(50, 100.0), np.full(150, 150.0)])
    assert find_steady_state(times, np.arange(1000, 3000, 10)).reason in SENTENCES


@pytest.mark.parametrize("count", [30, 60, 200, 2000])
@pytest.mark.parametrize("share", [0.2, 0.25, 0.4, 0.5, 0.6, 0.7, 0.75, 0.8])
def test_a_rise_anywhere_is_seen_and_nothing_is_cut(count: int, share: float) -> None:
    times = noise(count, 100.0, 0.02)
    times[round(count * share) :] *= 2
    found = find_steady_state(times)
    assert (found.warmup, found.steady) == (0, False)
    assert "the step time rose from " in found.reason


@pytest.mark.parametrize("share", [0.8, 0.9])
def test_a_late_change_either_way_is_not_steady(share: float) -> None:
    times = noise(2000, 100.0, 0.02)
    at = round(2000 * share)
    times[at:] *= 2
    assert "rose from" in find_steady_state(times).reason
    times[:at] *= 4
    found = find_steady_state(times)
    assert not found.steady and "the step time fell from" in found.reason


def test_a_sudden_change_and_a_drift_are_distinguished() -> None:
    assert find_steady_state(np.concatenate([noise(80), noise(120, 100.0)])).reason in SENTENCES
    assert find_steady_state(noise(200) * np.linspace(1, 1.5, 200)).reason in SENTENCES
    assert find_steady_state(noise(200) * np.linspace(1.5, 1, 200)).reason in SENTENCES
    assert find_steady_state(np.linspace(300, 100, 40)).reason in SENTENCES


def unsteady_share(make: Callable[[np.random.Generator, int], np.ndarray], count: int, seeds: int = 300) -> float:
    return sum(not find_steady_state(make(np.random.default_rng([count, seed]), count)).steady for seed in range(seeds)) / seeds


@pytest.mark.parametrize("count", [30, 60, 200, 2000])
@pytest.mark.parametrize("width", [0.05, 0.2])
def test_plain_noise_is_called_unsteady_in_fewer_than_two_of_a_hundred(width: float, count: int) -> None:
    assert unsteady_share(lambda generator, n: 100 * np.exp(generator.normal(0, width, n)), count) < 0.02


def late_share(make: Callable[[np.random.Generator, int], np.ndarray], count: int, seeds: int = 300) -> float:
    return sum(level_changes(make(np.random.default_rng([count, seed]), count)) for seed in range(seeds)) / seeds


SHAPES: dict[str, Callable[[np.random.Generator, int], np.ndarray]] = {
    "bimodal": lambda generator, n: generator.choice([100.0, 200.0], n) * np.exp(generator.normal(0, 0.01, n)),
    "alternating": lambda generator, n: np.resize([100.0, 200.0], n) * np.exp(generator.normal(0, 0.02, n)),
    "every tenth slow": lambda generator, n: np.where(np.arange(n) % 10 == generator.integers(10), 1000.0, 100.0),
    "every third slow": lambda generator, n: np.where(np.arange(n) % 3 == generator.integers(3), 1000.0, 100.0),
    "heavy tail": lambda generator, n: 50 * (1 + 0.1 * generator.pareto(1.5, n)),
    "wide": lambda generator, n: 100 * np.exp(generator.normal(0, 0.5, n)),
}


@pytest.mark.parametrize("count", [30, 60, 200, 2000])
@pytest.mark.parametrize("shape", SHAPES)
def test_odd_shapes_that_do_not_change_are_no_change_of_level(shape: str, count: int) -> None:
    assert late_share(SHAPES[shape], count) < 0.02


@pytest.mark.parametrize("count", [60, 200, 2000])
@pytest.mark.parametrize("shape", ["alternating", "every tenth slow", "every third slow", "heavy tail"])
def test_odd_shapes_are_steady(shape: str, count: int) -> None:
    assert unsteady_share(SHAPES[shape], count, seeds=100) < 0.02


@settings(max_examples=60, deadline=None)
@given(st_numpy.arrays(np.float64, st.integers(0, 150), elements=st.floats(0.01, 1e6)))
def test_never_more_than_half_is_cut(times: np.ndarray) -> None:
    found = find_steady_state(times)
    assert 0 <= found.warmup <= len(times) / 2
    assert found.steady or found.reason
    if found.steady:
        assert len(times) - found.warmup >= MIN_STEPS


@settings(max_examples=30, deadline=None)
@given(st.sampled_from([0.25, 0.5, 2.0, 1024.0]), st.integers(0, 50))
def test_the_unit_of_time_changes_nothing(scale: float, seed: int) -> None:
    times = noise(120, seed=seed)
    times[:7] *= 4
    assert find_steady_state(times * scale) == find_steady_state(times)


def test_trend_is_relative_and_signed() -> None:
    falling = np.linspace(120, 100, 200)
    assert trend(falling) == pytest.approx(-20 / 110, rel=0.05)
    assert trend(noise(200)) == 0.0


def test_batch_medians_leave_out_a_short_last_batch() -> None:
    assert batch_medians(np.array([1.0, 9.0, 2.0, 3.0, 4.0, 5.0, 100.0]), 3).tolist() == [2.0, 4.0]
    assert batch_medians(np.array([1.0, 3.0]), 3).tolist() == [2.0]


def test_times_are_reported_in_plain_figures() -> None:
    assert [ms_text(value) for value in (0.41251, 99.612, 150.0, 12_345.6)] == ["0.4125 ms", "99.61 ms", "150 ms", "12346 ms"]


def test_the_place_of_a_change_is_where_it_is() -> None:
    assert change_point(np.array([1.0] * 7 + [2.0] * 30)) == 7
    assert change_point(np.array([2.0] * 30 + [1.0] * 4)) == 30


def test_a_shift_is_relative_signed_and_beyond_chance() -> None:
    assert relative_shift(np.full(10, 80.0), np.full(40, 100.0)) == pytest.approx(-0.2)
    assert relative_shift(np.full(10, 100.0), np.full(40, 100.0)) == 0.0
    assert relative_shift(np.array([50.0, 200.0]), np.array([100.0, 100.0, 300.0, 20.0, 90.0])) == 0.0


def test_few_steps_and_small_differences_are_no_change_of_level() -> None:
    assert level_changes(np.array([100.0] * 15 + [150.0] * 15))
    assert not level_changes(np.array([100.0] * 4 + [150.0] * 5)), "too few steps"
    assert not level_changes(np.array([100.0] * 15 + [110.0] * 15))


def printed(count: int, every: int, *, first: int = 0, iter_ms: float = 100.0) -> pl.DataFrame:
    """Lines at every so many steps; the first has nothing before it to be timed from."""
    rows = factory.steps_of([iter_ms] * count).with_columns(step=pl.col("step") * every + first)
    is_first = pl.col("step") == first
    return rows.with_columns(
        span=pl.when(is_first).then(1).otherwise(every).cast(pl.Int64), iter_ms=pl.when(is_first).then(None).otherwise(pl.col("iter_ms"))
    )


def counted(steps: pl.DataFrame, window: str = "auto", paused: tuple[int, ...] = ()) -> CountedSteps:
    return count_steps(steps, pl.Series("step", paused, dtype=pl.Int64), window)


def figures(found: CountedSteps) -> tuple[int, int, int, int, int]:
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


def test_steps_before_the_window_count_once_though_two_rows_cover_them() -> None:
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


def test_rows_that_reach_out_of_the_plans_window_do_not_count() -> None:
    assert figures(counted(printed(20, 10), "15:100"))[:3] == (21, 100, 80)
    assert figures(counted(printed(20, 10), "11:109"))[:3] == (11, 100, 90)


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


def test_steps_before_the_window_are_those_that_the_first_rank_reports() -> None:
    """Rank 0 lost the line of step 2, which rank 1 has."""
    first = factory.steps_of([100.0] * 40).filter(pl.col("step") != 2)
    assert figures(counted(pl.concat([first, factory.steps_of([100.0] * 40, rank=1)]), "5:39"))[3] == 4


# (rank, step) of every row, sorted.
ODD_ROWS = {
    "no rows": [],
    "a rank lacks its last step": [(0, 0), (0, 1), (1, 0)],
    "a rank lacks its first step": [(0, 0), (0, 1), (1, 1), (2, 0), (2, 1)],
    "as many steps but others": [(0, 0), (0, 1), (1, 0), (1, 2)],
    "two short ranks look like one": [(0, 0), (0, 1), (1, 0), (2, 1)],
    "a step twice": [(0, 0), (0, 0), (1, 0), (1, 0)],
}
CLEAN_ROWS = {
    "one row": [(3, 7)],
    "one rank": [(0, 0), (0, 1), (0, 5)],
    "several ranks": [(rank, step) for rank in (0, 2, 3) for step in (4, 5, 9, 10)],
}


def columns(rows: list[tuple[int, int]]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rank, step = np.array(rows, dtype=np.int64).reshape(-1, 2).T
    return rank, step, np.random.default_rng(1).uniform(0, 9, len(rows))


@pytest.mark.parametrize("name", ODD_ROWS)
def test_odd_rows_are_no_full_grid(name: str) -> None:
    rank, step, _ = columns(ODD_ROWS[name])
    assert not find_grid(rank, step).is_full


@pytest.mark.parametrize("name", CLEAN_ROWS)
def test_clean_rows_are_one(name: str) -> None:
    rank, step, _ = columns(CLEAN_ROWS[name])
    assert find_grid(rank, step).is_full


@given(st.sets(st.tuples(st.integers(0, 3), st.integers(0, 4))))
def test_both_ways_agree(rows: set[tuple[int, int]]) -> None:
    rank, step, times = columns(sorted(rows))
    found, known = find_grid(rank, step), any_grid(rank, step)
    for name in (field.name for field in fields(known) if field.name != "is_full"):
        assert getattr(found, name).tolist() == getattr(known, name).tolist(), name
    assert found.longest(times).tolist() == known.longest(times).tolist()


@settings(deadline=None)
@given(numbers=st.sets(st.integers(0, 30)), some=st.lists(st.integers(-3, 33), max_size=8))
def test_which_numbers_are_among_some(numbers: set[int], some: list[int]) -> None:
    ordered, others = np.array(sorted(numbers), dtype=np.int64), np.array(some, dtype=np.int64)
    assert is_among(ordered, others).tolist() == np.isin(ordered, others).tolist()


def steps(offsets: list[float | None], rank: int = 0) -> pl.DataFrame:
    """One step a second, the wall clock ahead of the monotonic one by each offset."""
    rows = [
        {"rank": rank, "step": at, "m": 100.0 + at, "t": None if offset is None else 1e9 + at + offset} for at, offset in enumerate(offsets)
    ]
    return pl.DataFrame(rows, schema=STEP_SCHEMA)


@pytest.mark.parametrize("offsets", [[0.0] * 5, [0.0, 0.5, -0.5, 1.0], [None, 0.0, None, 0.1], [], [0.0], [None, None]])
def test_small_corrections_are_no_jump(offsets: list[float | None]) -> None:
    assert find_clock_jump(steps(offsets)) is None


@pytest.mark.parametrize("jump_s", [-3600.0, 366 * 86400.0, 2.5])
def test_the_largest_jump_is_reported(jump_s: float) -> None:
    found = find_clock_jump(steps([0.0, 0.0, jump_s, jump_s]))
    assert found == ClockJump(step=2, jump_s=pytest.approx(jump_s))


def test_clocks_of_two_hosts_may_differ() -> None:
    assert find_clock_jump(pl.concat([steps([0.0, 0.0]), steps([500.0, 500.0], rank=1)])) is None
