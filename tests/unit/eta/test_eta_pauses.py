"""Pauses that come again: kinds, periods, and when they are over."""

from __future__ import annotations

import pytest

from seatrial.eta.pauses import MOST_KINDS, Pauses

STEP_S = 0.1


def pauses(*seen: tuple[int, float], named: bool = True) -> Pauses:
    made = Pauses(named=named)
    for at, length_s in seen:
        made.add(at, length_s)
    return made


@pytest.mark.parametrize(("steps", "hits"), [(40, 0), (60, 1), (649, 6), (650, 7)])
def test_the_rest_of_a_period_is_counted(steps: int, hits: int) -> None:
    mean_s, _ = pauses((100, 2.0), (200, 2.2), (300, 1.8)).to_come(350, steps, STEP_S)
    assert mean_s == pytest.approx(hits * 2.0)


def test_a_pause_a_step_or_two_late_is_still_on_time() -> None:
    mean_s, _ = pauses((100, 2.0), (201, 2.0), (302, 2.0), (401, 2.0)).to_come(420, 579, STEP_S)
    assert mean_s == pytest.approx(5 * 2.0, rel=0.01)


def test_a_missed_occasion_lowers_what_is_expected() -> None:
    seen = [(step, 2.0) for step in range(100, 1000, 100) if step % 500]
    mean_s, _ = pauses(*seen).to_come(1000, 1000, STEP_S)
    assert 15 <= mean_s <= 20


def test_gaps_without_a_number_of_their_own_are_a_rate() -> None:
    mean_s, variance = pauses((13, 1.0), (90, 1.0), (131, 1.0), (204, 1.0), (222, 1.0), (350, 1.0)).to_come(400, 400, STEP_S)
    assert mean_s == pytest.approx(6.0)
    assert variance > 6.0


def test_a_hiccup_is_no_period_but_a_stop_is() -> None:
    hiccup_s, _ = pauses((100, 3 * STEP_S), named=False).to_come(190, 800, STEP_S)
    stop_s, _ = pauses((100, 30 * STEP_S), named=False).to_come(190, 800, STEP_S)
    assert hiccup_s == pytest.approx(3 * STEP_S * 800 / 190)
    assert stop_s == pytest.approx(30 * STEP_S * 8)


def test_what_came_in_a_row_at_the_start_and_not_since_is_over() -> None:
    assert pauses((2, 5.0), (3, 5.0), (4, 5.0)).to_come(100, 900, STEP_S) == (0.0, 0.0)


def test_a_period_that_was_found_too_long_is_cut() -> None:
    mean_s, _ = pauses((200, 1.0), (400, 1.0), (500, 1.0), (600, 1.0), (700, 1.0)).to_come(750, 250, STEP_S)
    assert mean_s == pytest.approx(2.0, rel=0.4)


def test_lengths_make_kinds_and_their_number_is_bounded() -> None:
    many = pauses(*((step, 2.0**power) for power, step in enumerate(range(100, 2100, 100))))
    assert len(many._kinds) == MOST_KINDS


def test_a_copy_keeps_what_is_added_to_itself() -> None:
    one = pauses((100, 2.0))
    twin = one.copy()
    twin.add(200, 2.0)
    assert one.to_come(150, 100, STEP_S) != twin.to_come(250, 100, STEP_S)
    assert one._kinds[0].number == 1
