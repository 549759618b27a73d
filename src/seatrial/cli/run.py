"""`seatrial run PLAN`: a plan file to a verdict."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import typer

from seatrial.cli.options import (
    Again,
    AsJson,
    Budget,
    Heartbeat,
    MasterAddr,
    MasterPort,
    NodeRank,
    Only,
    Out,
    Overrides,
    PlanFile,
    Track,
    Yes,
)

if TYPE_CHECKING:
    from seatrial.records.campaign_plan import CampaignPlan

EXAMPLES = "seatrial run plans/tiny-lm-demo.yaml\n\nseatrial run plan.yaml --set steps=500 --only 'mb16_*' --budget 2h"


def register(app: typer.Typer) -> None:
    """Add the verb."""
    app.command("run", epilog=EXAMPLES)(run)


def run(
    plan: PlanFile,
    set: Overrides = None,
    only: Only = None,
    budget: Budget = None,
    out: Out = None,
    track: Track = None,
    heartbeat: Heartbeat = None,
    again: Again = False,
    yes: Yes = False,
    json: AsJson = False,
    node_rank: NodeRank = None,
    master_addr: MasterAddr = None,
    master_port: MasterPort = None,
) -> int:
    """Run a plan: every group, every repeat, then rank and judge. The same command again resumes.

    Finished runs are not run again; runs whose settings changed are. Exit code 0 PASS, 2 FAIL, 3 INCONCLUSIVE, 130 interrupted.
    """
    from seatrial.cli.pernode import NodeWords, carry_out_here

    words = NodeWords(rank=node_rank, address=master_addr, port=master_port)
    campaign = resolved(plan, set, only, budget, out)
    return carry_out_here(campaign, words, yes=yes, as_json=json, track=track or (), heartbeat_s=heartbeat, again=again)


def resolved(plan: Path, set: Overrides, only: Only, budget: Budget, out: Out) -> CampaignPlan:
    """The plan file as a CampaignPlan."""
    from seatrial.cli.pernode import refuse_folder_of_the_moment
    from seatrial.plan.load import load_plan
    from seatrial.plan.resolve import resolve
    from seatrial.units import parse_limit_s

    budget_s = parse_limit_s(budget, "--budget") if budget else None
    loaded = load_plan(plan, set or ())
    refuse_folder_of_the_moment(loaded.place.kind, str(out) if out else loaded.output)
    return resolve(loaded, source=str(plan), cwd=Path.cwd(), only=only or (), budget_s=budget_s, output=out)
