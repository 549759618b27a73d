"""`seatrial why OUT FINDING`: what a statement rests on, and the same made again from the raw files."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Annotated, Any

import typer

from seatrial.cli.options import AsJson, Folder
from seatrial.cli.say import people, print_json, write_lines

if TYPE_CHECKING:
    from seatrial.campaign.remaking import Remade
    from seatrial.campaign.tracing import Stated

EXAMPLES = "seatrial why outputs/tiny-lm-demo\n\nseatrial why outputs/tiny-lm-demo 1 --remake"
DIFFERS = 2
FINDING_HELP = (
    "The finding's id, as the report and verdict.json show it; its number or the beginning of it will do. Without one, all are listed."
)
REMAKE_HELP = "Compute it again from what the runs wrote, not from the tables, and say whether that is the same: exit code 0, else 2."


def register(app: typer.Typer) -> None:
    """Add the verb."""
    app.command("why", epilog=EXAMPLES)(why)


def why(
    out: Folder,
    finding: Annotated[str | None, typer.Argument(metavar="FINDING", help=FINDING_HELP, show_default=False)] = None,
    remake: Annotated[bool, typer.Option("--remake", help=REMAKE_HELP)] = False,
    json: AsJson = False,
) -> int:
    """Show what a statement of a verdict rests on: each number with its file, window and n, how it is computed, and from which raw files.

    Works on unfinished and copied campaigns, and on folders that the original stage-1 scripts wrote. Nothing in OUT is changed.
    """
    from seatrial.campaign.original import campaign_of
    from seatrial.campaign.remaking import remake_finding
    from seatrial.campaign.tracing import find, stated, trace
    from seatrial.errors import UsageError
    from seatrial.paths import CampaignPaths
    from seatrial.report.finding_text import explained, explained_json

    if remake and not finding:
        raise UsageError("--remake makes one finding again: name it, for example `seatrial why OUT 1 --remake`")
    paths = CampaignPaths(campaign_of(out))
    said = stated(paths)
    if not finding:
        return _list(said, json)
    one = find(said.findings, finding)
    # Always in quotes: ids hold colons and whatever people call their groups.
    quoted = shlex.quote(one.id) if "'" in one.id else f"'{one.id}'"
    command = f"seatrial why {shlex.quote(str(out))} {quoted} --remake"
    numbers = [(number.evidence, number.computed, number.raw) for number in trace(paths, one)]
    again = remake_finding(paths, one) if remake else None
    width = people(as_json=json).width
    write_lines([*explained(one, numbers, command, width), *(_remade_lines(said, again) if again else [])], as_json=json)
    if json:
        print_json(explained_json(one, numbers, command) | (_remade_json(again) if again else {}))
    return DIFFERS if again and again.differences else 0


def _list(said: Stated, json: bool) -> int:
    from seatrial.records.codec import to_json
    from seatrial.report.finding_text import listing

    write_lines(list(listing(said.findings, people(as_json=json).width)), as_json=json)
    if json:
        print_json({"findings": to_json(said.verdict.findings), "statements": to_json(said.verdict.statements)})
    return 0


def _remade_lines(said: Stated, again: Remade) -> list[str]:
    from seatrial.report.one_line import one_line
    from seatrial.wording import count

    if again.differences:
        return ["", "Not the same:", *(f"  {one_line(difference)}" for difference in again.differences)]
    if not said.on_disk:
        return ["", "There is no verdict.json to compare with: what stands above was made from the runs' files just now."]
    return ["", f"The same, made again from the files of {count(again.runs, 'run')}."]


def _remade_json(again: Remade) -> dict[str, Any]:
    from seatrial.records.codec import to_json

    return {"same": not again.differences, "differences": list(again.differences), "remade": to_json(again.finding)}
