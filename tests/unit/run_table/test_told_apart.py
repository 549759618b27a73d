"""Names that two configurations carry, told apart."""

from __future__ import annotations

from seatrial.run_table.told_apart import APART, KEY_DIGITS, told_apart


def test_digits_of_the_key_stand_behind_the_name() -> None:
    one, other = told_apart("mb16", "427bc0ffee"), told_apart("mb16", "9d1e000000")
    assert one == "mb16~427b" and one != other
    assert len(one) == len("mb16") + len(APART) + KEY_DIGITS


def test_a_key_that_is_short_is_taken_whole() -> None:
    assert told_apart("mb16", "4") == "mb16~4"
