"""Pydantic's complaints in the words of a plan's author."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from seatrial.plan.locate import KeyPath, Locations, Where
from seatrial.plan.problems import keys_at, plan_error, shown, unknown_key_hint, wrong_type
from seatrial.plan.schema import Plan

RIGHT: dict[str, Any] = {"name": "x", "workload": {"module": "dummy"}}


def said(mapping: dict[str, Any], locations: Locations | None = None) -> str:
    with pytest.raises(ValidationError) as caught:
        Plan.model_validate(mapping)
    return str(plan_error(caught.value, Plan, locations or Locations()))


@pytest.mark.parametrize(
    ("keys", "text"),
    [
        ({"repeats": "3"}, "repeats: must be a whole number, not '3' (text); take the quotes off"),
        ({"repeats": 0}, "repeats: must be at least 1, not 0"),
        ({"limits": {"run_s": 0}}, "limits.run_s: must be above 0.0, not 0"),
        ({"place": {"port": 70000}}, "place.port: must be at most 65535, not 70000"),
        ({"order": "rnds"}, "order: unknown: 'rnds'; did you mean 'rounds'?"),
        ({"axes": {"bs": {"values": 8}}}, "axes.bs: must be a list, as in [a, b], not 8 (a whole number)"),
        ({"limits": {"stall": {"factr": 3}}}, "limits.stall.factr: unknown key; did you mean 'factor'?"),
        ({"run_s": 3}, "run_s: unknown key; it belongs under `limits`"),
        ({"limits": {"repeats": 3}}, "limits.repeats: unknown key; it belongs at the top of the plan"),
        ({"name": "a b"}, "name: 'a b' does not fit; expected letters, digits and . _ + -, with a letter or digit first"),
        ({"name": "x" * 81}, "name: longer than 80 characters"),
        ({"stop_on_error": "yes"}, "stop_on_error: must be true or false, not 'yes' (text)"),
        ({"output": 7}, "output: must be text, not 7 (a whole number); put it in quotes"),
        ({"workload": None}, "workload: must be a mapping of keys to values, not null (nothing)"),
        ({"limits": {"soft_s": float("inf")}}, "limits.soft_s: must be a finite number, not inf"),
        ({"budget": 0}, "budget: must be a time above zero such as 90s, 15m or 2h, not 0"),
    ],
)
def test_each_kind_of_complaint(keys: dict[str, Any], text: str) -> None:
    assert said({**RIGHT, **keys}) == text


def test_what_is_missing_is_told_after_what_is_misspelt_beside_it() -> None:
    assert said({"nme": "x", "workload": {"module": "dummy"}}) == "nme: unknown key; did you mean 'name'?"
    assert said({"workload": {"module": "dummy"}}) == "name: is required and missing"


def test_of_several_the_first_in_the_file_is_told() -> None:
    lines = Locations("p.yaml", {("repeats",): Where("p.yaml", 9), ("order",): Where("p.yaml", 2)})
    assert said({**RIGHT, "repeats": 0, "order": "x"}, lines).startswith("p.yaml:2: order: ")


@pytest.mark.parametrize(
    ("value", "text"), [(True, "true"), (None, "null"), ("a", "'a'"), (1.5, "1.5"), ("x" * 100, "'" + "x" * 56 + "…"), ([], "[]")]
)
def test_a_value_as_it_stands_in_a_plan(value: object, text: str) -> None:
    assert shown(value) == text


def test_quotes_are_spoken_of_only_where_they_are_the_reason() -> None:
    assert wrong_type("a number", "1e3").endswith("; take the quotes off")
    assert not wrong_type("a number", "soon").endswith("quotes off")
    assert wrong_type("text", 3).endswith("; put it in quotes")


@pytest.mark.parametrize(
    ("path", "some"),
    [
        ((), {"name", "axes"}),
        (("limits",), {"run_s"}),
        (("limits", "stall"), {"factor"}),
        (("axes", "any"), {"values"}),
        (("criteria", 0), {"metric"}),
    ],
)
def test_the_keys_that_are_known_at_a_place(path: KeyPath, some: set[str]) -> None:
    assert some <= set(keys_at(Plan, path))


@pytest.mark.parametrize("path", [("name",), ("settings",), ("nowhere", "at", "all")])
def test_where_values_stand_no_key_is_known(path: KeyPath) -> None:
    assert keys_at(Plan, path) == []


def test_a_key_with_two_homes_is_told_both() -> None:
    assert unknown_key_hint(Plan, ("place", "args")) == "it belongs under `workload` or under `launcher`"
