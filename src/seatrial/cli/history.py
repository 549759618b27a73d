"""`seatrial history add|list|pin|unpin`: sides of finished campaigns, kept to compare with later."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from seatrial.cli.main import VERBS
from seatrial.cli.options import AsJson, Folder, HistoryFile
from seatrial.cli.say import people, print_json, print_lines
from seatrial.errors import printable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from seatrial.history.rows import Row
    from seatrial.records.comparison import Side

EXAMPLES = "seatrial history add outputs/tiny-lm-demo\n\nseatrial history pin 3 v100-bf16"
ADD_EXAMPLES = "seatrial history add outputs/tiny-lm-demo\n\nseatrial history add nightly --group mb16 --history team.jsonl"
LIST_EXAMPLES = "seatrial history list\n\nseatrial history list --json"
PIN_EXAMPLES = "seatrial history pin 3 v100-bf16\n\nseatrial compare history:v100-bf16 outputs/tiny-lm-demo"
UNPIN_EXAMPLES = "seatrial history unpin v100-bf16\n\nseatrial history unpin v100-bf16 --history team.jsonl"
GroupNames = Annotated[
    list[str] | None,
    typer.Option("--group", metavar="GROUP", help="Keep only this group; may be repeated. Default: every group with runs that count."),
]
RowNumber = Annotated[int, typer.Argument(metavar="ROW", help="The row's number, as `history list` shows it.", show_default=False)]
RowName = Annotated[str, typer.Argument(metavar="NAME", help="The name that `history:NAME` then means.", show_default=False)]


def register(app: typer.Typer) -> None:
    """Add the verb and its parts."""
    group = typer.Typer(help=VERBS["history"], no_args_is_help=True, epilog=EXAMPLES)
    group.command("add", epilog=ADD_EXAMPLES)(add)
    group.command("list", epilog=LIST_EXAMPLES)(list_rows)
    group.command("pin", epilog=PIN_EXAMPLES)(pin)
    group.command("unpin", epilog=UNPIN_EXAMPLES)(unpin)
    app.add_typer(group, name="history")


def add(out: Folder, group: GroupNames = None, history: HistoryFile = None, json: AsJson = False) -> int:
    """Keep a campaign's groups as rows of history: figures, losses, machine and code of the runs that count. The same runs stay one row."""
    from seatrial.campaign.grouped import read_grouped
    from seatrial.campaign.sides import groups_to_compare, side_name, side_of
    from seatrial.errors import CampaignError
    from seatrial.history import rows

    campaign = read_grouped(out)
    names = group or groups_to_compare(campaign)
    if not names:
        raise CampaignError(f"{out} has no group with runs that count, so there is nothing to keep")
    path = rows.history_path(history)
    sides = [side_of(campaign, name, side_name(out, name)) for name in names]
    kept = [rows.add(path, side) for side in sides]
    _show(path, kept, rows.read_history(path).unreadable, as_json=json)
    return 0


def list_rows(history: HistoryFile = None, json: AsJson = False) -> int:
    """Print every row: number, name, group, runs, throughput, when it was taken, machine, campaign."""
    from seatrial.history import rows

    path = rows.history_path(history)
    history_file = rows.read_history(path)
    _show(path, history_file.rows, history_file.unreadable, as_json=json)
    return 0


def pin(row: RowNumber, name: RowName, history: HistoryFile = None) -> int:
    """Give a row a name that comparisons and criteria can use; a name that another row had goes over to this one."""
    from seatrial.history import rows

    path = rows.history_path(history)
    before = rows.read_history(path).pinned(name)
    kept = rows.pin(path, row, name)
    moved = f"; row {before.number} ({before.side.group}) was until now" if before and before.number != kept.number else ""
    print(printable(f"row {kept.number} ({kept.side.group}) is history:{name}{moved}"))
    return 0


def unpin(name: RowName, history: HistoryFile = None) -> int:
    """Take a name away from its row; the row stays."""
    from seatrial.history import rows

    rows.unpin(rows.history_path(history), name)
    print(f"history:{name} is no more; its row stays")
    return 0


def _show(path: Path, kept: Sequence[Row], unreadable: int, *, as_json: bool) -> None:
    from seatrial.report.history_text import history_lines

    console = people(as_json=as_json)
    plain = [_plain(row) for row in kept]
    print_lines(console, history_lines(plain, str(path), console.width, unreadable))
    if as_json:
        print_json({"file": str(path), "rows": plain, "unreadable_lines": unreadable})


def _plain(row: Row) -> dict[str, Any]:
    side = row.side
    return {
        "row": row.number,
        "names": list(row.names),
        "group": side.group,
        "campaign": side.campaign,
        "added_t": row.added_t,
        "taken_t": side.taken_t,
        "runs": len(side.runs),
        **_throughput(side),
        "failed_runs": side.failed_runs,
        "machine": side.machine,
        "code": side.code,
        "debug": list(side.debug),
    }


def _throughput(side: Side) -> dict[str, Any]:
    """What `compare` would take: the mean over the runs, and its unit."""
    from seatrial.analyse.interval import estimate
    from seatrial.analyse.rank_metric import METRICS, THROUGHPUT

    for name in THROUGHPUT:
        values = [run.figures.get(name) for run in side.runs]
        found = estimate(values)
        if found is not None and found.n == len(values):
            return {"metric": name, "throughput": found.mean, "unit": METRICS[name].unit}
    return {"metric": None, "throughput": None, "unit": None}
