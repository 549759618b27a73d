"""A plan file and the options beside it as a CampaignPlan: what `run`, `plan show` and `doctor` begin with."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from seatrial.cli.options import Budget, Only, Out, Overrides
    from seatrial.records.campaign_plan import CampaignPlan


def read_plan(plan: Path, set: Overrides, only: Only, budget: Budget, out: Out) -> CampaignPlan:
    """The plan, every run of it resolved; a PlanError or UsageError for what cannot be."""
    from seatrial.cli.pernode import refuse_folder_of_the_moment
    from seatrial.plan.load import load_plan
    from seatrial.plan.resolve import resolve

    budget_s = budget_of(budget)
    loaded = load_plan(plan, set or ())
    refuse_folder_of_the_moment(loaded.place.kind, str(out) if out else loaded.output)
    return resolve(loaded, source=str(plan), cwd=Path.cwd(), only=only or (), budget_s=budget_s, output=out)


def budget_of(budget: Budget) -> float | None:
    """`--budget` in seconds; None where it is not given."""
    from seatrial.units import parse_limit_s

    return parse_limit_s(budget, "--budget") if budget else None
