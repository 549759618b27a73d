"""How long a run will still take: estimates on simulated and recorded runs, their parts, and how far they were off."""

from __future__ import annotations

import csv
import pickle
import random
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from seatrial.records.eta import EtaEstimate, EtaEstimator, EtaPoint, measure_eta_quality, points_of_mode
from seatrial.records.eta_model import (
    CATCH_UP_STEPS,
    LARGEST_CHANGE,
    LONG_STEPS,
    NOTHING,
    Block,
    Pace,
    Pauses,
    new_pace,
    shrink_slope,
    split_few_marks,
    split_marks,
)

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


def estimated(estimator: EtaEstimator) -> EtaEstimate:
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
    here, there = estimated(feed(times_s, 500)), estimated(feed(times_s, 500, offset_s=offset_s))
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


def test_no_estimate_before_enough_steps() -> None:
    estimator = EtaEstimator(100, 10)
    for step in range(10):
        estimator.add(step, step * STEP_S)
    assert estimator.estimate() is None
    estimator.add(10, 10 * STEP_S)
    assert estimated(estimator).samples == 10


def test_one_mark_a_hundred_steps_apart_is_enough() -> None:
    estimator = EtaEstimator(1000, 10)
    estimator.add(0, 5.0)
    estimator.add(100, 30.0)
    assert estimated(estimator).eta_s == pytest.approx(899 * 0.25)


def test_nothing_is_left_at_the_last_step_and_beyond() -> None:
    for steps in (50, 70):
        found = estimated(feed([STEP_S] * steps, 50))
        assert (found.eta_s, found.low_s, found.high_s) == (0.0, 0.0, 0.0)


@pytest.mark.parametrize("warm_up", [[8 * STEP_S] * 7, [8 * STEP_S] * 40, [STEP_S * (1 + 9 * 0.9**step) for step in range(60)]])
def test_a_warm_up_is_forgotten(warm_up: list[float]) -> None:
    found = estimated(feed([30.0, *warm_up, *noisy(120)], 1000))
    left_s = (1000 - 121 - len(warm_up)) * STEP_S
    assert found.eta_s == pytest.approx(left_s, rel=0.02)
    assert found.low_s <= left_s <= found.high_s


@pytest.mark.parametrize("whole", [-0.2, 0.2])
def test_a_steady_drift_is_followed(whole: float) -> None:
    times_s = [value * (1 + whole * step / 1999) for step, value in enumerate(noisy(2000))]
    truth_s = sum(times_s[600:])
    found = estimated(feed(times_s[:600], 2000))
    flat_s = 1400 * sum(times_s[500:600]) / 100
    assert abs(found.eta_s - truth_s) < 0.3 * abs(flat_s - truth_s)


def test_a_slope_that_noise_explains_is_not_extrapolated() -> None:
    errors = [abs(estimated(feed(noisy(100, 0.1, seed), 1000)).eta_s / (900 * STEP_S) - 1) for seed in range(40)]
    assert sorted(errors)[35] < 0.05


@pytest.mark.parametrize("named", [True, False])
def test_the_pauses_still_to_come_are_counted(named: bool) -> None:
    times_s, pauses = noisy(1000), dict.fromkeys(range(100, 1000, 100), 20 * STEP_S)
    if not named:
        times_s = [value + pauses.get(step, 0.0) for step, value in enumerate(times_s)]
    found = estimated(feed(times_s[:350], 1000, pauses=pauses if named else None))
    assert found.eta_s == pytest.approx(650 * STEP_S + 6 * 20 * STEP_S, rel=0.01)
    assert found.basis_iter_ms == pytest.approx(1000 * STEP_S, rel=0.02)


def test_already_the_first_named_pause_shows_the_period() -> None:
    found = estimated(feed(noisy(150), 1000, pauses={100: 5.0}))
    assert found.eta_s == pytest.approx(850 * STEP_S + 8 * 5.0, rel=0.02)


def test_a_pause_that_does_not_come_again_is_forgotten() -> None:
    found = estimated(feed(noisy(400), 1000, pauses={3: 60.0, 5: 60.0, 7: 60.0}))
    assert found.eta_s == pytest.approx(600 * STEP_S, rel=0.02)


