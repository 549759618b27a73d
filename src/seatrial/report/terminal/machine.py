"""What the machine did and what it was, on a terminal: a line of telemetry a group, estimates of the time to go, health, the hosts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.cells import cell_len
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from seatrial.records.results import CampaignResults
from seatrial.report.digest.eta import eta_line
from seatrial.report.digest.health import health_line
from seatrial.report.digest.machines import machines
from seatrial.report.digest.telemetry import telemetry_table
from seatrial.report.terminal.text import MOST_DETAILED, fitted, more, names_width, text
from seatrial.wording import count

MOST_MACHINES = 3
# By name, what a terminal has room for; the summary has them all.
SHOWN = (
    "gpu_power_mean_w", "gpu_util_mean_pct", "gpu_sm_clock_mean_mhz", "gpu_mem_peak_mib", "gpu_throttled_pct", "host_cpu_busy_mean_pct",
    "host_cpu_steal_mean_pct", "host_rss_peak_mib",
)  # fmt: skip


def machine(results: CampaignResults, width: int) -> Iterator[RenderableType]:
    """Telemetry group by group, then one sentence each."""
    yield from _telemetry(results, width)
    if well := health_line(results):
        yield text(well, "dim")
    if any(run.attempt.outcome for run in results.runs):
        yield text(eta_line(results), "dim")
    found = machines(results)
    for line, runs in found[:MOST_MACHINES]:
        yield text(f"Machine: {line} ({count(runs, 'run')})", "dim")
    if len(found) > MOST_MACHINES:
        yield more(len(found) - MOST_MACHINES, "machines")


def _telemetry(results: CampaignResults, width: int) -> Iterator[RenderableType]:
    headers, rows = telemetry_table(results, SHOWN)
    if not rows:
        return
    shown = rows[:MOST_DETAILED]
    names = names_width(["Machine", *(str(row[0]) for row in shown)], width)
    cells = [["Machine", *headers[1:]], *([fitted(str(row[0]), names), *map(str, row[1:])] for row in shown)]
    table = Table.grid(padding=(0, 2, 0, 0))
    for at in (kept := _fitting(cells, width)):
        table.add_column(justify="right" if at else "left", no_wrap=True, overflow="ellipsis")
    for number, row in enumerate(cells):
        table.add_row(*(Text(row[at], "" if number else "bold") for at in kept))
    yield table
    if len(rows) > len(shown):
        yield more(len(rows) - len(shown), "groups")
    yield Text("")


def _fitting(cells: Sequence[Sequence[str]], width: int) -> list[int]:
    """The first columns that fit beside one another, and the last, which is the number of runs."""
    widths = [max(cell_len(row[at]) for row in cells) + 2 for at in range(len(cells[0]))]
    last = len(widths) - 1
    kept = [at for at in range(last) if sum(widths[: at + 1]) + widths[last] <= width or at < 2]
    return [*kept, last]
