"""How long a campaign will take."""

from __future__ import annotations

from collections.abc import Callable

from seatrial.plan.estimate import TimeEstimate, estimate
from seatrial.records.campaign_plan import CampaignPlan

PLAN = {"name": "x", "workload": "dummy", "axes": {"micro_batch": [8, 16, 32]}, "repeats": 2}


def test_nothing_is_known_before_the_first_run(resolved: Callable[..., CampaignPlan]) -> None:
    known = estimate(resolved(PLAN), {"another plan's key": 5.0})
    assert known == TimeEstimate(runs=6, total_s=None, at_most_s=None, measured_groups=0, groups=3)


def test_groups_not_yet_measured_take_the_mean_of_the_others(resolved: Callable[..., CampaignPlan]) -> None:
    plan = resolved(PLAN)
    keys = {run.group: run.group_key for run in plan.runs}
    known = estimate(plan, {keys["mb8"]: 10.0, keys["mb16"]: 20.0})
    assert known == TimeEstimate(runs=6, total_s=90.0, at_most_s=None, measured_groups=2, groups=3)


def test_limits_and_budget_bound_it(resolved: Callable[..., CampaignPlan]) -> None:
    assert estimate(resolved({**PLAN, "limits": {"run_s": 30}}), {}).at_most_s == 180.0
    assert estimate(resolved({**PLAN, "limits": {"run_s": 30}, "budget": "2m"}), {}).at_most_s == 120.0
    assert estimate(resolved({**PLAN, "budget": "2m"}), {}).at_most_s == 120.0


def test_only_the_chosen_runs_count(resolved: Callable[..., CampaignPlan]) -> None:
    plan = resolved({**PLAN, "limits": {"run_s": 30}}, only=["mb8"])
    known = estimate(plan, {run.group_key: 10.0 for run in plan.runs if run.group == "mb8"})
    assert known == TimeEstimate(runs=2, total_s=20.0, at_most_s=60.0, measured_groups=1, groups=1)
