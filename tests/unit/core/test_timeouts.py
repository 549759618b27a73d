"""Polling, and the clock of a suspended process."""

from __future__ import annotations

import pytest

from seatrial.core.timeouts import SuspendAwareClock, poll_until


class Clock:
    """Advances while it sleeps."""

    def __init__(self) -> None:
        self.now_m, self.slept = 100.0, list[float]()

    def __call__(self) -> float:
        return self.now_m

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now_m += seconds


@pytest.mark.parametrize(("timeout_s", "enough", "found", "sleeps"), [(10.0, 0, 0, 0), (10.0, 2, 2, 2), (2.0, 9, 2, 2), (0.0, 9, 0, 0)])
def test_polling_ends_when_it_is_enough_or_the_time_is_over(timeout_s: float, enough: int, found: int, sleeps: int) -> None:
    clock = Clock()
    assert poll_until(lambda: len(clock.slept), lambda reads: reads >= enough, timeout_s, 1.0, clock, clock.sleep) == found
    assert clock.slept == [1.0] * sleeps


def test_suspended_time_does_not_count_and_a_busy_turn_does() -> None:
    now_m = [100.0]
    clock = SuspendAwareClock(lambda: now_m[0])
    now_m[0] = 104.0
    assert clock.tick(0.2) == 0.0 and clock.now() == 104.0
    now_m[0] = 164.0
    assert clock.tick(1.0) == 59.0 and clock.now() == 105.0
