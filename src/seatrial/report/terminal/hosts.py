"""Hosts of runs on many, on a terminal: a sentence a run, and a short table of the hosts where they are few or odd."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from seatrial.records.results import CampaignResults
from seatrial.report.digest.hosts import ALL_SHOWN, HostRow, RunHosts, clock_text, hosts_of, ranks_text, sentence
from seatrial.report.numbers import NONE, short
from seatrial.report.one_line import one_line
from seatrial.report.terminal.text import MOST_DETAILED, fitted, heading, more, names_width, text

COLUMNS = ("host", "ranks", "clock", "exit", "ended", "net out MiB/s")


def hosts(results: CampaignResults, width: int) -> Iterator[RenderableType]:
    """Nothing for a campaign on one host."""
    found = hosts_of(results)
    if not found:
        return
    yield heading("Hosts")
    for one in found[:MOST_DETAILED]:
        yield text(sentence(one), "dim")
    if len(found) > MOST_DETAILED:
        yield more(len(found) - MOST_DETAILED, "runs")
    rows = _shown(found)
    if rows:
        yield _table(rows[:ALL_SHOWN], width)
    if len(rows) > ALL_SHOWN:
        yield more(len(rows) - ALL_SHOWN, "hosts")


def _shown(found: list[RunHosts]) -> list[HostRow]:
    """The hosts of the first run, where they are few, and the odd ones of all runs."""
    first = found[0].hosts if len(found[0].hosts) <= ALL_SHOWN else ()
    return [*first, *(row for one in found for row in one.hosts if row.odd and row not in first)]


def _table(rows: list[HostRow], width: int) -> Table:
    names = names_width(["host", *(row.host for row in rows)], width)
    grid = Table.grid(padding=(0, 2, 0, 0))
    for at in range(len(COLUMNS)):
        grid.add_column(justify="left" if at in (0, 4) else "right", no_wrap=True, overflow="ellipsis")
    grid.add_row(*(Text(title, "bold") for title in COLUMNS))
    for row in rows:
        code = NONE if row.returncode is None else str(row.returncode)
        sent = short(row.did.net_tx_mean_mib_per_s if row.did else None)
        cells = (fitted(row.host, names).rstrip(), ranks_text(row), clock_text(row), code, row.ended.replace("_", " ") or NONE, sent)
        grid.add_row(*(Text(one_line(cell)) for cell in cells))
    return grid
