"""What a plan's criteria ask for and its runs cannot give, told before anything is run.

In: a resolved plan, and the names that are pinned in history. Out: one sentence for each criterion that cannot pass as the plan stands,
most of them because nothing could decide it, with what to change. What depends on how runs go (losses that are told, a steady state) is
not looked at.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from pathlib import Path

from seatrial.errors import did_you_mean
from seatrial.paths import CampaignPaths
from seatrial.plan.names import run_name
from seatrial.records.campaign_plan import SENTINEL, CampaignPlan
from seatrial.records.criteria_catalog import metric_entry
from seatrial.records.stability import LEAST_REPEATS
from seatrial.records.verdict import HOW_TO_NAME_A_BASELINE, Baseline, Criterion

NEEDED_REPEATS = {"stable": LEAST_REPEATS, "throughput_cv_pct": 2}
"""One run has no spread."""
NAMED_BY_NOBODY = CampaignPlan.baseline
"""What `baseline` says where a plan leaves it out."""

Problem = Callable[[Criterion, CampaignPlan], str]


def what_cannot_pass(plan: CampaignPlan, pinned: Collection[str] = ()) -> Iterator[str]:
    """A `baseline` of the plan that is no group, then every criterion that cannot pass."""
    if unknown := _unknown_baseline(plan):
        yield unknown
    for criterion in plan.criteria:
        problem = _problem(criterion, plan, pinned)
        if problem:
            source = f" (of {criterion.ready})" if criterion.ready else ""
            yield f"{criterion.metric}{source} cannot pass: {problem}"


def _problem(criterion: Criterion, plan: CampaignPlan, pinned: Collection[str]) -> str:
    entry = metric_entry(criterion.metric)
    if entry is not None and entry.compares:
        return _of_baseline(criterion.baseline, pinned)
    found = _OF_METRIC.get(criterion.metric)
    return found(criterion, plan) if found else ""


def _unknown_baseline(plan: CampaignPlan) -> str:
    """No error: a folder may hold groups of other plans, and those of a later one."""
    groups, asked = _groups(plan), plan.baseline
    is_there = asked in groups or CampaignPaths(Path(plan.output)).run(run_name(asked, 1)).folder.is_dir()
    if asked == NAMED_BY_NOBODY or is_there:
        return ""
    return f"no group of this plan is called '{asked}', its baseline; {did_you_mean(asked, groups)}"


def _of_baseline(baseline: Baseline | None, pinned: Collection[str]) -> str:
    if baseline is None:
        return f"it compares, and has no baseline; {HOW_TO_NAME_A_BASELINE}"
    if baseline.history and baseline.history not in pinned:
        known = did_you_mean(baseline.history, pinned) if pinned else "nothing is pinned yet"
        return f"no row of history is pinned as '{baseline.history}'; {known} (`seatrial history pin`)"
    if baseline.campaign and not Path(baseline.campaign).is_dir():
        return f"the campaign of its baseline, {baseline.campaign}, is not there; run that one first, or mend the path"
    return ""


def _repeats(criterion: Criterion, plan: CampaignPlan) -> str:
    least = NEEDED_REPEATS.get(criterion.metric) or criterion.at_least or 0
    return f"it takes {least:g} runs of a group, and the plan's repeats are {plan.repeats}; raise repeats" if plan.repeats < least else ""


def _drift(criterion: Criterion, plan: CampaignPlan) -> str:
    return "" if plan.sentinel_group else "the plan has no sentinel; add one, such as `sentinel: 4`"


def _scaling(criterion: Criterion, plan: CampaignPlan) -> str:
    ranks = {run.place.ranks for run in plan.runs if run.mode != SENTINEL}
    only = ", ".join(map(str, ranks))
    return "" if len(ranks) > 1 else f"every run has the same number of ranks ({only}); add an axis such as `place.ranks: [1, 2]`"


def _leaks(criterion: Criterion, plan: CampaignPlan) -> str:
    blind = all(run.telemetry.gpu_s is None and run.telemetry.host_s is None for run in plan.runs)
    return "memory is not sampled: telemetry.gpu_s and telemetry.host_s are null; give one of them seconds" if blind else ""


def _groups(plan: CampaignPlan) -> list[str]:
    return list(dict.fromkeys(run.group for run in plan.runs if run.mode != SENTINEL))


_OF_METRIC: dict[str, Problem] = {
    "counted_runs": _repeats,
    "stable": _repeats,
    "throughput_cv_pct": _repeats,
    "sentinel_drift_pct": _drift,
    "scaling_efficiency": _scaling,
    "leaking_runs": _leaks,
    "leak_mib_per_min": _leaks,
}
