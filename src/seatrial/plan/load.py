"""A plan file, or a mapping made from a command, to a checked `Plan`.

In: a path and `--set` overrides. Out: a `Plan` in which every key is known, of the right type and at peace with the others; each key
remembers its file and line. `resolve` takes it from there.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from seatrial.errors import PlanError
from seatrial.plan.checks import check
from seatrial.plan.locate import Locations
from seatrial.plan.merge import read_chain
from seatrial.plan.overrides import apply_override
from seatrial.plan.plain_text import refuse_what_cannot_be_carried
from seatrial.plan.problems import plan_error
from seatrial.plan.schema import Plan
from seatrial.plan.short_forms import spelled_out
from seatrial.plan.unbuilt import refuse_unbuilt
from seatrial.plan.yaml_text import parse
from seatrial.records.run_spec import Scalar


def load_plan(path: Path, overrides: Sequence[str] = ()) -> Plan:
    """The plan in `path`, with what it extends beneath and `overrides` on top."""
    mapping, locations = read_chain(path)
    for override in overrides:
        mapping = apply_override(mapping, locations, override)
    return _checked(mapping, locations)


def plan_from_mapping(mapping: dict[str, Any], source: str, overrides: Sequence[str] = ()) -> Plan:
    """A plan that was never a file; `source` is what errors name."""
    if "extends" in mapping:
        raise PlanError("only a plan file can extend another", file=source, key="extends")
    locations = Locations(source)
    mapping = spelled_out(mapping, locations)
    for override in overrides:
        mapping = apply_override(mapping, locations, override)
    return _checked(mapping, locations)


def parse_scalars(text: str, source: str) -> list[Scalar]:
    """The values in `8,16` or `[8, 16]`, as `-P bs=8,16` gives them."""
    written = text if text.lstrip().startswith("[") else f"[{text}]"
    try:
        values = parse(written, source).value
    except PlanError:
        values = None
    if not isinstance(values, list) or any(isinstance(value, (list, dict)) for value in values):
        raise PlanError(f"'{text}' must be values with commas between them, as in 8,16", file=source)
    return values


def _checked(mapping: dict[str, Any], locations: Locations) -> Plan:
    refuse_what_cannot_be_carried(mapping, locations)
    refuse_unbuilt(mapping, locations)
    try:
        plan = Plan.model_validate(mapping)
    except ValidationError as error:
        raise plan_error(error, Plan, locations) from None
    plan.located(locations)
    check(plan)
    return plan
