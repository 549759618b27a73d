"""`seatrial diff RUN RUN`: what differs between two runs."""

from __future__ import annotations

import json as json_text
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from seatrial.cli.options import AsJson

if TYPE_CHECKING:
    from seatrial.records.attempt import Attempt
    from seatrial.report.run_diff import RunSide

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
    from rich.console import Console

    from seatrial.report.run_diff import diff_runs
    from seatrial.report.run_diff_text import diff_json, diff_lines

    found = diff_runs(run_side(before), run_side(after))
    people = Console(stderr=json, emoji=False)
    people.print("\n".join(diff_lines(found, people.width)), markup=False, highlight=False, soft_wrap=True)
    if json:
        sys.stdout.write(json_text.dumps(diff_json(found)) + "\n")
    return 0


def run_side(folder: Path) -> RunSide:
    """A run as `diff_runs` takes it: of several attempts the newest that came to its own end."""
    from seatrial.collect.effective import read_effective
    from seatrial.files import read_json
    from seatrial.paths import AttemptPaths
    from seatrial.report.run_diff import RunSide

    attempt = _attempt(folder)
    paths = AttemptPaths(Path(attempt.folder))
    recorded = read_json(paths.environment)
    variables = recorded.get("variables") if isinstance(recorded, dict) else None
    return RunSide(
        attempt=attempt,
        effective=read_effective(paths.events(0), attempt),
        environment=dict(_named_values(variables)),
    )


def _attempt(folder: Path) -> Attempt:
    from seatrial.campaign.original import run_of
    from seatrial.cli.run_folder import attempts_of
    from seatrial.collect.attempts import ended, read_attempt
    from seatrial.errors import CampaignError
    from seatrial.paths import AttemptPaths

    # `.` and `..` have no name of their own.
    one = AttemptPaths(run_of(folder if folder.name.strip(".") else folder.resolve()))
    wanted = [one] if one.number and one.folder.is_dir() else attempts_of(one.folder)
    readable = [attempt for paths in wanted if (attempt := read_attempt(paths))]
    if not readable:
        raise CampaignError(f"{folder} has no spec.json that can be read: it was never started, or is not what Seatrial writes")
    return next((attempt for attempt in reversed(readable) if ended(attempt)), readable[-1])


def _named_values(variables: object) -> Iterator[tuple[str, str]]:
    """Whatever of environment.json is a variable and its value."""
    for entry in variables if isinstance(variables, list) else ():
        if isinstance(entry, dict) and isinstance(entry.get("name"), str) and isinstance(entry.get("value"), str):
            yield entry["name"], entry["value"]
