"""Clocks that are apart, beyond what the measuring itself leaves in doubt."""

from __future__ import annotations

import pytest

from seatrial.preflight.hosts.answers import Answers
from seatrial.preflight.hosts.clocks import checks, said
from seatrial.records.line import ClockOffset
from tests.unit.preflight.hosts.told import found, make_wanted, reply


@pytest.mark.parametrize(
    ("offset_s", "round_trip_s", "ok"), [(0.0, 0.0, True), (1.0, 0.0, True), (-1.5, 0.0, False), (1.5, 1.2, True), (3600.0, 0.2, False)]
)
def test_a_clock_is_off_by_more_than_the_doubt(offset_s: float, round_trip_s: float, ok: bool) -> None:
    clock = ClockOffset(offset_s=offset_s, round_trip_s=round_trip_s)
    (check,) = found(checks(make_wanted("a"), Answers(first={"a": reply(clock=clock)}))).values()
    assert check.ok is ok and check.found.startswith(f"{said(offset_s)} (within {round_trip_s * 500:.0f} ms)")
    assert ("events are corrected" in check.found) is not ok


def test_a_clock_that_nobody_measured_has_no_row() -> None:
    answers = Answers(first={"a": reply(), "b": reply(trouble="no answer", clock=ClockOffset(offset_s=9.0, round_trip_s=0.0))})
    assert found(checks(make_wanted("a", "b"), answers)) == {}


@pytest.mark.parametrize(
    ("offset_s", "words"), [(0.0, "the same"), (-0.04, "the same"), (0.05, "0.1 s ahead"), (-3600.0, "3600.0 s behind")]
)
def test_an_offset_in_words(offset_s: float, words: str) -> None:
    assert said(offset_s) == words
