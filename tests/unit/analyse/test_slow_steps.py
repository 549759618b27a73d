"""Slow steps by name, and the seeds' last fifty."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from seatrial.analyse.slow_steps import last_steps, slow_steps
from seatrial.analyse.window import Counted
from seatrial.records.measure import Window


def counted(times_ms: list[float] | np.ndarray, *, span: int = 1, **changes: Any) -> Counted:
    times = np.asarray(times_ms, dtype=float)
    spans = np.full(len(times), span)
    window = Window(first_step=10, last_step=9 + int(spans.sum()), n=int(spans.sum()), warmup_steps=10)
    values = {"rows": len(times), "usable": len(times), "ranks": 2, "wall_ms": times, "spans": spans, "last_steps": 9 + np.cumsum(spans)}
    return Counted(**{"window": window, **values, **changes})


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


def test_wall_times_of_launching_say_nothing() -> None:
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


def test_steps_that_took_no_time_have_no_rate() -> None:
    assert last_steps(counted(np.zeros(20)), world_size=2) is None
