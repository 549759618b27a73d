"""The checks before a campaign, written down, and the refusal when one of them is red."""

from __future__ import annotations

from pathlib import Path

from seatrial import files
from seatrial.errors import RefusedError
from seatrial.paths import CampaignPaths
from seatrial.preflight.checks import run_checks
from seatrial.records.campaign_plan import CampaignPlan
from seatrial.records.codec import to_json


def refuse_what_can_only_fail(plan: CampaignPlan) -> None:
    """Write preflight.json; raise RefusedError naming each red check, the error it prevents and the fix."""
    checks = run_checks(plan)
    red = [check for check in checks if not check.ok]
    folder = Path(plan.output)
    if not any(check.name.startswith("folder ") for check in red):
        files.write_json(CampaignPaths(folder).preflight, to_json(checks))
    if red:
        lines = [f"{check.name}: {check.found}. Would end in: {check.prevents}. Fix: {check.fix}." for check in red]
        raise RefusedError("refused before anything was started:\n  " + "\n  ".join(lines))
