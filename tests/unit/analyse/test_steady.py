"""The warm-up detector on series whose truth is known."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as st_numpy

from seatrial.analyse.steady import LEAST_STEPS, batch_medians, find_steady, trend


def noise(count: int, level_ms: float = 50.0, width: float = 0.03, seed: int = 7) -> np.ndarray:
    return level_ms * np.exp(np.random.default_rng(seed).normal(0, width, count))


def test_a_clean_run_loses_almost_nothing() -> None:
    found = [find_steady(noise(400, seed=seed)) for seed in range(20)]
    assert all(one.steady for one in found)
    assert max(one.warmup for one in found) <= 10


@pytest.mark.parametrize("seed", range(5))
def test_a_fivefold_warm_up_of_twenty_steps_is_cut_whole(seed: int) -> None:
    times = noise(300, seed=seed)
    times[:20] *= 5
    found = find_steady(times)
    assert found.steady
    assert 20 <= found.warmup <= 30


def test_a_warm_up_that_fades_is_cut_where_it_has_faded() -> None:
    times = noise(400, width=0.01) * (1 + 2 * np.exp(-np.arange(400) / 15))
    found = find_steady(times)
    assert found.steady
    assert 40 <= found.warmup <= 90


def test_one_huge_first_step_is_cut_though_medians_hide_it() -> None:
    times = noise(200)
    times[0] = 9000.0
    assert find_steady(times).warmup >= 1


def test_drift_is_said() -> None:
    found = find_steady(noise(300) * np.linspace(1, 1.6, 300))
    assert not found.steady
    assert "rises" in found.reason or "did not settle" in found.reason


def test_slow_drift_over_the_whole_run_is_a_trend() -> None:
    found = find_steady(noise(600, width=0.05) * np.linspace(1, 1.2, 600))
    assert not found.steady
    assert "still rises" in found.reason


def test_pauses_in_a_saw_tooth_do_not_upset_it() -> None:
    times = noise(400)
    times[49::50] *= 10
    found = find_steady(times)
    assert found.steady
    assert found.warmup <= 10


def test_a_late_pause_does_not_make_it_cut_what_came_before() -> None:
    times = noise(200)
    times[90] = 5000.0
    assert find_steady(times).warmup <= 10


def test_a_heavy_tail_is_steady() -> None:
    generator = np.random.default_rng(3)
    times = 50 * (1 + 0.1 * generator.pareto(1.5, 500))
    found = find_steady(times)
    assert found.steady
    assert found.warmup <= 25


def test_twelve_steps_with_a_slow_first_one_are_enough() -> None:
    times = noise(12)
    times[0] *= 20
    found = find_steady(times)
    assert found.steady
    assert found.warmup == 1


def test_eight_steps_are_too_few_and_it_says_so() -> None:
    found = find_steady(noise(8))
    assert not found.steady
    assert found.reason == "only 7 steps are left after warm-up and 10 are needed; run more steps"


def test_constant_times_are_steady_from_the_first_step() -> None:
    found = find_steady(np.full(100, 20.0))
    assert found.steady
    assert found.warmup == 0


def test_a_level_that_changes_late_does_not_settle() -> None:
    times = noise(200)
    times[80:] *= 2
    found = find_steady(times)
    assert found.warmup >= 80
    assert found.warmup <= 100


@settings(max_examples=60, deadline=None)
@given(st_numpy.arrays(np.float64, st.integers(0, 150), elements=st.floats(0.01, 1e6)))
def test_never_more_than_half_is_cut(times: np.ndarray) -> None:
    found = find_steady(times)
    assert 0 <= found.warmup <= len(times) / 2
    assert found.steady or found.reason
    if found.steady:
        assert len(times) - found.warmup >= LEAST_STEPS


@settings(max_examples=30, deadline=None)
@given(st.sampled_from([0.25, 0.5, 2.0, 1024.0]), st.integers(0, 50))
def test_the_unit_of_time_changes_nothing(scale: float, seed: int) -> None:
    times = noise(120, seed=seed)
    times[:7] *= 4
    assert find_steady(times * scale) == find_steady(times)


def test_trend_is_relative_and_signed() -> None:
    falling = np.linspace(120, 100, 200)
    assert trend(falling) == pytest.approx(-20 / 110, rel=0.05)
    assert trend(noise(200)) == 0.0


def test_batch_medians_leave_out_a_short_last_batch() -> None:
    assert batch_medians(np.array([1.0, 9.0, 2.0, 3.0, 4.0, 5.0, 100.0]), 3).tolist() == [2.0, 4.0]
    assert batch_medians(np.array([1.0, 3.0]), 3).tolist() == [2.0]
