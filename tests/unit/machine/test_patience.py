"""Looking again and again, by a clock of the test's own."""

from __future__ import annotations

import operator

from seatrial.machine.patience import looked_for


class Clock:
    """Goes on by what is slept."""

    def __init__(self) -> None:
        self.now_m, self.slept = 100.0, list[float]()

    def __call__(self) -> float:
        return self.now_m

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now_m += seconds


def test_what_is_there_at_once_is_not_waited_for() -> None:
    clock = Clock()
    assert looked_for(lambda: 7, bool, 10.0, 1.0, clock, clock.sleep) == 7 and clock.slept == []


def test_it_is_looked_for_until_it_is_enough() -> None:
    clock, looks = Clock(), iter([["a", "b"], ["b"], []])
    assert looked_for(lambda: next(looks), operator.not_, 10.0, 0.5, clock, clock.sleep) == [] and clock.slept == [0.5, 0.5]


def test_when_the_patience_is_over_the_last_look_stands() -> None:
    clock = Clock()
    assert looked_for(lambda: clock.now_m, lambda found: False, 2.0, 1.0, clock, clock.sleep) == 102.0 and clock.slept == [1.0, 1.0]


def test_without_patience_it_is_looked_once() -> None:
    clock = Clock()
    assert looked_for(lambda: None, lambda found: found is not None, 0.0, 1.0, clock, clock.sleep) is None and clock.slept == []
