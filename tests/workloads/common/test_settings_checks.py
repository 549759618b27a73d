"""What every workload's Settings checks of itself: types, bounds, words, and what is said of each."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import pytest

from seatrial_workloads.common.settings_checks import check_at_least, check_one_of, check_types, field_names, kind_in_words, without_none


@dataclass(frozen=True)
class Some:
    steps: int = 1
    lr: float = 0.1
    engine: str = "ddp"
    compile: bool = False
    every: int | None = None


@pytest.mark.parametrize("given", [{}, {"lr": 1}, {"every": 3}, {"every": None}, {"compile": True}, {"engine": ""}])
def test_a_value_of_its_kind_passes_and_a_whole_number_is_a_number(given: dict[str, Any]) -> None:
    assert check_types(Some(**given)) is None


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"steps": 1.5}, "steps is 1.5; expected a whole number"),
        ({"steps": True}, "steps is True; expected a whole number"),
        ({"steps": None}, "steps is None; expected a whole number"),
        ({"lr": "fast"}, "lr is 'fast'; expected a number"),
        ({"lr": math.nan}, "lr is nan; expected a number"),
        ({"lr": math.inf}, "lr is inf; expected a number"),
        ({"lr": False}, "lr is False; expected a number"),
        ({"compile": 1}, "compile is 1; expected true or false"),
        ({"engine": 3}, "engine is 3; expected a word"),
        ({"every": "often"}, "every is 'often'; expected a whole number, or null for never"),
    ],
)
def test_a_value_of_another_kind_is_named_with_what_was_expected(given: dict[str, Any], says: str) -> None:
    with pytest.raises(ValueError) as told:
        check_types(Some(**given))
    assert str(told.value) == says


def test_bounds_hold_at_the_bound_itself_and_pass_over_none() -> None:
    assert check_at_least(Some(), steps=1, every=1) is None
    with pytest.raises(ValueError, match="steps is 0; it must be 1 or more"):
        check_at_least(Some(steps=0), steps=1)
    with pytest.raises(ValueError, match="lr is nan"):
        check_at_least(Some(lr=math.nan), lr=0)


def test_words_are_those_that_are_known() -> None:
    assert check_one_of(Some(), engine=("ddp", "deepspeed")) is None
    with pytest.raises(ValueError, match="engine is 'dpd'; expected one of ddp, deepspeed"):
        check_one_of(Some(engine="dpd"), engine=("ddp", "deepspeed"))


def test_kinds_in_words_and_without_none() -> None:
    assert without_none(int | None) is int and without_none(float) is float
    assert kind_in_words(bool) == "true or false" and kind_in_words(float | None) == "a number, or null for never"
    assert field_names(Some) == ["steps", "lr", "engine", "compile", "every"]
