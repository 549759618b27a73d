"""The checks before a campaign, written down; the refusal when one of them is red, the warnings when they are not."""

from __future__ import annotations

from seatrial import files
from seatrial.errors import RefusedError
from seatrial.paths import CampaignPaths
from seatrial.preflight.checks import run_checks
from seatrial.records.campaign_plan import CampaignPlan
from seatrial.records.check import Check
from seatrial.records.codec import to_json


def refuse_what_can_only_fail(plan: CampaignPlan, paths: CampaignPaths) -> tuple[Check, ...]:
    """Write preflight.json; raise RefusedError naming each red check. What is amiss and no reason to stop is returned, to be said."""
    checks = run_checks(plan)
    files.write_json(paths.preflight, to_json(checks))
    amiss = [check for check in checks if not check.ok]
    red = [check for check in amiss if check.refuses]
    if red:
        raise RefusedError("refused before anything was started:\n  " + "\n  ".join(one_line(check) for check in red))
    return tuple(amiss)


def one_line(check: Check) -> str:
    """A check that is not ok, for people."""
    return f"{check.name}: {check.found}. Would end in: {check.prevents}. Fix: {check.fix}."
