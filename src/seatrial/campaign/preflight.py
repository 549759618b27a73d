"""The checks before a campaign, written down, and the refusal when one of them is red."""

from __future__ import annotations

from seatrial import files
from seatrial.errors import RefusedError
from seatrial.paths import CampaignPaths
from seatrial.preflight.checks import run_checks
from seatrial.records.campaign_plan import CampaignPlan
from seatrial.records.codec import to_json


def refuse_what_can_only_fail(plan: CampaignPlan, paths: CampaignPaths) -> None:
    """Write preflight.json; raise RefusedError naming each red check, the error it prevents and the fix."""
    checks = run_checks(plan)
    files.write_json(paths.preflight, to_json(checks))
    red = [check for check in checks if not check.ok]
    if red:
        lines = [f"{check.name}: {check.found}. Would end in: {check.prevents}. Fix: {check.fix}." for check in red]
        raise RefusedError("refused before anything was started:\n  " + "\n  ".join(lines))
