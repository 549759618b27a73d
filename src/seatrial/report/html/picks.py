"""Which runs the page shows before anybody picks: the winner beside what it is compared with.

In: the page's data. Out: a few runs for the charts of single runs, and one for the timeline. Axes are the chart's to order.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from seatrial.records.charts import Columns
from seatrial.report.html import loose
from seatrial.report.html.page_data import PageData
from seatrial.report.html.summary_tables import standings

REPEATS_EACH = 2
DRAWN_BY_RUN = ("steps", "step_times", "phases", "ranks", "eta")


def default_picks(data: PageData) -> dict[str, Any]:
    """`{"runs": […], "timeline": RUN}`; empty where there is nothing to pick from."""
    drawn = _runs_of(next((data.tables[name] for name in DRAWN_BY_RUN if name in data.tables), {}))
    groups = _groups(data.summary)
    picked = [run for group in groups for run in drawn.get(group, [])[:REPEATS_EACH]]
    in_time = _runs_of(data.tables.get("telemetry") or data.tables.get("steps") or {})
    first = [run for group in groups for run in in_time.get(group, [])[:1]]
    return {
        "runs": picked or _first(drawn, 2 * REPEATS_EACH),
        "timeline": next(iter(first or _first(in_time, 1)), ""),
    }


def _groups(summary: dict[str, Any]) -> list[str]:
    """The winner or the first, and the baseline or the last."""
    ranked = [loose.text(row, "group") for row in standings(summary)]
    winner = loose.text(summary, "ranking", "winner") or next(iter(ranked), "")
    baseline = loose.text(summary, "baseline_group")
    others = [name for name in ranked if name != winner]
    other = baseline if baseline in others else next(reversed(others), "")
    return [name for name in (winner, other) if name]


def _runs_of(table: Columns) -> dict[str, list[str]]:
    """Group → its runs, in the table's order."""
    pairs = dict.fromkeys(zip(table.get("run", ()), table.get("group", ()), strict=False))
    found: dict[str, list[str]] = {}
    for run, group in pairs:
        found.setdefault(str(group), []).append(str(run))
    return found


def _first(runs: dict[str, list[str]], most: int) -> Sequence[str]:
    return [run for of_group in runs.values() for run in of_group][:most]
