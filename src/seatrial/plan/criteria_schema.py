"""The key `criteria` as pydantic models: a gate, or a ready set, and the baseline it compares with."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from seatrial.plan.part import Part
from seatrial.plan.ready_criteria import READY_CRITERIA
from seatrial.records.criteria_catalog import METRICS, SCOPES


class BaselinePart(Part):
    """What a metric that compares is held against. Short form: the name of a group."""

    group: str | None = Field(default=None, max_length=200)
    """A group of this plan; with `campaign`, one of that campaign, its winner when left out."""
    campaign: str | None = None
    """The output folder of another campaign, relative to where seatrial is started."""
    history: str | None = Field(default=None, max_length=200)
    """A row that `seatrial history pin` put under this name."""


class CriterionPart(Part):
    """One gate that the verdict rests on, or a ready set of them."""

    metric: str | None = None
    """What is looked at; `seatrial plan criteria` lists all metrics, with their units."""
    ready: str | None = None
    """In place of a metric: a ready set of criteria by name, whose bounds and reasons are its own. `seatrial plan criteria` lists them."""
    scope: str | None = None
    """Where: `campaign`, `every_run`, `every_group` or `winner`. Each metric has its own default."""
    at_most: float | None = None
    """The largest value that passes."""
    at_least: float | None = None
    """The smallest value that passes."""
    unit: str | None = Field(default=None, max_length=40)
    """Unit of the bounds: the metric's own, or one that converts to it exactly: `s` for `ms`, `GiB` for `MiB`, `pct` for a ratio."""
    baseline: BaselinePart | None = None
    """For metrics that compare: what with. The plan's `baseline` when left out, where that is one of its groups."""
    reason: str = ""
    """Why the gate is there, for whoever reads the verdict."""


def complete_criterion(criterion: dict[str, Any]) -> None:
    """Add to the JSON Schema of a criterion what its types do not say: known names, and the short form of a baseline."""
    properties = criterion["properties"]
    properties["metric"]["anyOf"] = [{"enum": sorted(METRICS)}, {"type": "string", "pattern": r"^reported\..+$"}, {"type": "null"}]
    properties["ready"]["anyOf"] = [{"enum": sorted(READY_CRITERIA)}, {"type": "null"}]
    properties["scope"]["anyOf"] = [{"enum": list(SCOPES)}, {"type": "null"}]
    properties["baseline"]["anyOf"].append({"type": "string"})
    criterion["oneOf"] = [{"required": ["metric"]}, {"required": ["ready"]}]
