"""Hosts and smoke records as the page shows them.

In: summary.json. Out: tables; None for a campaign on one host. Of very many hosts the odd ones stand first, and the rest is counted.
"""

from __future__ import annotations

from typing import Any

from seatrial.records.codec import from_json
from seatrial.report.digest import hosts as told_hosts
from seatrial.report.digest import smoke as told_smoke
from seatrial.report.html import loose
from seatrial.report.numbers import NONE
from seatrial.wording import count

MOST_ROWS = 256
Row = dict[str, Any]


def hosts(summary: Row) -> Row | None:
    """A row a host of a run, those first that are odd, where there are too many."""
    runs = [run for told in loose.objects(summary, "hosts") if (run := _run(told)) is not None]
    if not runs:
        return None
    rows = [row for run in runs for row in run.hosts]
    shown = rows if len(rows) <= MOST_ROWS else sorted(rows, key=lambda row: not row.odd)[:MOST_ROWS]
    left_out = f" {count(len(rows) - len(shown), 'more row')} in summary.json." if len(shown) < len(rows) else ""
    return {
        "sentences": [told_hosts.sentence(run) for run in runs[: told_hosts.MOST_RUNS]],
        "columns": list(told_hosts.COLUMNS),
        "rows": [[str(cell) for cell in told_hosts.cells(row)] for row in shown],
        "right": list(told_hosts.RIGHT),
        "explained": told_hosts.EXPLAINED + left_out,
    }


def _run(told: Row) -> told_hosts.RunHosts | None:
    """None for what another version wrote in another form."""
    try:
        return from_json(told_hosts.RunHosts, told)
    except (ValueError, TypeError):
        return None


def smoke(summary: Row) -> Row | None:
    """The rows of the records side by side; of many runs the first."""
    records = loose.objects(summary, "smoke_records")
    shown = records[: told_smoke.MOST_RECORDS]
    names = list(dict.fromkeys(name for record in shown for name in loose.mapping(record, "rows")))
    if not names:
        return None
    left_out = f" {count(len(records) - len(shown), 'more run')} in summary.json." if len(shown) < len(records) else ""
    return {
        "columns": ["", *(loose.text(record, "run") for record in shown)],
        "rows": [[name, *(loose.text(record, "rows", name) or NONE for record in shown)] for name in names],
        "right": [],
        "explained": told_smoke.EXPLAINED + left_out,
    }
