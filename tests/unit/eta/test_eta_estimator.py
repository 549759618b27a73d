"""The estimator of the time to go: what holds for every run, and what each shape of run asks of it."""

from __future__ import annotations

import random
import sys
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from seatrial.eta.estimator import EtaEstimator
from seatrial.records.eta import EtaEstimate

STEP_S = 0.25


def feed(
    times_s: Sequence[float], total: int, *, pauses: dict[int, float] | None = None, every: int = 1, offset_s: float = 0.0
) -> EtaEstimator:
    """An estimator that saw every `every`th of these steps; `pauses` are named ones, by the step before whose end they were."""
    estimator = EtaEstimator(total, 10)
    now_s, paused_s = offset_s, 0.0
    for step, took_s in enumerate(times_s):
        pause_s = (pauses or {}).get(step, 0.0)
        now_s, paused_s = now_s + took_s + pause_s, paused_s + pause_s
        if step % every == 0:
            estimator.add(step, now_s, paused_s)
    return estimator


def said(estimator: EtaEstimator) -> EtaEstimate:
    found = estimator.estimate()
    assert found is not None
    return found


def noisy(count: int, share: float = 0.02, seed: int = 1) -> list[float]:
    chance = random.Random(seed)
    return [STEP_S * (1 + chance.gauss(0, share)) for _ in range(count)]


step_times = st.lists(st.floats(min_value=0.0, max_value=1e4, allow_subnormal=False), min_size=12, max_size=80)


@given(times_s=step_times, more=st.integers(min_value=0, max_value=1000), every=st.integers(min_value=1, max_value=4))
def test_never_negative_and_always_inside_its_interval(times_s: list[float], more: int, every: int) -> None:
    found = feed(times_s, len(times_s) + more, every=every).estimate()
    if found is not None:
        assert 0 <= found.low_s <= found.eta_s <= found.high_s < float("inf")
        assert found.basis_iter_ms >= 0


@given(step_s=st.floats(min_value=1e-4, max_value=100), seen=st.integers(11, 300), more=st.integers(0, 5000), every=st.integers(1, 5))
def test_exact_on_a_constant_pace(step_s: float, seen: int, more: int, every: int) -> None:
    found = feed([step_s] * seen, seen + more, every=every).estimate()
    newest = (seen - 1) - (seen - 1) % every
    if found is not None:
        assert found.eta_s == pytest.approx((seen + more - 1 - newest) * step_s, rel=1e-6, abs=1e-9)
        assert found.basis_iter_ms == pytest.approx(step_s * 1000, rel=1e-6)


@given(seed=st.integers(0, 10_000), offset_s=st.sampled_from([0.0, 1024.0, -4096.0, float(2**20)]))
def test_the_clocks_zero_does_not_matter(seed: int, offset_s: float) -> None:
    times_s = [round(value * 1024) / 1024 for value in noisy(120, 0.1, seed)]
    here, there = said(feed(times_s, 500)), said(feed(times_s, 500, offset_s=offset_s))
    assert there.eta_s == pytest.approx(here.eta_s, rel=1e-9)
    assert there.high_s == pytest.approx(here.high_s, rel=1e-6)


@given(marks=st.lists(st.tuples(st.integers(-5, 400), st.floats(0, 1e6), st.floats(0, 1e6)), max_size=60))
@settings(max_examples=200)
def test_marks_in_any_order_do_no_harm(marks: list[tuple[int, float, float]]) -> None:
    estimator = EtaEstimator(300, 10)
    for step, elapsed_s, paused_s in marks:
        estimator.add(step, elapsed_s, paused_s)
    found = estimator.estimate()
    assert found is None or 0 <= found.low_s <= found.eta_s <= found.high_s


def test_nothing_is_said_before_enough_steps() -> None:
    estimator = EtaEstimator(100, 10)
    for step in range(10):
        estimator.add(step, step * STEP_S)
    assert estimator.estimate() is None
    estimator.add(10, 10 * STEP_S)
    assert said(estimator).samples == 10


def test_one_mark_a_hundred_steps_apart_is_enough() -> None:
    estimator = EtaEstimator(1000, 10)
    estimator.add(0, 5.0)
    estimator.add(100, 30.0)
    assert said(estimator).eta_s == pytest.approx(899 * 0.25)


