"""A campaign read, measured, grouped and ranked, before anything is judged.

In: a campaign's folder. Out: a `GroupedCampaign`; nothing is written. Criteria are not evaluated, so that a baseline in another campaign
can be read while this one is judged, and two campaigns that name each other do not recurse.
"""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import TypedDict, Unpack

from seatrial.collect.attempts import StoredPlans, preflight_causes, read_stored, read_stored_plans
from seatrial.core.errors import CampaignError
from seatrial.core.paths import ANY_ATTEMPT, CampaignPaths
from seatrial.records.attempt import Attempt
from seatrial.records.caution import Caution
from seatrial.records.figures import ANY_THROUGHPUT, FIGURES
from seatrial.records.measure import GroupSummary
from seatrial.records.plan import CampaignPlan, RunSpec
from seatrial.records.results import GroupedCampaign, MeasuredRun
from seatrial.results.cache import MeasureCache
from seatrial.results.folders import find_campaign
from seatrial.results.workers import Workers

NO_POLARS = "polars is not installed here, so no tables can be computed; copy the folder to a machine that has it and run `seatrial report`"


def read_campaign_at(folder: Path) -> GroupedCampaign:
    """The campaign in a folder of ours or of the original stage-1 scripts."""
    return replace(group_campaign(CampaignPaths(find_campaign(folder))), output=str(folder))


class GatherOptions(TypedDict, total=False):
    """How a campaign is read."""

    tail_points: int | None
    """Timing points that stage 1's tail columns average; the plan's by default."""
    baseline: str | None
    """The group that speed-ups are against; the plan's by default."""
    cache: MeasureCache | None
    allow_confounded: bool


def group_campaign(paths: CampaignPaths, *, charts: bool = False, **options: Unpack[GatherOptions]) -> GroupedCampaign:
    """The campaign as it is on disk now; with charts of its current runs where requested."""
    cache, allow_confounded = options.get("cache"), options.get("allow_confounded", False)
    if not can_measure():
        raise CampaignError(NO_POLARS)
    # Workers start while this process imports its own modules and reads the attempts.
    with Workers(0 if cache else sum(1 for _ in paths.folder.glob(f"*/{ANY_ATTEMPT}"))) as workers:
        from seatrial.analyse.charts.run_charts import detail_for
        from seatrial.analyse.groups import summarise_groups
        from seatrial.analyse.ranking import rank_groups
        from seatrial.analyse.stability import with_possible_causes

        read = require_plans(paths)
        plans = read.plans
        specs = planned_specs(plans)
        stored = read_stored(paths, plans)
        tail = options.get("tail_points")
        attempts = [_with_tail(_with_declared(with_current_spec(attempt, specs)), tail) for attempt in stored.attempts]
        detail = detail_for(sum(attempt.current for attempt in attempts)) if charts else None
        runs = (cache or workers).measure_all(attempts, detail)
    baseline = options.get("baseline")
    baseline = plans[-1].baseline if baseline is None else baseline
    groups = with_possible_causes(summarise_groups(runs, baseline, allow_confounded=allow_confounded), preflight_causes(paths.preflight))
    rank_by, unknown = _rank_by(plans[-1])
    return GroupedCampaign(
        output=str(paths.folder),
        baseline_group=baseline,
        runs=runs,
        pending=_pending(plans, runs),
        groups=groups,
        ranking=rank_groups(_in_plan_order(groups, plans[-1]), rank_by, allow_confounded=allow_confounded),
        plans=tuple(plans),
        cautions=(*read.cautions, *stored.cautions, *unknown),
    )


def _in_plan_order(groups: Sequence[GroupSummary], plan: CampaignPlan) -> list[GroupSummary]:
    """Sorted by the values of the axes as the plan lists them: runs are shuffled. Groups of other plans come last, in their order."""

    def place(group: GroupSummary) -> tuple[int, ...]:
        return tuple(
            list(values).index(group.axes[axis]) if group.axes.get(axis) in values else len(values) for axis, values in plan.axes.items()
        )

    return sorted(groups, key=place)


def can_measure() -> bool:
    """Whether polars is installed: campaigns can run without it and be read elsewhere."""
    return importlib.util.find_spec("polars") is not None


def require_plans(paths: CampaignPaths) -> StoredPlans:
    """The folder's plans, the latest last; a CampaignError where there is none."""
    read = read_stored_plans(paths)
    if read.plans:
        return read
    if any(os.path.lexists(path) for path in (paths.plan, *paths.plans.glob("*.json"))):
        raise CampaignError(
            f"no plan in {paths.folder} can be read: plan.json and plans/ are damaged; run the plan again into this folder, which keeps "
            "every finished run, or restore plan.json from a copy"
        )
    raise CampaignError(f"{paths.folder} holds no campaign: there is no plan in it; name the folder that `seatrial run` wrote to")


Specs = Mapping[tuple[str, str], RunSpec]
"""Keyed by run and hash."""


def planned_specs(plans: Sequence[CampaignPlan]) -> Specs:
    """Every run that the plans ask for."""
    return {(spec.run, spec.hash): spec for plan in plans for spec in plan.runs}


def with_current_spec(attempt: Attempt, specs: Specs) -> Attempt:
    """The attempt with the current plan's spec: window, patterns and lane may change without a new run."""
    spec = specs.get((attempt.spec.run, attempt.spec.hash))
    return attempt if spec is None else replace(attempt, spec=spec)


def _with_declared(attempt: Attempt) -> Attempt:
    """The attempt with its bundled workload's declarations about effective settings, where an earlier version did not record them."""
    workload = attempt.spec.workload
    if workload.module is None or workload.follows:
        return attempt
    follows, alike_by = _declared_by(workload.name)
    declared = replace(workload, follows=follows, alike_by=alike_by)
    return replace(attempt, spec=replace(attempt.spec, workload=declared)) if follows else attempt


@cache
def _declared_by(workload: str) -> tuple[dict[str, tuple[str, ...]], dict[str, str]]:
    from seatrial.plan import workloads

    if workload not in workloads.available_workloads():
        return {}, {}
    return workloads.follows(workload), workloads.alike_by(workload)


def _with_tail(attempt: Attempt, tail_points: int | None) -> Attempt:
    if tail_points is None:
        return attempt
    timing = replace(attempt.spec.timing, tail_points=tail_points)
    return replace(attempt, spec=replace(attempt.spec, timing=timing))


def _pending(plans: Sequence[CampaignPlan], runs: tuple[MeasuredRun, ...]) -> tuple[str, ...]:
    """Runs of the plans without an attempt that ended by itself, in the plans' order."""
    ended = {run.attempt.spec.hash for run in runs if run.outcome is not None and not run.outcome.is_cut_short}
    return tuple(spec.run for plan in plans for spec in plan.chosen if spec.hash not in ended)


def _rank_by(plan: CampaignPlan) -> tuple[str, list[Caution]]:
    """What to rank by; throughput where the plan, damaged or of a later version, names an unknown metric."""
    if plan.rank_by in (ANY_THROUGHPUT, *FIGURES):
        return plan.rank_by, []
    text = f"The plan ranks by '{plan.rank_by[:40]}', which this version does not know; {ANY_THROUGHPUT} is used instead."
    return ANY_THROUGHPUT, [Caution(kind="unknown_figure", text=text)]
