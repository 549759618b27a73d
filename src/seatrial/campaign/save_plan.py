"""The plan kept in its campaign's folder, where every later stage and every verb reads it. In: a CampaignPlan. Out: its short hash."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace

from seatrial import files
from seatrial.launch.prepare import masked_spec
from seatrial.machine.secrets import mask_text
from seatrial.paths import CampaignPaths
from seatrial.records.campaign_plan import CampaignPlan
from seatrial.records.codec import to_json

PLAN_HASH_DIGITS = 16


def save_plan(plan: CampaignPlan, paths: CampaignPaths) -> str:
    """Keep the plan in the folder: as the latest, and under its name beside the plans that ran here before. Returns its short hash."""
    stored = to_json(replace(plan, source=mask_text(plan.source), runs=tuple(masked_spec(spec) for spec in plan.runs)))
    files.write_json(paths.plans / f"{plan.name}.json", stored)
    files.write_json(paths.plan, stored)
    # Which runs of it were asked for this time, and where they are put, makes it no other plan.
    same = {name: value for name, value in stored.items() if name not in ("selected", "output", "source")}
    return hashlib.sha256(json.dumps(same, sort_keys=True).encode()).hexdigest()[:PLAN_HASH_DIGITS]
