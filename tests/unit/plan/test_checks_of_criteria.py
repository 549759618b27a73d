"""Criteria that could not be judged, each at its key; and what their units and parts are made of."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from seatrial.errors import PlanError
from seatrial.plan.checks_of_criteria import check_criteria
from seatrial.plan.criteria_schema import BaselinePart, CriterionPart, complete_criterion
from seatrial.plan.criterion_units import converted, units_for
from seatrial.plan.part import Part
from seatrial.plan.ready_criteria import READY_CRITERIA
from seatrial.plan.schema import Plan, Workload
from seatrial.records.criteria_catalog import METRICS, SCOPES

COMPARES = next(name for name, entry in METRICS.items() if entry.compares and entry.needs_bound)
PLAIN = "startup_s"
HOLDS = next(name for name, entry in METRICS.items() if not entry.needs_bound)


def plan(*criteria: CriterionPart) -> Plan:
    return Plan(name="x", workload=Workload(module="dummy"), criteria=list(criteria))


@pytest.mark.parametrize(
    ("asked", "says"),
    [
        ({}, "criteria[0]: names neither `metric` nor `ready`"),
        ({"metric": PLAIN, "ready": "x"}, "criteria[0]: names both `metric` and `ready`"),
        ({"ready": "stage1_stabilty"}, "criteria[0].ready: no ready criteria are called 'stage1_stabilty'; did you mean"),
        ({"ready": min(READY_CRITERIA), "at_most": 1.0}, "criteria[0].at_most: belongs to the criteria of"),
        ({"metric": "startup"}, "criteria[0].metric: unknown metric 'startup'; did you mean"),
        ({"metric": "reported."}, "criteria[0].metric: unknown metric 'reported.'; a figure of your own is reported.NAME"),
        ({"metric": PLAIN, "at_most": 1.0, "scope": "campain"}, f"criteria[0].scope: {PLAIN} is not looked at by 'campain'"),
        ({"metric": PLAIN}, f"criteria[0]: {PLAIN} needs a bound"),
        ({"metric": HOLDS, "at_most": 1.0}, f"criteria[0]: {HOLDS} holds or does not; leave at_most and at_least out"),
        ({"metric": HOLDS, "unit": "s"}, f"criteria[0].unit: {HOLDS} holds or does not, and has no unit"),
        ({"metric": PLAIN, "at_most": 1.0, "at_least": 2.0}, "criteria[0]: at_least 2.0 is above at_most 1.0"),
        ({"metric": PLAIN, "at_most": 1.0, "unit": "MiB"}, f"criteria[0].unit: {PLAIN} is in s, not in 'MiB'; write s (ms"),
        (
            {"metric": PLAIN, "at_most": 1.0, "baseline": BaselinePart(group="a")},
            f"criteria[0].baseline: {PLAIN} is held against a bound, not against a baseline",
        ),
        ({"metric": COMPARES, "at_most": 1.0, "baseline": BaselinePart()}, "criteria[0].baseline: names nothing"),
        ({"metric": COMPARES, "at_most": 1.0, "baseline": BaselinePart(group=" ")}, "criteria[0].baseline.group: is empty"),
        (
            {"metric": COMPARES, "at_most": 1.0, "baseline": BaselinePart(history="a", group="b")},
            "criteria[0].baseline.history: is a baseline by itself",
        ),
    ],
)
def test_what_could_not_be_judged(asked: dict[str, Any], says: str) -> None:
    with pytest.raises(PlanError) as caught:
        check_criteria(plan(CriterionPart(**asked)))
    assert str(caught.value).startswith(says)


def test_none_of_a_plan_and_none_at_all_pass() -> None:
    check_criteria(plan())
    check_criteria(Plan(name="x", workload=Workload(module="dummy")))


def test_the_unit_of_a_reported_figure_is_the_workloads_own() -> None:
    check_criteria(plan(CriterionPart(metric="reported.bleu", at_least=30.0, unit="points")))


def test_of_several_the_first_wrong_one_is_told() -> None:
    right = CriterionPart(metric=PLAIN, at_most=1.0)
    with pytest.raises(PlanError, match=r"^criteria\[1\]"):
        check_criteria(plan(right, CriterionPart(), CriterionPart(metric="x")))


def test_units_of_one_kind_convert_and_others_are_their_own() -> None:
    assert units_for("s") == ("s", "ms", "min", "h")
    assert units_for("runs") == ("runs",)
    assert converted(2.0, "min", "s") == 120.0
    assert converted(2.0, None, "s") == 2.0
    assert converted(None, "min", "s") is None


def test_a_part_takes_nothing_unknown_converts_nothing_and_stays_as_it_is() -> None:
    with pytest.raises(ValidationError, match="extra_forbidden"):
        CriterionPart.model_validate({"metrc": "x"})
    with pytest.raises(ValidationError, match="float_type"):
        CriterionPart.model_validate({"metric": "x", "at_most": "3"})
    with pytest.raises(ValidationError, match="frozen"):
        BaselinePart().group = "a"
    with pytest.raises(ValidationError, match="finite_number"):
        CriterionPart(metric="x", at_most=float("nan"))
    assert issubclass(CriterionPart, Part) and issubclass(Plan, Part)


def test_the_schema_of_editors_knows_names_that_the_types_do_not() -> None:
    schema = CriterionPart.model_json_schema()
    complete_criterion(schema)
    known = schema["properties"]
    assert known["metric"]["anyOf"][0]["enum"] == sorted(METRICS)
    assert known["ready"]["anyOf"][0]["enum"] == sorted(READY_CRITERIA)
    assert known["scope"]["anyOf"][0]["enum"] == list(SCOPES)
    assert {"type": "string"} in known["baseline"]["anyOf"]
    assert known["metric"]["description"], "the line under each key is its description"
