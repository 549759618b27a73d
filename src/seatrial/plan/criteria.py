"""A plan's criteria as judgement takes them: ready sets spelled out, bounds in the metric's own unit, baselines found.

In: a checked `Plan`, the groups of its matrix and the folder it was started in. Out: `records.verdict.Criterion`, or a PlanError at a
baseline that is no group of the matrix.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from pathlib import Path

from seatrial.errors import did_you_mean
from seatrial.plan.criteria_schema import CriterionPart
from seatrial.plan.criterion_units import converted
from seatrial.plan.locate import KeyPath
from seatrial.plan.ready_criteria import READY_CRITERIA
from seatrial.plan.schema import Plan
from seatrial.records.criteria_catalog import METRICS, metric_entry
from seatrial.records.verdict import Baseline, Criterion

_FAILED = METRICS["failed_runs"]
NO_CRITERIA = (Criterion(metric="failed_runs", scope=_FAILED.default_scope, at_most=0, unit=_FAILED.unit),)
"""What a plan without `criteria` is held to."""


def criteria_of(plan: Plan, groups: Sequence[str], cwd: Path) -> tuple[Criterion, ...]:
    """Every criterion of the plan, in its order; a ready set stands where it is named."""
    if plan.criteria is None:
        return NO_CRITERIA
    return tuple(made for position, asked in enumerate(plan.criteria) for made in _of_part(plan, position, asked, groups, cwd))


def _of_part(plan: Plan, position: int, asked: CriterionPart, groups: Sequence[str], cwd: Path) -> Iterator[Criterion]:
    baseline = _baseline(plan, position, asked, groups, cwd)
    for criterion in _without_baseline(asked):
        entry = metric_entry(criterion.metric)
        compares = entry is not None and entry.compares
        yield dataclasses.replace(criterion, baseline=baseline if compares else None, ready=asked.ready or "")


def _without_baseline(asked: CriterionPart) -> tuple[Criterion, ...]:
    if asked.ready is not None:
        return READY_CRITERIA[asked.ready].criteria
    entry = metric_entry(asked.metric or "")
    assert entry is not None and asked.metric is not None
    # Only the workload knows the unit of what it reports: the plan's is kept beside the bound.
    unit = entry.unit or asked.unit or ""
    return (
        Criterion(
            metric=asked.metric,
            scope=asked.scope or entry.default_scope,
            at_most=converted(asked.at_most, asked.unit, unit),
            at_least=converted(asked.at_least, asked.unit, unit),
            unit=unit,
            reason=asked.reason,
        ),
    )


def _baseline(plan: Plan, position: int, asked: CriterionPart, groups: Sequence[str], cwd: Path) -> Baseline | None:
    """As the criterion says; else the plan's, where that is one of its groups: `old_like` stands there when nobody named one."""
    given = asked.baseline
    if given is None:
        return Baseline(group=plan.baseline) if plan.baseline in groups else None
    if given.group is not None and given.campaign is None and given.group not in groups:
        path: KeyPath = ("criteria", position, "baseline", "group")
        raise plan.locations.error(path, f"no group of this plan is called '{given.group}'; {did_you_mean(given.group, groups)}")
    campaign = "" if given.campaign is None else _folder(plan, position, given.campaign, cwd)
    return Baseline(group=given.group or "", campaign=campaign, history=given.history or "")


def _folder(plan: Plan, position: int, written: str, cwd: Path) -> str:
    """Absolute, as the plan's own output folder is: the verdict may be made again from another folder."""
    try:
        return str(cwd / Path(written).expanduser())
    except RuntimeError as error:
        path: KeyPath = ("criteria", position, "baseline", "campaign")
        why = f"{written} cannot be found: nobody's home folder is known by that name; write the whole path"
        raise plan.locations.error(path, why) from error
