"""The warm-up detector on series whose truth is known."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as st_numpy

from seatrial.analyse.steady import LEAST_STEPS, batch_medians, change_point, find_steady, level_changes, ms_text, relative_shift, trend


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


def test_a_warm_up_longer_than_half_is_not_steady() -> None:
    found = find_steady(np.concatenate([noise(140, 150.0), noise(60, 50.0, seed=8)]))
    assert not found.steady
    assert found.warmup <= 100


@pytest.mark.parametrize(
    ("slow", "count", "warmup"),
    [({3: 5000.0}, 60, 4), ({7: 50_000.0}, 2000, 8), ({0: 5000.0, 3: 5000.0}, 60, 4), ({95: 50_000.0}, 2000, 96), ({3: 5000.0}, 12, 4)],
)
def test_warm_up_ends_after_the_last_slow_step_among_the_leading_ones(slow: dict[int, float], count: int, warmup: int) -> None:
    times = np.full(count, 100.0)
    times[list(slow)] = list(slow.values())
    found = find_steady(times)
    assert found.warmup == warmup
    assert times[found.warmup :].mean() == 100.0
    assert found.steady is (count - warmup >= LEAST_STEPS)


@pytest.mark.parametrize(("slow_at", "count"), [(11, 60), (50, 60), (101, 2000), (7, 13)])
def test_a_slow_step_later_on_stays_in(slow_at: int, count: int) -> None:
    times = np.full(count, 100.0)
    times[slow_at] = 5000.0
    assert find_steady(times).warmup == 0


def test_slow_steps_that_the_job_always_has_are_not_warm_up_but_a_slower_one_is() -> None:
    times = np.where(np.arange(200) % 10 == 9, 1000.0, 100.0)
    assert find_steady(times).warmup == 0
    times[5] = 50_000.0
    assert find_steady(times).warmup == 6


def test_a_slow_down_is_no_warm_up() -> None:
    found = find_steady(np.repeat([100.0, 150.0], [500, 1500]))
    assert (found.warmup, found.steady) == (0, False)
    assert found.reason == (
        "the step time rose from 100 ms to 150 ms at about step 500: look for heat, another job or other data there, "
        "or say in timing.window which steps count"
    )


def test_the_reason_names_the_step_by_its_own_number() -> None:
    times = np.concatenate([np.full(50, 100.0), np.full(150, 150.0)])
    assert "at about step 1500:" in find_steady(times, np.arange(1000, 3000, 10)).reason


@pytest.mark.parametrize("count", [30, 60, 200, 2000])
@pytest.mark.parametrize("share", [0.2, 0.25, 0.4, 0.5, 0.6, 0.7, 0.75, 0.8])
def test_a_rise_anywhere_is_seen_and_nothing_is_cut(count: int, share: float) -> None:
    times = noise(count, 100.0, 0.02)
    times[round(count * share) :] *= 2
    found = find_steady(times)
    assert (found.warmup, found.steady) == (0, False)
    assert "the step time rose from " in found.reason


@pytest.mark.parametrize("share", [0.8, 0.9])
def test_a_late_change_either_way_is_not_steady(share: float) -> None:
    times = noise(2000, 100.0, 0.02)
    at = round(2000 * share)
    times[at:] *= 2
    assert "rose from" in find_steady(times).reason
    times[:at] *= 4
    found = find_steady(times)
    assert not found.steady
    assert "the step time fell from" in found.reason and "run more steps" in found.reason


def test_a_sudden_change_and_a_drift_are_told_apart() -> None:
    assert "rose from" in find_steady(np.concatenate([noise(80), noise(120, 100.0)])).reason
    assert "still rises" in find_steady(noise(200) * np.linspace(1, 1.5, 200)).reason


def unsteady_share(make: Callable[[np.random.Generator, int], np.ndarray], count: int, seeds: int = 300) -> float:
    return sum(not find_steady(make(np.random.default_rng([count, seed]), count)).steady for seed in range(seeds)) / seeds


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


def test_times_are_told_in_plain_figures() -> None:
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
    assert not level_changes(np.array([100.0] * 4 + [150.0] * 5)), "of fewer than ten steps nothing is said"
    assert not level_changes(np.array([100.0] * 15 + [110.0] * 15))
