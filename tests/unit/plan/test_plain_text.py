"""What no plan may hold, wherever it stands."""

from __future__ import annotations

from typing import Any

import pytest

from seatrial.errors import PlanError
from seatrial.plan.locate import Locations
from seatrial.plan.plain_text import LARGEST_NUMBER, refuse_what_cannot_be_carried, wrong_character


@pytest.mark.parametrize("text", ["", "plain", "é ✓ 你好", "two\nlines\tand a tab"])
def test_what_a_person_may_want_is_taken(text: str) -> None:
    assert wrong_character(text) is None


@pytest.mark.parametrize(
    ("text", "says"),
    [("a\x1b[31m", "control character 0x1b"), ("a\x00", "control character 0x00"), ("caf\udce9", "not UTF-8"), ("\x7f", "0x7f")],
)
def test_what_nothing_can_carry_is_said(text: str, says: str) -> None:
    assert says in (wrong_character(text) or "")


@pytest.mark.parametrize(
    ("value", "says"),
    [
        ({"env": {"A": "x\x07"}}, "env.A: holds the control character 0x07"),
        ({"env": {"A\x07": "x"}}, "holds the control character 0x07"),
        ({"axes": {"bs": {"values": [1, LARGEST_NUMBER + 1]}}}, r"axes.bs\[1\]: a whole number beyond 64 bits"),
        ({"seed": -LARGEST_NUMBER - 1}, "seed: a whole number beyond 64 bits"),
    ],
)
def test_it_is_found_at_its_key_however_deep(value: dict[str, Any], says: str) -> None:
    with pytest.raises(PlanError, match=says):
        refuse_what_cannot_be_carried(value, Locations())


@pytest.mark.parametrize("value", [{}, [], None, LARGEST_NUMBER, -LARGEST_NUMBER, 1e300, True, ("a", ["b", {"c": "d\n"}])])
def test_the_rest_passes(value: Any) -> None:
    refuse_what_cannot_be_carried(value, Locations())
