"""The plan's models as JSON Schema, short forms included: for editors, for docs/plan.md, and for checking a plan elsewhere."""

from __future__ import annotations

from typing import Any

from seatrial.plan.criteria_schema import complete_criterion
from seatrial.plan.schema import SHORT_FORMS, Plan


def json_schema() -> dict[str, Any]:
    """Of a whole plan file."""
    schema = Plan.model_json_schema()
    for key, stands_for in SHORT_FORMS.items():
        inner = schema["$defs"][Plan.model_fields[key].annotation.__name__]["properties"][stands_for]  # type: ignore[union-attr]
        word = {name: inner[name] for name in ("enum", "const") if name in inner} or {"type": "string"}
        _also(schema["properties"][key], word)
    _also(schema["properties"]["axes"]["additionalProperties"], schema["$defs"]["Axis"]["properties"]["values"])
    for key, field in Plan.model_fields.items():
        # Pydantic leaves a description out where it equals that of the part.
        schema["properties"][key].setdefault("description", field.description)
    complete_criterion(schema["$defs"]["CriterionPart"])
    schema["properties"]["sentinel"]["anyOf"].append({"type": "integer", "minimum": 1})
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema, "title": "Seatrial plan"}


def _also(where: dict[str, Any], short: dict[str, Any]) -> None:
    where["anyOf"] = [{"$ref": where.pop("$ref")}, {name: item for name, item in short.items() if name not in ("description", "title")}]