def test_nothing_is_left_at_the_last_step_and_beyond() -> None:
    for steps in (50, 70):
        found = said(feed([STEP_S] * steps, 50))
        assert (found.eta_s, found.low_s, found.high_s) == (0.0, 0.0, 0.0)


@pytest.mark.parametrize("warm_up", [[8 * STEP_S] * 7, [8 * STEP_S] * 40, [STEP_S * (1 + 9 * 0.9**step) for step in range(60)]])
def test_a_warm_up_is_forgotten(warm_up: list[float]) -> None:
    found = said(feed([30.0, *warm_up, *noisy(120)], 1000))
    left_s = (1000 - 121 - len(warm_up)) * STEP_S
    assert found.eta_s == pytest.approx(left_s, rel=0.02)
    assert found.low_s <= left_s <= found.high_s


@pytest.mark.parametrize("whole", [-0.2, 0.2])
def test_a_steady_drift_is_followed(whole: float) -> None:
    times_s = [value * (1 + whole * step / 1999) for step, value in enumerate(noisy(2000))]
    truth_s = sum(times_s[600:])
    found = said(feed(times_s[:600], 2000))
    flat_s = 1400 * sum(times_s[500:600]) / 100
    assert abs(found.eta_s - truth_s) < 0.3 * abs(flat_s - truth_s)


def test_a_slope_that_noise_explains_is_not_extrapolated() -> None:
    errors = [abs(said(feed(noisy(100, 0.1, seed), 1000)).eta_s / (900 * STEP_S) - 1) for seed in range(40)]
    assert sorted(errors)[35] < 0.05


@pytest.mark.parametrize("named", [True, False])
def test_the_pauses_still_to_come_are_counted(named: bool) -> None:
    times_s, pauses = noisy(1000), dict.fromkeys(range(100, 1000, 100), 20 * STEP_S)
    if not named:
        times_s = [value + pauses.get(step, 0.0) for step, value in enumerate(times_s)]
    found = said(feed(times_s[:350], 1000, pauses=pauses if named else None))
    assert found.eta_s == pytest.approx(650 * STEP_S + 6 * 20 * STEP_S, rel=0.01)
    assert found.basis_iter_ms == pytest.approx(1000 * STEP_S, rel=0.02)


def test_already_the_first_named_pause_tells_the_period() -> None:
    found = said(feed(noisy(150), 1000, pauses={100: 5.0}))
    assert found.eta_s == pytest.approx(850 * STEP_S + 8 * 5.0, rel=0.02)


def test_a_pause_that_does_not_come_again_is_forgotten() -> None:
    found = said(feed(noisy(400), 1000, pauses={3: 60.0, 5: 60.0, 7: 60.0}))
    assert found.eta_s == pytest.approx(600 * STEP_S, rel=0.02)


def test_two_kinds_of_pauses_are_told_apart() -> None:
    pauses = {step: 2.0 + (10.0 if step % 200 == 0 else 0.0) for step in range(50, 1200, 50)}
    found = said(feed(noisy(620), 1200, pauses=pauses))
    assert found.eta_s == pytest.approx(580 * STEP_S + sum(value for step, value in pauses.items() if step >= 620), rel=0.01)


def test_steps_that_are_long_at_random_come_at_their_rate() -> None:
    chance = random.Random(3)
    times_s = [value * (4 if chance.random() < 0.05 else 1) for value in noisy(3000)]
    assert said(feed(times_s[:1500], 3000)).eta_s == pytest.approx(sum(times_s[1500:]), rel=0.03)


@pytest.mark.parametrize("factor", [0.8, 1.25])
def test_a_new_level_is_found(factor: float) -> None:
    times_s = [*noisy(500), *(value * factor for value in noisy(200, seed=2))]
    assert said(feed(times_s, 1000)).eta_s == pytest.approx(300 * STEP_S * factor, rel=0.02)


