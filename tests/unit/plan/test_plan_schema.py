"""The JSON Schema of a plan: every key described, short forms taken, what is not built left out."""

from __future__ import annotations

import json
from typing import Any

from seatrial.plan.json_schema import json_schema
from seatrial.plan.schema import Plan, RankBy
from seatrial.plan.unbuilt import KEYS
from seatrial.plan.values import RANK_MEANINGS


def test_every_key_is_described() -> None:
    schema = json_schema()
    for part in (schema, *schema["$defs"].values()):
        for key, entry in part["properties"].items():
            assert entry.get("description"), key
            assert entry["description"].endswith("."), key


def test_it_is_json_and_names_every_key_of_the_plan() -> None:
    schema = json.loads(json.dumps(json_schema()))
    assert set(schema["properties"]) == set(Plan.model_fields)
    assert schema["required"] == ["name", "workload"]
    assert schema["additionalProperties"] is False


def test_what_is_not_built_is_not_in_it() -> None:
    schema = json_schema()
    for path in KEYS:
        assert path[-1] not in schema["properties"]
        assert path[-1] not in schema["$defs"]["Limits"]["properties"]


def test_short_forms_are_taken() -> None:
    properties: dict[str, Any] = json_schema()["properties"]
    assert properties["launcher"]["anyOf"] == [{"$ref": "#/$defs/Launcher"}, {"enum": ["python", "torchrun", "deepspeed", "command"]}]
    assert properties["workload"]["anyOf"] == [{"$ref": "#/$defs/Workload"}, {"type": "string"}]
    assert properties["axes"]["additionalProperties"]["anyOf"][1]["type"] == "array"
    assert {"type": "integer", "minimum": 1} in properties["sentinel"]["anyOf"]


def test_criteria_are_told_by_name() -> None:
    criterion = json_schema()["$defs"]["CriterionPart"]
    assert criterion["oneOf"] == [{"required": ["metric"]}, {"required": ["ready"]}]
    assert "failed_runs" in criterion["properties"]["metric"]["anyOf"][0]["enum"]
    assert "stage1_stability" in criterion["properties"]["ready"]["anyOf"][0]["enum"]
    assert {"type": "string"} in criterion["properties"]["baseline"]["anyOf"]


def test_every_order_has_a_meaning() -> None:
    assert set(RANK_MEANINGS) == set(RankBy.__args__)  # type: ignore[attr-defined]
