"""The offset of a node's clock from beats; both clocks are passed in."""

from __future__ import annotations

import pytest

from seatrial.line.clock_watch import WINDOW_BEATS, ClockWatch


class Beats:
    """A node whose clock is `ahead_s` ahead, asked by a harness whose wall clock began at 1000."""

    def __init__(self) -> None:
        self.now_m, self.ahead_s, self.number = 0.0, 0.0, 0
        self.watch = ClockWatch(wall=lambda: 1000.0 + self.now_m, monotonic=lambda: self.now_m)

    def beat(self, there_s: float = 0.001, back_s: float = 0.001) -> None:
        self.number += 1
        self.watch.sent(self.number)
        self.now_m += there_s
        told_t = 1000.0 + self.now_m + self.ahead_s
        self.now_m += back_s
        self.watch.answered({"kind": "beat", "n": self.number, "t": told_t})
        self.now_m += 2.0

    def offset_s(self) -> float:
        assert self.watch.offset is not None
        return self.watch.offset.offset_s


@pytest.fixture
def beats() -> Beats:
    return Beats()


def test_the_quickest_of_the_last_beats_counts(beats: Beats) -> None:
    assert beats.watch.offset is None and beats.watch.moved_s == 0.0
    beats.ahead_s = 5.0
    beats.beat(there_s=3.0, back_s=0.0)
    assert beats.offset_s() == pytest.approx(6.5)
    beats.beat()
    beats.beat(there_s=0.5)
    assert beats.offset_s() == pytest.approx(5.0)
    assert beats.watch.moved_s == 0.0, "all of them can be true of a clock that stood still"


def test_a_clock_that_was_set_is_followed_at_once(beats: Beats) -> None:
    beats.beat()
    beats.ahead_s = 3600.0
    beats.beat(there_s=0.2, back_s=0.2)
    assert beats.offset_s() == pytest.approx(3600.0)
    assert 3599.0 < beats.watch.moved_s <= 3600.0
    beats.ahead_s = 0.0
    beats.beat()
    assert beats.offset_s() == pytest.approx(0.0) and beats.watch.moved_s > 3599.0, "that it was set stays known"


def test_a_slow_drift_is_followed_though_the_network_grew_busy(beats: Beats) -> None:
    beats.beat()
    for _ in range(WINDOW_BEATS):
        beats.ahead_s += 0.01
        beats.beat(there_s=0.2, back_s=0.2)
    assert beats.offset_s() == pytest.approx(beats.ahead_s, abs=0.2)
    assert beats.watch.offset is not None and beats.watch.offset.round_trip_s == pytest.approx(0.4), "the first one is out of the window"


@pytest.mark.parametrize("told_t", [10**400, -(10**400), float("nan"), float("inf"), "late", None, [1], {}])
def test_what_is_no_time_is_passed_over(beats: Beats, told_t: object) -> None:
    beats.watch.sent(1)
    beats.watch.answered({"kind": "beat", "n": 1, "t": told_t})
    assert beats.watch.offset is None
    beats.beat()
    assert beats.watch.offset is not None


@pytest.mark.parametrize("number", [None, [1], 7, "1", 1.0])
def test_an_answer_to_no_beat_is_passed_over(beats: Beats, number: object) -> None:
    beats.watch.sent(1)
    beats.watch.answered({"kind": "beat", "n": number, "t": 1000.0})
    assert beats.watch.offset is None
