"""What the text of a cell stands for."""

from __future__ import annotations

import pytest

from seatrial.collect.original.cells import flag, number, whole


@pytest.mark.parametrize(
    ("text", "value"),
    [("1.5", 1.5), (" 2 ", 2.0), ("", None), (None, None), ("nan", None), ("inf", None), ("[N/A]", None), ("1e300", None), ("-3", -3.0)],
)
def test_numbers(text: str | None, value: float | None) -> None:
    assert number(text) == value


@pytest.mark.parametrize(("text", "value"), [("01", 1), ("2.0", 2), ("2.5", None), ("first", None), (None, None), ("1e99", None)])
def test_whole_numbers(text: str | None, value: int | None) -> None:
    assert whole(text) == value


@pytest.mark.parametrize(("text", "value"), [("true", True), ("False", False), ("1", True), ("0", False), ("", None), ("maybe", None)])
def test_flags(text: str, value: bool | None) -> None:
    assert flag(text) is value