def test_sparse_marks_say_the_same() -> None:
    times_s = noisy(1500)
    pauses = dict.fromkeys(range(100, 1500, 100), 4.0)
    dense, sparse = said(feed(times_s[:901], 1500, pauses=pauses)), said(feed(times_s[:901], 1500, pauses=pauses, every=20))
    assert sparse.eta_s == pytest.approx(dense.eta_s, rel=0.01)


def test_a_clock_set_back_and_a_step_told_twice_are_passed_over() -> None:
    estimator = EtaEstimator(200, 10)
    for step in range(100):
        back_s = 3600.0 if step >= 50 else 0.0
        estimator.add(step, 7200.0 + step * STEP_S - back_s)
        estimator.add(step, 7200.0 + step * STEP_S - back_s + 0.1)
    assert said(estimator).eta_s == pytest.approx(100 * STEP_S, rel=1e-6)


def test_a_counter_that_starts_again_keeps_the_pace() -> None:
    estimator = EtaEstimator(200, 10)
    for number, step in enumerate([*range(120), *range(80, 100)]):
        estimator.add(step, number * STEP_S + (50.0 if number >= 120 else 0.0))
    assert said(estimator).eta_s == pytest.approx(100 * STEP_S, rel=1e-6)


def test_memory_does_not_grow_with_the_run() -> None:
    estimator = EtaEstimator(100_000, 10)
    for step in range(60_000):
        estimator.add(step, step * STEP_S + (step // 500) * 3.0, (step // 1000) * 2.0)
    assert sum(sys.getsizeof(value) for value in vars(estimator).values()) < 20_000
    assert len(estimator._open) <= 100_000 // 64 + 1


def test_intervals_hold_about_nine_times_of_ten() -> None:
    held = []
    for seed in range(60):
        times_s = noisy(600, 0.05, seed)
        for seen in (100, 200, 400):
            found = said(feed(times_s[:seen], 600))
            held.append(found.low_s <= sum(times_s[seen:]) <= found.high_s)
    assert 0.85 <= sum(held) / len(held) <= 1.0


@pytest.mark.parametrize(("every", "after"), [(10, (0.1, 0.1, 0.1)), (10, (0.4, 0.4, 0.4, 0.4, 0.7)), (7, (0.5, 0.0, 0.0)), (25, (0.5,))])
def test_a_value_read_back_is_no_pause(every: int, after: tuple[float, ...]) -> None:
    times_s = noisy(400)
    for step in range(every, 400 - len(after), every):
        times_s[step] += STEP_S * sum(1 - share for share in after)
        for number, share in enumerate(after, start=step + 1):
            times_s[number] *= share
    for seen in range(60, 200):
        assert said(feed(times_s[:seen], 400)).eta_s == pytest.approx(sum(times_s[seen:]), rel=0.06)


@pytest.mark.parametrize("every", [2, 3, 5, 10, 16])
@pytest.mark.parametrize("launch", [0.02, 0.5, 0.8])
def test_steps_that_are_only_launched_until_one_waits(every: int, launch: float) -> None:
    times_s = [value * (every - (every - 1) * launch if step % every == 0 else launch) for step, value in enumerate(noisy(400))]
    for seen in range(120, 240):
        assert said(feed(times_s[:seen], 400)).eta_s == pytest.approx(sum(times_s[seen:]), rel=0.08)


def test_a_few_blocks_that_rise_are_no_trend() -> None:
    times_s = [value * (0.95 if step < 10 else 1.0 if step < 20 else 1.04) for step, value in enumerate(noisy(30, 0.01))]
    assert said(feed(times_s, 200)).eta_s == pytest.approx(170 * STEP_S, rel=0.08)


@pytest.mark.parametrize(("every", "steps_after"), [(1, 24), (20, 40)])
def test_a_lasting_jump_is_a_new_level_within_two_blocks(every: int, steps_after: int) -> None:
    estimator, total, jump_at, elapsed_s = EtaEstimator(120), 120, 60, 0.0
    for step in range(jump_at + steps_after + 1):
        elapsed_s += 0.05 if step < jump_at else 0.25
        if step % every == 0:
            estimator.add(step, elapsed_s)
    estimate = estimator.estimate()
    assert estimate is not None
    assert estimate.eta_s == pytest.approx((total - 1 - jump_at - steps_after) * 0.25, rel=0.05)
