"""Short forms spelled out, and lines that follow what moved."""

from __future__ import annotations

from typing import Any

import pytest

from seatrial.plan.locate import Locations, Where
from seatrial.plan.schema import SHORT_FORMS, Plan
from seatrial.plan.short_forms import MAPPINGS, spelled_out


@pytest.mark.parametrize(
    ("short", "long"),
    [
        ({"workload": "dummy"}, {"workload": {"module": "dummy"}}),
        ({"launcher": "torchrun"}, {"launcher": {"kind": "torchrun"}}),
        ({"place": "local"}, {"place": {"kind": "local"}}),
        ({"axes": {"bs": [8, 16]}}, {"axes": {"bs": {"values": [8, 16]}}}),
        ({"axes": {"bs": 8}}, {"axes": {"bs": {"values": 8}}}),
        ({"sentinel": 4}, {"sentinel": {"every": 4}}),
        ({"sentinel": True}, {"sentinel": True}),
        ({"criteria": [{"metric": "x", "baseline": "mb8"}]}, {"criteria": [{"metric": "x", "baseline": {"group": "mb8"}}]}),
        ({"criteria": ["nonsense"]}, {"criteria": ["nonsense"]}),
        ({"axes": None}, {"axes": {}}),
        ({"axes": "nonsense"}, {"axes": "nonsense"}),
        ({}, {}),
    ],
)
def test_each_short_form(short: dict[str, Any], long: dict[str, Any]) -> None:
    assert spelled_out(short, Locations()) == long
    assert spelled_out(long, Locations()) == long, "what is long already stays"


def test_what_was_given_is_not_changed() -> None:
    given = {"launcher": "torchrun", "axes": {"bs": [8]}}
    spelled_out(given, Locations())
    assert given == {"launcher": "torchrun", "axes": {"bs": [8]}}


def test_lines_go_with_what_moved() -> None:
    locations = Locations("p.yaml", {("axes", "bs"): Where("p.yaml", 4), ("axes", "bs", 1): Where("p.yaml", 5)})
    spelled_out({"axes": {"bs": [8, 8]}}, locations)
    assert locations.of(("axes", "bs", "values", 1)) == Where("p.yaml", 5)


def test_every_short_form_and_every_empty_mapping_is_a_key_of_the_plan() -> None:
    assert {*SHORT_FORMS, *MAPPINGS} <= set(Plan.model_fields)
