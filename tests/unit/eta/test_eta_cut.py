"""What marks come to: blocks, long steps, and long steps that the next ones make up for."""

from __future__ import annotations

import pytest

from seatrial.eta.cut import CATCH_UP_STEPS, LONG_STEPS, cut, long_only

STEP_S = 0.2


def ones(*shares: float) -> list[tuple[int, float]]:
    """Marks of one step each, as shares of a usual one."""
    return [(1, STEP_S * share) for share in shares]


def test_a_block_of_one_mark_can_be_cut() -> None:
    block, long, held = cut([(25, 5.0)], 100)
    assert block is not None
    assert (block.steps, block.mean_s, block.variance, long, held) == (25, 0.2, 0.0, [], 0)


def test_long_steps_leave_the_block_with_their_excess() -> None:
    block, long, held = cut(ones(1, 1, 1, 11, 1, 1, 1, 1, 1, 1), 50)
    assert block is not None
    assert (block.steps, block.mean_s, held) == (9, pytest.approx(STEP_S), 0)
    assert [(one.place, one.at, one.excess_s) for one in long] == [(3, 54, pytest.approx(10 * STEP_S))]


def test_a_step_that_is_little_longer_stays() -> None:
    block, long, _ = cut(ones(*[1] * 5, LONG_STEPS + 0.9, *[1] * 14), 50)
    assert block is not None
    assert (block.steps, long) == (20, [])


@pytest.mark.parametrize("after", [(0.1, 0.1, 0.1), (0.5,) * 5, (1, 0.1, 0.1, 0.3), (0.2, 0.2)])
def test_a_long_step_that_the_next_ones_make_up_for_stays(after: tuple[float, ...]) -> None:
    shares = (*[1] * 9, 3.7, *after, *[1] * 9)
    block, long, held = cut(ones(*shares), 50)
    assert block is not None
    assert (block.steps, long, held) == (len(shares), [], 0)
    assert block.mean_s == pytest.approx(STEP_S * sum(shares) / len(shares))


def test_what_stays_does_not_count_as_noise() -> None:
    block, _, _ = cut(ones(*[1] * 9, 3.7, 0.1, 0.1, 0.1, *[1] * 9), 50)
    assert block is not None
    assert block.variance == pytest.approx(0.0, abs=1e-12)


def test_steps_too_far_behind_make_up_for_nothing() -> None:
    _, long, _ = cut(ones(*[1] * 5, 3.7, *[1] * CATCH_UP_STEPS, 0.1, 0.1, 0.1, 1), 50)
    assert [one.place for one in long] == [5]


@pytest.mark.parametrize(("last", "held"), [((3.7,), 1), ((3.7, 0.1, 0.1), 3), ((3.7, 0.1, 0.1, 0.1), 0), ((3.7, *[1.0] * 8), 0)])
def test_a_long_step_at_the_end_waits_for_the_next_ones(last: tuple[float, ...], held: int) -> None:
    found = cut(ones(*[1] * 12, *last), 50)
    assert found.held == held
    assert found.block is not None
    assert found.block.steps + len(found.long) + held == 12 + len(last)


def test_a_pause_that_no_steps_could_make_up_for_waits_for_none() -> None:
    found = cut(ones(*[1] * 12, CATCH_UP_STEPS + 2), 50)
    assert (found.held, len(found.long)) == (0, 1)


def test_a_mark_of_many_steps_waits_for_none() -> None:
    found = cut([(25, 5.0), (25, 5.0), (25, 5.0), (25, 6.4)], 50)
    assert (found.held, [one.spacing for one in found.long]) == (0, [25])


def test_steps_that_fill_the_queue_at_the_start_leave_the_block() -> None:
    block, long, _ = cut(ones(0.5, 0.4, 0.7, *[1] * 7), 0)
    assert block is not None
    assert (block.steps, block.mean_s, long) == (7, pytest.approx(STEP_S), [])
    later, _, _ = cut(ones(0.5, 0.4, 0.7, *[1] * 7), 50)
    assert later is not None
    assert later.steps == 10


def test_few_marks_are_held_against_what_is_known() -> None:
    assert cut(ones(3), 50).held == 0
    assert long_only(ones(3), 50, STEP_S) == (None, [], 1)
    assert long_only(ones(1, 3, 0.3, 0.3, 0.3), 50, STEP_S) == (None, [], 0)
    assert [one.at for one in long_only(ones(1, 12, 1), 50, STEP_S).long] == [52]
