"""The pace of the steps to come: the line, what bends it, and what starts it anew."""

from __future__ import annotations

import math
import random
from collections.abc import Iterable

import pytest

from seatrial.eta.pace import LARGEST_CHANGE, NOTHING, Block, Pace, fit, new_pace, shrunk

STEP_S = 0.25
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


def test_one_block_is_all_that_is_known() -> None:
    pace = new_pace(TOTAL, BLOCK, block())
    eta_s, variance = pace.rest(100)
    assert eta_s == pytest.approx(100 * STEP_S) and variance > 0
    assert (pace.steps, pace.end, pace.restarts, pace.line.slope_s) == (BLOCK, BLOCK, 0, 0.0)


def test_nothing_left_takes_no_time() -> None:
    assert through([STEP_S] * 3).rest(0) == (0.0, 0.0)


def test_an_even_pace_is_taken_as_it_is_and_grows_surer() -> None:
    few, many = through([STEP_S] * 2), through([STEP_S] * 20)
    assert many.rest(1000)[0] == pytest.approx(1000 * STEP_S)
    assert many.line.level_var < few.line.level_var
    assert many.steps == 20 * BLOCK and many.restarts == 0


def test_steps_without_any_length_are_no_division_by_zero() -> None:
    pace = through([0.0] * 5)
    eta_s, variance = pace.rest(100)
    assert eta_s == 0.0 and math.isfinite(variance)


def test_adding_a_block_and_taking_it_out_again_is_nothing() -> None:
    one, two = block(0.2), block(0.3)
    sums = NOTHING.plus(25.0, one, None)
    back = sums.plus(75.0, two, one).plus(75.0, two, one, sign=-1)
    assert back == pytest.approx(sums)


def test_a_fast_block_is_the_end_of_a_warm_up() -> None:
    pace = through([1.0, 1.0, STEP_S])
    assert pace.restarts == 1 and pace.rest(100)[0] == pytest.approx(100 * STEP_S)


def test_a_slow_head_is_left_out_once_more_is_known() -> None:
    pace = through([STEP_S * 1.4, *[STEP_S] * 12])
    assert pace.rest(1000)[0] == pytest.approx(1000 * STEP_S, rel=0.01)


def test_one_block_that_is_slow_by_accident_hardly_bends_the_line() -> None:
    chance = random.Random(1)
    even = [STEP_S * (1 + chance.gauss(0, 0.01)) for _ in range(20)]
    accident = [*even[:15], STEP_S * 1.3, *even[15:]]
    assert through(accident).rest(1000)[0] == pytest.approx(through(even).rest(1000)[0], rel=0.03)


def test_a_jump_is_a_new_level_at_once_and_not_a_restart() -> None:
    pace = through([*[STEP_S] * 10, STEP_S * 2])
    assert pace.rest(100)[0] == pytest.approx(100 * 2 * STEP_S) and pace.restarts == 0 and pace.steps == BLOCK


def test_a_level_that_stays_is_believed_after_some_blocks() -> None:
    pace = through([*[STEP_S] * 20, *[STEP_S * 1.15] * 20])
    assert pace.rest(1000)[0] == pytest.approx(1000 * STEP_S * 1.15, rel=0.03)
    assert pace.steps < 40 * BLOCK, "what was before it no longer counts"


def test_a_drift_that_goes_on_is_followed_but_never_beyond_reason() -> None:
    rising = through([STEP_S * (1 + 0.002 * number) for number in range(60)], total=6000)
    assert rising.line.slope_s > 0
    now_s = rising.line.at(rising.end)
    assert 3000 * now_s < rising.rest(3000)[0] <= 3000 * now_s * (1 + LARGEST_CHANGE / 2) + 1e-9


def test_a_slope_is_believed_as_far_as_the_data_show_it() -> None:
    none, _ = shrunk(0.0, 1.0, 1.0)
    unsure, unsure_var = shrunk(1.0, 100.0, 1.0)
    sure, sure_var = shrunk(10.0, 0.01, 1.0)
    assert none == 0.0
    assert 0 < unsure < 0.01 and unsure_var > 0
    assert sure == pytest.approx(10.0, rel=0.02) and sure_var < 0.02


def test_a_single_block_has_no_slope_whatever_it_is() -> None:
    line = fit(NOTHING.plus(25.0, block(), None), TOTAL)
    assert (line.slope_s, line.level_s, line.at(9000.0)) == (0.0, STEP_S, STEP_S)
    assert line.deviations(25.0, block(STEP_S)) == 0.0
    assert line.variance_at(9000.0) > line.variance_at(25.0)