def test_two_kinds_of_pauses_are_distinguished() -> None:
    pauses = {step: 2.0 + (10.0 if step % 200 == 0 else 0.0) for step in range(50, 1200, 50)}
    found = estimated(feed(noisy(620), 1200, pauses=pauses))
    assert found.eta_s == pytest.approx(580 * STEP_S + sum(value for step, value in pauses.items() if step >= 620), rel=0.01)


def test_steps_that_are_long_at_random_come_at_their_rate() -> None:
    chance = random.Random(3)
    times_s = [value * (4 if chance.random() < 0.05 else 1) for value in noisy(3000)]
    assert estimated(feed(times_s[:1500], 3000)).eta_s == pytest.approx(sum(times_s[1500:]), rel=0.03)


@pytest.mark.parametrize("factor", [0.8, 1.25])
def test_a_new_level_is_found(factor: float) -> None:
    times_s = [*noisy(500), *(value * factor for value in noisy(200, seed=2))]
    assert estimated(feed(times_s, 1000)).eta_s == pytest.approx(300 * STEP_S * factor, rel=0.02)


def test_sparse_marks_give_the_same() -> None:
    times_s = noisy(1500)
    pauses = dict.fromkeys(range(100, 1500, 100), 4.0)
    dense, sparse = estimated(feed(times_s[:901], 1500, pauses=pauses)), estimated(feed(times_s[:901], 1500, pauses=pauses, every=20))
    assert sparse.eta_s == pytest.approx(dense.eta_s, rel=0.01)


def test_a_clock_set_back_and_a_repeated_step_are_ignored() -> None:
    estimator = EtaEstimator(200, 10)
    for step in range(100):
        back_s = 3600.0 if step >= 50 else 0.0
        estimator.add(step, 7200.0 + step * STEP_S - back_s)
        estimator.add(step, 7200.0 + step * STEP_S - back_s + 0.1)
    assert estimated(estimator).eta_s == pytest.approx(100 * STEP_S, rel=1e-6)


def test_a_counter_that_starts_again_keeps_the_pace() -> None:
    estimator = EtaEstimator(200, 10)
    for number, step in enumerate([*range(120), *range(80, 100)]):
        estimator.add(step, number * STEP_S + (50.0 if number >= 120 else 0.0))
    assert estimated(estimator).eta_s == pytest.approx(100 * STEP_S, rel=1e-6)


