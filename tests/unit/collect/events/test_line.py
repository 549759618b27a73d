"""One line of an events file, whatever stands in it."""

from __future__ import annotations

import pytest

from seatrial.collect.events.line import event_in, is_of


@pytest.mark.parametrize("line", [b"", b"\n", b"{torn", b"[1, 2]", b'"step"', b"17", b"null", b"\x00\xff", b"[" * 100_000])
def test_what_is_no_object_is_no_event(line: bytes) -> None:
    assert event_in(line) is None


def test_a_name_given_twice_counts_as_first_given() -> None:
    assert event_in(b'{"kind": "step", "step": 3, "step": 9}\n') == {"kind": "step", "step": 3}


def test_bytes_that_are_no_text_are_shown_as_such() -> None:
    assert event_in(b'{"host": "a\xffb"}') == {"host": "a\N{REPLACEMENT CHARACTER}b"}


@pytest.mark.parametrize(
    ("changed", "is_mine"), [({}, True), ({"run": "other"}, False), ({"attempt": 2}, False), ({"rank": 1}, False), ({"rank": None}, False)]
)
def test_an_event_is_of_one_run_attempt_and_rank(changed: dict[str, object], is_mine: bool) -> None:
    assert is_of({"run": "mb8_r1", "attempt": 1, "rank": 0, **changed}, "mb8_r1", 1, 0) is is_mine
