"""Expressions of a plan with a bound on their time."""

from __future__ import annotations

import re
import signal
import threading
import time

import pytest

from seatrial.bounded_pattern import BoundedPattern
from seatrial.log_lines import own_patterns, values_in

CATASTROPHE = r"(?P<step>\d+) (a+)+$"
TRAP = "12 " + "a" * 60 + "b"


def test_an_expression_that_never_ends_is_given_up() -> None:
    pattern = BoundedPattern(re.compile(CATASTROPHE), longest_s=0.05)
    began_m = time.monotonic()
    assert values_in(TRAP, [pattern]) == {}
    assert pattern.gave_up
    assert values_in("13 aaa", [pattern]) == {}, "once given up it is not tried again"
    # It would take longer than the age of the universe.
    assert time.monotonic() - began_m < 60


def test_a_sound_expression_searches_as_ever() -> None:
    (pattern,) = own_patterns([r"step (?P<step>\d+)"])
    assert [values_in(f"step {step}", [pattern]) for step in (1, 2)] == [{"step": 1.0}, {"step": 2.0}]
    assert not pattern.gave_up and pattern.text == r"step (?P<step>\d+)"


def test_nothing_is_left_running_after_a_search() -> None:
    (pattern,) = own_patterns([r"step (?P<step>\d+)"])
    pattern.search("step 1")
    assert signal.getitimer(signal.ITIMER_VIRTUAL) == (0.0, 0.0)
    # One that comes late ends nothing.
    signal.raise_signal(signal.SIGVTALRM)


def test_another_thread_can_search() -> None:
    (pattern,) = own_patterns([r"step (?P<step>\d+)"])
    found: list[object] = []
    thread = threading.Thread(target=lambda: found.append(pattern.search("step 7")))
    thread.start()
    thread.join()
    assert found and found[0] is not None


def test_many_slow_searches_are_too_much_as_well(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter(range(1000))
    monkeypatch.setattr("seatrial.bounded_pattern.time.perf_counter", lambda: float(next(clock)))
    pattern = BoundedPattern(re.compile("a"))
    for _ in range(40):
        pattern.search("a")
    assert pattern.gave_up
