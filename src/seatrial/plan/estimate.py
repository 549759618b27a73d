"""How long a campaign will take, from runs already measured."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from seatrial.records.campaign_plan import CampaignPlan
from seatrial.records.run_spec import RunSpec


@dataclass(frozen=True, kw_only=True)
class TimeEstimate:
    """Time for the runs of a plan, those chosen by `--only` where there are such, one after the other."""

    runs: int
    total_s: float | None
    """None when no run of the plan was measured yet."""
    at_most_s: float | None
    """Bound from limits.run_s and the budget; None where neither is set."""
    measured_groups: int
    groups: int


def estimate(plan: CampaignPlan, known_s: Mapping[str, float]) -> TimeEstimate:
    """Sum over the runs: each group's own duration by group_key, the mean of the known ones for groups not yet measured."""
    runs = plan.chosen
    keys = [run.group_key for run in runs]
    measured = {key: known_s[key] for key in keys if key in known_s}
    mean_s = fmean(measured.values()) if measured else None
    return TimeEstimate(
        runs=len(keys),
        total_s=None if mean_s is None else sum(measured.get(key, mean_s) for key in keys),
        at_most_s=_at_most_s(runs, plan.budget_s),
        measured_groups=len(measured),
        groups=len(set(keys)),
    )


def _at_most_s(runs: Sequence[RunSpec], budget_s: float | None) -> float | None:
    limits = [run.limits.run_s for run in runs if run.limits.run_s is not None]
    bounds = [sum(limits)] if runs and len(limits) == len(runs) else []
    bounds += [budget_s] if budget_s is not None else []
    return min(bounds) if bounds else None
