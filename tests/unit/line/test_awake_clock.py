from __future__ import annotations

from seatrial.line.awake_clock import AwakeClock


def test_time_asleep_does_not_count() -> None:
    now_m = [100.0]
    clock = AwakeClock(lambda: now_m[0])
    now_m[0] = 100.9
    assert clock.tick(1.0) == 0.0 and clock.now() == 100.9
    now_m[0] = 160.9
    assert clock.tick(1.0) == 59.0 and clock.now() == 160.9 - 59.0


def test_a_busy_turn_is_not_taken_for_sleep() -> None:
    now_m = [0.0]
    clock = AwakeClock(lambda: now_m[0])
    now_m[0] = 4.0
    assert clock.tick(0.2) == 0.0 and clock.now() == 4.0
