"""Checks of a plan's criteria: metrics and ready sets that exist, scopes and units that fit them, bounds that bind, baselines that name one
thing. Whether a baseline is a group of the matrix is known only when that is expanded: `criteria` says so."""

from __future__ import annotations

from seatrial.errors import did_you_mean
from seatrial.plan.criteria_schema import CriterionPart
from seatrial.plan.criterion_units import units_for
from seatrial.plan.locate import KeyPath
from seatrial.plan.ready_criteria import READY_CRITERIA
from seatrial.plan.schema import Plan
from seatrial.records.criteria_catalog import METRICS, REPORTED, MetricEntry, metric_entry

# What a ready set says by itself.
_OF_THE_SET = ("scope", "at_most", "at_least", "unit", "reason")


def check_criteria(plan: Plan) -> None:
    """Raise a PlanError for the first criterion that could not be judged."""
    for position, asked in enumerate(plan.criteria or ()):
        path: KeyPath = ("criteria", position)
        if (asked.metric is None) == (asked.ready is None):
            raise plan.locations.error(path, _one_of_two(asked))
        if asked.ready is not None:
            _ready(plan, path, asked.ready, asked)
        elif asked.metric is not None:
            _metric(plan, path, asked.metric, asked)


def _one_of_two(asked: CriterionPart) -> str:
    if asked.metric is None:
        return "names neither `metric` nor `ready`; `seatrial plan criteria` lists both"
    return "names both `metric` and `ready`; make two criteria of them"


def _ready(plan: Plan, path: KeyPath, name: str, asked: CriterionPart) -> None:
    known = READY_CRITERIA.get(name)
    if known is None:
        raise plan.locations.error((*path, "ready"), f"no ready criteria are called '{name}'; {did_you_mean(name, READY_CRITERIA)}")
    for key in _OF_THE_SET:
        if getattr(asked, key) != CriterionPart.model_fields[key].default:
            raise plan.locations.error(
                (*path, key), f"belongs to the criteria of {name} themselves; leave it out, or write the one you mean with `metric`"
            )
    if asked.baseline is not None:
        _baseline(plan, path, name, asked, compares=known.compares)


def _metric(plan: Plan, path: KeyPath, name: str, asked: CriterionPart) -> None:
    entry = metric_entry(name)
    if entry is None:
        hint = f"a figure of your own is {REPORTED}NAME" if name == REPORTED else did_you_mean(name, METRICS)
        raise plan.locations.error((*path, "metric"), f"unknown metric '{name}'; {hint}")
    if asked.scope is not None and asked.scope not in entry.scopes:
        raise plan.locations.error(
            (*path, "scope"), f"{name} is not looked at by '{asked.scope}'; {did_you_mean(asked.scope, entry.scopes)}"
        )
    _bounds(plan, path, name, asked, entry)
    _unit(plan, path, name, asked, entry)
    if asked.baseline is not None:
        _baseline(plan, path, name, asked, compares=entry.compares)


def _bounds(plan: Plan, path: KeyPath, name: str, asked: CriterionPart, entry: MetricEntry) -> None:
    low, high = asked.at_least, asked.at_most
    if entry.needs_bound and low is None and high is None:
        raise plan.locations.error(path, f"{name} needs a bound: add at_most or at_least")
    if not entry.needs_bound and (low is not None or high is not None):
        raise plan.locations.error(path, f"{name} holds or does not; leave at_most and at_least out")
    if low is not None and high is not None and low > high:
        raise plan.locations.error(path, f"at_least {low} is above at_most {high}: nothing could pass")


def _unit(plan: Plan, path: KeyPath, name: str, asked: CriterionPart, entry: MetricEntry) -> None:
    # The unit of a figure that the workload reports is the workload's to say; judgement holds the two against each other.
    if asked.unit is None or name.startswith(REPORTED):
        return
    if not entry.unit:
        raise plan.locations.error((*path, "unit"), f"{name} holds or does not, and has no unit; leave it out")
    known = units_for(entry.unit)
    if asked.unit not in known:
        others = f" ({', '.join(known[1:])} would be converted)" if len(known) > 1 else ""
        raise plan.locations.error((*path, "unit"), f"{name} is in {entry.unit}, not in '{asked.unit}'; write {entry.unit}{others}")


def _baseline(plan: Plan, path: KeyPath, name: str, asked: CriterionPart, *, compares: bool) -> None:
    """One thing to compare with, and only where something is compared."""
    where, given = (*path, "baseline"), asked.baseline
    assert given is not None
    if not compares:
        able = ", ".join(metric for metric, entry in METRICS.items() if entry.compares)
        raise plan.locations.error(where, f"{name} is held against a bound, not against a baseline; leave it out ({able} compare)")
    for key in ("group", "campaign", "history"):
        value = getattr(given, key)
        if value is not None and not value.strip():
            raise plan.locations.error((*where, key), "is empty; name one, or leave the key out")
    if given.group is None and given.campaign is None and given.history is None:
        raise plan.locations.error(where, "names nothing; give a group, a campaign's folder or a pinned row of history")
    if given.history is not None and (given.group is not None or given.campaign is not None):
        raise plan.locations.error((*where, "history"), "is a baseline by itself; keep it, or group and campaign")
