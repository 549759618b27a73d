"""What can be said of a plan's criteria before anything is run: those that cannot pass. `plan show`, `run` and `sweep` tell them."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console

    from seatrial.records.campaign_plan import CampaignPlan


def say_what_cannot_pass(plan: CampaignPlan, console: Console) -> None:
    """One line for each; the campaign goes on all the same."""
    from seatrial.errors import printable
    from seatrial.plan.cannot_pass import what_cannot_pass

    for sentence in what_cannot_pass(plan, _pinned(plan)):
        console.print(printable(sentence), style="yellow", markup=False, highlight=False, soft_wrap=True)


def _pinned(plan: CampaignPlan) -> list[str]:
    """Names in history, which is only opened where a criterion asks for one."""
    if not any(criterion.baseline and criterion.baseline.history for criterion in plan.criteria):
        return []
    from seatrial.history.rows import history_path, pinned_names

    return pinned_names(history_path())