def test_memory_does_not_grow_with_the_run() -> None:
    estimator = EtaEstimator(100_000, 10)
    for step in range(60_000):
        estimator.add(step, step * STEP_S + (step // 500) * 3.0, (step // 1000) * 2.0)
    assert len(pickle.dumps(estimator)) < 20_000


def test_intervals_hold_about_nine_times_of_ten() -> None:
    held = []
    for seed in range(60):
        times_s = noisy(600, 0.05, seed)
        for seen in (100, 200, 400):
            found = estimated(feed(times_s[:seen], 600))
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
        assert estimated(feed(times_s[:seen], 400)).eta_s == pytest.approx(sum(times_s[seen:]), rel=0.06)


@pytest.mark.parametrize("every", [2, 3, 5, 10, 16])
@pytest.mark.parametrize("launch", [0.02, 0.5, 0.8])
def test_steps_that_are_only_launched_until_one_waits(every: int, launch: float) -> None:
    times_s = [value * (every - (every - 1) * launch if step % every == 0 else launch) for step, value in enumerate(noisy(400))]
    for seen in range(120, 240):
        assert estimated(feed(times_s[:seen], 400)).eta_s == pytest.approx(sum(times_s[seen:]), rel=0.08)


def test_a_few_blocks_that_rise_are_no_trend() -> None:
    times_s = [value * (0.95 if step < 10 else 1.0 if step < 20 else 1.04) for step, value in enumerate(noisy(30, 0.01))]
    assert estimated(feed(times_s, 200)).eta_s == pytest.approx(170 * STEP_S, rel=0.08)


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


MARK_S = 0.2


def ones(*shares: float) -> list[tuple[int, float]]:
    """Marks of one step each, as shares of a usual one."""
    return [(1, MARK_S * share) for share in shares]


def test_long_steps_leave_the_block_with_their_excess() -> None:
    block, long, held = split_marks(ones(1, 1, 1, 11, 1, 1, 1, 1, 1, 1), 50)
    assert block is not None
    assert (block.steps, block.mean_s, held) == (9, pytest.approx(MARK_S), 0)
    assert [(one.place, one.at, one.excess_s) for one in long] == [(3, 54, pytest.approx(10 * MARK_S))]


def test_a_step_that_is_little_longer_stays() -> None:
    block, long, _ = split_marks(ones(*[1] * 5, LONG_STEPS + 0.9, *[1] * 14), 50)
    assert block is not None
    assert (block.steps, long) == (20, [])


@pytest.mark.parametrize("after", [(0.1, 0.1, 0.1), (0.5,) * 5, (1, 0.1, 0.1, 0.3), (0.2, 0.2)])
def test_a_long_step_that_the_next_ones_compensate_for_stays(after: tuple[float, ...]) -> None:
    shares = (*[1] * 9, 3.7, *after, *[1] * 9)
    block, long, held = split_marks(ones(*shares), 50)
    assert block is not None
    assert (block.steps, long, held) == (len(shares), [], 0)
    assert block.mean_s == pytest.approx(MARK_S * sum(shares) / len(shares))
    assert after != (0.1, 0.1, 0.1) or block.variance == pytest.approx(0.0, abs=1e-12), "it does not count as noise"


def test_steps_too_far_behind_compensate_for_nothing() -> None:
    _, long, _ = split_marks(ones(*[1] * 5, 3.7, *[1] * CATCH_UP_STEPS, 0.1, 0.1, 0.1, 1), 50)
    assert [one.place for one in long] == [5]


@pytest.mark.parametrize(
    ("last", "held"),
    [((3.7,), 1), ((3.7, 0.1, 0.1), 3), ((3.7, 0.1, 0.1, 0.1), 0), ((3.7, *[1.0] * 8), 0), ((CATCH_UP_STEPS + 2,), 0)],
)
def test_a_long_step_at_the_end_waits_for_the_next_ones(last: tuple[float, ...], held: int) -> None:
    found = split_marks(ones(*[1] * 12, *last), 50)
    assert found.held == held
    assert found.block is not None
    assert found.block.steps + len(found.long) + held == 12 + len(last)


def test_a_mark_of_many_steps_waits_for_none() -> None:
    found = split_marks([(25, 5.0), (25, 5.0), (25, 5.0), (25, 6.4)], 50)
    assert (found.held, [one.spacing for one in found.long]) == (0, [25])


def test_steps_that_fill_the_queue_at_the_start_leave_the_block() -> None:
    block, long, _ = split_marks(ones(0.5, 0.4, 0.7, *[1] * 7), 0)
    assert block is not None
    assert (block.steps, block.mean_s, long) == (7, pytest.approx(MARK_S), [])
    later, _, _ = split_marks(ones(0.5, 0.4, 0.7, *[1] * 7), 50)
    assert later is not None
    assert later.steps == 10


def test_few_marks_are_held_against_what_is_known() -> None:
    assert split_marks(ones(3), 50).held == 0
    assert split_few_marks(ones(3), 50, MARK_S) == (None, [], 1)
    assert split_few_marks(ones(1, 3, 0.3, 0.3, 0.3), 50, MARK_S) == (None, [], 0)
    assert [one.at for one in split_few_marks(ones(1, 12, 1), 50, MARK_S).long] == [52]


LOOP_STEP_S = 0.1


def pauses(*seen: tuple[int, float], named: bool = True) -> Pauses:
    made = Pauses(named=named)
    for at, length_s in seen:
        made.add(at, length_s)
    return made


@pytest.mark.parametrize(("steps", "hits"), [(40, 0), (60, 1), (649, 6), (650, 7)])
def test_the_rest_of_a_period_is_counted(steps: int, hits: int) -> None:
    mean_s, _ = pauses((100, 2.0), (200, 2.2), (300, 1.8)).expected(350, steps, LOOP_STEP_S)
    assert mean_s == pytest.approx(hits * 2.0)


def test_a_pause_a_step_or_two_late_is_still_on_time() -> None:
    mean_s, _ = pauses((100, 2.0), (201, 2.0), (302, 2.0), (401, 2.0)).expected(420, 579, LOOP_STEP_S)
    assert mean_s == pytest.approx(5 * 2.0, rel=0.01)


def test_a_missed_occasion_lowers_what_is_expected() -> None:
    seen = [(step, 2.0) for step in range(100, 1000, 100) if step % 500]
    mean_s, _ = pauses(*seen).expected(1000, 1000, LOOP_STEP_S)
    assert 15 <= mean_s <= 20


def test_gaps_without_a_number_of_their_own_are_a_rate() -> None:
    mean_s, variance = pauses((13, 1.0), (90, 1.0), (131, 1.0), (204, 1.0), (222, 1.0), (350, 1.0)).expected(400, 400, LOOP_STEP_S)
    assert mean_s == pytest.approx(6.0)
    assert variance > 6.0


def test_a_hiccup_is_no_period_but_a_stop_is() -> None:
    hiccup_s, _ = pauses((100, 3 * LOOP_STEP_S), named=False).expected(190, 800, LOOP_STEP_S)
    stop_s, _ = pauses((100, 30 * LOOP_STEP_S), named=False).expected(190, 800, LOOP_STEP_S)
    assert hiccup_s == pytest.approx(3 * LOOP_STEP_S * 800 / 190)
    assert stop_s == pytest.approx(30 * LOOP_STEP_S * 8)


def test_a_period_that_was_found_too_long_is_cut() -> None:
    mean_s, _ = pauses((200, 1.0), (400, 1.0), (500, 1.0), (600, 1.0), (700, 1.0)).expected(750, 250, LOOP_STEP_S)
    assert mean_s == pytest.approx(2.0, rel=0.4)


TOTAL = 10_000
BLOCK = 50


def block(mean_s: float = STEP_S, steps: int = BLOCK, variance: float = (0.02 * STEP_S) ** 2) -> Block:
    return Block(steps, mean_s, variance)


def through(means_s: Iterable[float], total: int = TOTAL) -> Pace:
    """The pace after blocks of these means, one after another."""
    first, *others = means_s
    pace = new_pace(total, BLOCK, block(first))
    for number, mean_s in enumerate(others, 2):
        pace = pace.after(block(mean_s), number * BLOCK)
    return pace


def test_an_even_pace_is_taken_as_it_is_and_grows_surer() -> None:
    few, many = through([STEP_S] * 2), through([STEP_S] * 20)
    assert many.expected(1000)[0] == pytest.approx(1000 * STEP_S)
    assert many.line.level_var < few.line.level_var
    assert many.steps == 20 * BLOCK and many.restarts == 0


def test_adding_a_block_and_taking_it_out_again_is_nothing() -> None:
    one, two = block(0.2), block(0.3)
    sums = NOTHING.plus(25.0, one, None)
    back = sums.plus(75.0, two, one).plus(75.0, two, one, sign=-1)
    assert back == pytest.approx(sums)


@pytest.mark.parametrize(
    ("means", "step_s", "restarts"),
    [
        # A warm-up that ends, a slow head, a level that stays, a jump.
        ((1.0, 1.0, STEP_S), STEP_S, 1),
        ((STEP_S * 1.4, *[STEP_S] * 12), STEP_S, 1),
        ((*[STEP_S] * 20, *[STEP_S * 1.15] * 20), STEP_S * 1.15, 0),
        ((*[STEP_S] * 10, STEP_S * 2), STEP_S * 2, 0),
    ],
)
def test_a_new_level_replaces_the_old_one(means: tuple[float, ...], step_s: float, restarts: int) -> None:
    pace = through(means)
    assert pace.expected(1000)[0] == pytest.approx(1000 * step_s, rel=0.03)
    assert pace.restarts == restarts and pace.steps < len(means) * BLOCK


def test_one_block_that_is_slow_by_accident_hardly_bends_the_line() -> None:
    chance = random.Random(1)
    even = [STEP_S * (1 + chance.gauss(0, 0.01)) for _ in range(20)]
    accident = [*even[:15], STEP_S * 1.3, *even[15:]]
    assert through(accident).expected(1000)[0] == pytest.approx(through(even).expected(1000)[0], rel=0.03)


def test_a_drift_that_goes_on_is_followed_but_never_beyond_reason() -> None:
    rising = through([STEP_S * (1 + 0.002 * number) for number in range(60)], total=6000)
    assert rising.line.slope_s > 0
    now_s = rising.line.at(rising.end)
    assert 3000 * now_s < rising.expected(3000)[0] <= 3000 * now_s * (1 + LARGEST_CHANGE / 2) + 1e-9


def test_a_slope_is_believed_as_far_as_the_data_show_it() -> None:
    none, _ = shrink_slope(0.0, 1.0, 1.0)
    unsure, unsure_var = shrink_slope(1.0, 100.0, 1.0)
    sure, sure_var = shrink_slope(10.0, 0.01, 1.0)
    assert none == 0.0
    assert 0 < unsure < 0.01 and unsure_var > 0
    assert sure == pytest.approx(10.0, rel=0.02) and sure_var < 0.02


def test_a_single_block_has_no_slope() -> None:
    pace = new_pace(TOTAL, BLOCK, block())
    line = pace.line
    assert (pace.steps, line.slope_s, line.level_s, line.at(9000.0)) == (BLOCK, 0.0, STEP_S, STEP_S)
    assert line.deviations(25.0, block(STEP_S)) == 0.0 and line.variance_at(9000.0) > line.variance_at(25.0)
    eta_s, variance = pace.expected(100)
    assert eta_s == pytest.approx(100 * STEP_S) and variance > 0


def point(step: int, error_s: float, *, total: int = 100, **changes: Any) -> EtaPoint:
    left_s = float(total - 1 - step)
    values: dict[str, Any] = {
        "index": 0,
        "step": step,
        "remain_steps": total - 1 - step,
        "eta_s": left_s + error_s,
        "mode": "rank0",
        "source": "events",
        "actual_s": left_s,
    }
    return EtaPoint(**{**values, **changes})


def test_median_and_p90_from_a_tenth_of_the_run_on() -> None:
    points = [point(5, 50.0), *(point(step, error_s) for step, error_s in ((20, -4.0), (40, 3.0), (60, 2.0), (80, 1.0)))]
    found = measure_eta_quality([(points, 100.0)])
    assert found is not None
    assert (found.points, found.median_error_s, found.p90_error_s) == (4, 2.5, pytest.approx(3.7))
    assert (found.median_fraction, found.p90_fraction) == (pytest.approx(0.025), pytest.approx(0.037))
    assert found.covered is None


def test_the_last_step_and_points_without_a_truth_do_not_count() -> None:
    assert measure_eta_quality([([point(99, 0.0), point(50, 1.0, actual_s=None)], 100.0)]) is None
    assert measure_eta_quality([([point(50, 1.0)], 0.0)]) is None
    assert measure_eta_quality([]) is None


def test_runs_are_pooled_and_coverage_is_of_the_points_with_an_interval() -> None:
    inside, outside = {"low_s": 40.0, "high_s": 60.0}, {"low_s": 50.0, "high_s": 60.0}
    found = measure_eta_quality([([point(50, 1.0, **inside)], 10.0), ([point(50, 1.0, **outside), point(60, 1.0)], 100.0)])
    assert found is not None
    assert (found.points, found.median_error_s, found.median_fraction, found.covered) == (3, 1.0, 0.01, 0.5)


def test_the_requested_mode_else_rank_0() -> None:
    both = [point(50, 1.0), point(50, 2.0, mode="global_max")]
    assert points_of_mode(both, "global_max") == (both[1],)
    assert points_of_mode(both[:1], "global_max") == (both[0],)


RECORDED = Path(__file__).parents[2] / "recorded" / "steps"


def recorded_ends_s(name: str) -> list[float]:
    with (RECORDED / name).open(newline="") as file:
        times_s = [float(row["iter_ms"]) / 1000 for row in csv.DictReader(file)]
    return [sum(times_s[: step + 1]) for step in range(len(times_s))]


# The small batch is bound by the host, whose pace wanders by a tenth.
@pytest.mark.parametrize(("name", "largest", "held"), [("tiny_lm_h200_mb16.csv", 0.03, 0.9), ("tiny_lm_h200_mb4.csv", 0.06, 0.7)])
def test_estimates_of_recorded_runs(name: str, largest: float, held: float) -> None:
    ends_s = recorded_ends_s(name)
    length_s = ends_s[-1] - ends_s[0]
    estimator = EtaEstimator(len(ends_s), 10)
    errors, covered = [], []
    for step, end_s in enumerate(ends_s):
        estimator.add(step, end_s)
        found = estimator.estimate() if step >= 40 else None
        if found is not None and step < len(ends_s) - 1:
            left_s = ends_s[-1] - end_s
            errors.append(abs(found.eta_s - left_s) / length_s)
            covered.append(found.low_s <= left_s <= found.high_s)
    assert len(errors) == len(ends_s) - 41
    assert max(errors) < largest
    assert sum(covered) / len(covered) >= held
