"""`seatrial report OUT`: everything again from disk, and the page opened, printed, compared or as pictures."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from seatrial.cli.options import AsJson, Folder, Track
from seatrial.cli.say import people, print_json

if TYPE_CHECKING:
    from rich.console import Console

    from seatrial.cli.report_extras import Extras
    from seatrial.records.results import CampaignResults

EXAMPLES = (
    "seatrial report outputs/tiny-lm-demo --open\n\n"
    "seatrial report tuesday --compare monday --open\n\n"
    "seatrial report outputs/tiny-lm-demo --pdf --png\n\n"
    "seatrial report outputs/tiny-lm-demo --svg picture.svg"
)
PAGE = "The page"

OpenIt = Annotated[
    bool,
    typer.Option(
        "--open",
        help="Open the page in your browser: summary.html, or the one that --compare made. Where there is no browser, say how to get it.",
        rich_help_panel=PAGE,
    ),
]
Other = Annotated[
    Path | None,
    typer.Option(
        "--compare",
        metavar="OUT2",
        help="Also lay this campaign beside OUT: what `seatrial compare OUT OUT2` says of the two, both rankings, what differs, and the "
        "charts of both together, in OUT/compare_OUT2.html. Nothing is written into OUT2.",
        rich_help_panel=PAGE,
        show_default=False,
    ),
]
Pdf = Annotated[
    bool,
    typer.Option(
        "--pdf",
        help="Also print the page as summary.pdf, by the Chromium, Chrome or Edge on PATH, or that SEATRIAL_BROWSER names.",
        rich_help_panel=PAGE,
    ),
]
Png = Annotated[
    bool,
    typer.Option(
        "--png", help="Also draw the main charts as pictures, OUT/charts/NAME.png, which summary.md then shows.", rich_help_panel=PAGE
    ),
]
Svg = Annotated[
    Path | None, typer.Option("--svg", metavar="FILE", help="Also draw the terminal report as an SVG picture; its folder must be there.")
]


def register(app: typer.Typer) -> None:
    """Add the verb."""
    app.command("report", epilog=EXAMPLES)(report)


def report(
    out: Folder,
    open_it: OpenIt = False,
    compare: Other = None,
    pdf: Pdf = False,
    png: Png = False,
    svg: Svg = None,
    track: Track = None,
    json: AsJson = False,
) -> int:
    """Make every table and report of a campaign again from what is on disk, and show the ranking and the verdict.

    Works on unfinished campaigns, on folders copied from another machine, and on folders that the original stage-1 scripts wrote.

    What is made of a folder of the original scripts lies in its subfolder `seatrial`, and nothing else in it is touched.

    Exit codes are those of `run`; what was asked for besides and could not be made gives 1, after all else is done.
    """
    from seatrial.campaign.original import campaign_of
    from seatrial.campaign.results import remake_or_say
    from seatrial.cli.report_extras import Extras, refuse_what_cannot_be
    from seatrial.cli.track import track_all, usable_trackers
    from seatrial.errors import CampaignError
    from seatrial.report.terminal import print_report

    asked = Extras(open_it=open_it, compare=compare, pdf=pdf, png=png, svg=svg)
    refuse_what_cannot_be(asked, out)
    if out.is_dir() and not os.access(out, os.W_OK | os.X_OK):
        raise CampaignError(f"{out} cannot be written to, and that is where reports go: copy it to a place of your own and report the copy")
    trackers = usable_trackers(track or ())
    campaign = campaign_of(out)
    console = people(as_json=json)
    results, unwritten = remake_or_say(campaign)
    print_report(results, console)
    track_all(trackers, campaign, console)
    return _finish(out, results, asked, console, unwritten, as_json=json)


def _finish(out: Path, results: CampaignResults, asked: Extras, console: Console, unwritten: str, *, as_json: bool) -> int:
    """What was asked for besides, then the machine's line; what could not be made is said last."""
    from seatrial.cli.carry_out import last_line
    from seatrial.cli.report_extras import make_extras
    from seatrial.errors import CampaignError

    made = make_extras(asked, out, results, console, unwritten)
    if as_json:
        print_json({**last_line(results), **made.told()})
    if made.troubles:
        raise CampaignError("; ".join(made.troubles))
    return results.verdict.verdict.exit_code
