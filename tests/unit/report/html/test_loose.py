"""Reading of a summary.json that another version may have written."""

from __future__ import annotations

import math
from typing import Any

import pytest

from seatrial.report.html import loose

TOLD: dict[str, Any] = {
    "verdict": {"findings": [{"id": "1"}, None, "x", {"id": "2"}], "word": "PASS", "n": 3, "share": 0.5, "flag": True, "none": None}
}


@pytest.mark.parametrize("odd", [None, 7, "text", [], {}, {"verdict": None}, {"verdict": []}, {"verdict": {"findings": {}, "word": 4}}])
def test_what_is_not_there_or_not_of_its_kind_is_empty(odd: Any) -> None:
    assert loose.mapping(odd, "verdict", "deeper") == {}
    assert loose.objects(odd, "verdict", "findings") == [] and loose.items(odd, "verdict", "findings") == []
    assert loose.words(odd, "verdict", "findings") == [] and loose.text(odd, "verdict", "word") == ""
    assert loose.number(odd, "verdict", "n") is None and loose.whole(odd, "verdict", "n") is None


def test_what_is_there_is_found_under_its_keys() -> None:
    assert loose.text(TOLD, "verdict", "word") == "PASS" and loose.mapping(TOLD, "verdict") is TOLD["verdict"]
    assert loose.number(TOLD, "verdict", "share") == 0.5 and loose.whole(TOLD, "verdict", "n") == 3


def test_of_a_list_only_what_is_of_the_kind_asked_for_is_taken() -> None:
    assert [one["id"] for one in loose.objects(TOLD, "verdict", "findings")] == ["1", "2"]
    assert loose.words(TOLD, "verdict", "findings") == ["x"] and len(loose.items(TOLD, "verdict", "findings")) == 4


@pytest.mark.parametrize("value", [True, "3", math.nan, math.inf, None, [1]])
def test_no_number_is_none(value: Any) -> None:
    assert loose.number(value) is None and loose.whole(value) is None


def test_without_keys_the_value_itself_is_meant() -> None:
    assert loose.number(2.5) == 2.5 and loose.whole(2.5) == 2 and loose.text("a") == "a" and loose.items([1]) == [1]
