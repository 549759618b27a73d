"""`seatrial report OUT`: everything again from disk."""

from __future__ import annotations

import json as json_text
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from seatrial.cli.options import AsJson, Folder, Track

if TYPE_CHECKING:
    pass

EXAMPLES = "seatrial report outputs/tiny-lm-demo\n\nseatrial report outputs/tiny-lm-demo --svg picture.svg"


def register(app: typer.Typer) -> None:
    """Add the verb."""
    app.command("report", epilog=EXAMPLES)(report)


def report(
    out: Folder,
    svg: Annotated[Path | None, typer.Option("--svg", metavar="FILE", help="Also draw the terminal report as an SVG picture.")] = None,
    track: Track = None,
    json: AsJson = False,
) -> int:
    """Make every table and report of a campaign again from what is on disk, and show the ranking and the verdict.

    Works on unfinished campaigns, on folders copied from another machine, and on folders that the original stage-1 scripts wrote: what is
    made of one of those lies in its subfolder `seatrial`, and nothing else in it is touched. Exit codes are those of `run`.
    """
    from rich.console import Console

    from seatrial.campaign.original import campaign_of
    from seatrial.campaign.results import remake_or_say
    from seatrial.cli.carry_out import last_line
    from seatrial.cli.track import track_all, usable_trackers
    from seatrial.errors import CampaignError
    from seatrial.report.terminal import print_report, save_svg

    if out.is_dir() and not os.access(out, os.W_OK | os.X_OK):
        raise CampaignError(f"{out} cannot be written to, and that is where reports go: copy it to a place of your own and report the copy")
    trackers = usable_trackers(track or ())
    campaign = campaign_of(out)
    results, unwritten = remake_or_say(campaign)
    print_report(results, Console(stderr=json, emoji=False))
    if svg is not None:
        save_svg(results, svg)
    track_all(trackers, campaign, Console(stderr=json, emoji=False))
    if json:
        sys.stdout.write(json_text.dumps(last_line(results)) + "\n")
    if unwritten:
        raise CampaignError(unwritten)
    return results.verdict.verdict.exit_code
