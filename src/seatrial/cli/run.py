"""`seatrial run PLAN`: a plan file to a verdict."""

from __future__ import annotations

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

    Finished runs are not run again; runs whose settings changed are.

    Exit code 0 PASS; 2 FAIL, or refused before the start; 3 INCONCLUSIVE; 130 interrupted; 1 a plan or command
    that cannot be read, or a disk that did not take a file.
    """
    from seatrial.cli.carry_out import carry_out_here
    from seatrial.cli.pernode import NodeWords
    from seatrial.cli.read_plan import read_plan

    campaign = read_plan(plan, set, only, budget, out)
    words = NodeWords(rank=node_rank, address=master_addr, port=master_port)
    return carry_out_here(campaign, words, yes=yes, as_json=json, track=track or (), heartbeat_s=heartbeat, again=again)
