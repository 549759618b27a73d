"""`seatrial diff RUN RUN`: what differs between two runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from seatrial.cli.options import AsJson
from seatrial.cli.say import people, print_json, print_lines

EXAMPLES = (
    "seatrial diff outputs/tiny-lm-demo/mb8_nw0_r1 outputs/tiny-lm-demo/mb16_nw0_r1\n\n"
    "seatrial diff monday/mb8_r1 tuesday/mb8_r1/attempt-2 --json"
)
RUN_HELP = "A run's folder, OUT/<group>_r<n>, or one attempt of it; the two may be of different campaigns."
Run = Annotated[Path, typer.Argument(metavar="RUN", help=RUN_HELP, show_default=False)]


def register(app: typer.Typer) -> None:
    """Add the verb."""
    app.command("diff", epilog=EXAMPLES)(diff)


def diff(before: Run, after: Run, json: AsJson = False) -> int:
    """Show what differs between two runs: settings, environment, versions, hardware, code, outcome; and whether they may be averaged.

    Of a run with several attempts the newest that came to its own end is taken. The exit code is 0 whether they differ or not.
    """
    from seatrial.campaign.run_side import run_side
    from seatrial.report.run_diff import diff_runs
    from seatrial.report.run_diff_text import diff_json, diff_lines

    found = diff_runs(run_side(before), run_side(after))
    console = people(as_json=json)
    print_lines(console, diff_lines(found, console.width))
    if json:
        print_json(diff_json(found))
    return 0
