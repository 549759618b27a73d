"""Runs that have the tables that charts are drawn of, and what is asked of those tables.

In: CampaignResults. Out: the counted runs of each group that have a table, best group first, and the rows of it. Without charts there is
nothing, and whoever tells of them leaves it out.
"""

from __future__ import annotations

from collections.abc import Iterator

from seatrial.records.charts import PHASES
from seatrial.records.measure import Cell, GroupSummary
from seatrial.records.results import CampaignResults, MeasuredRun
from seatrial.report.digest.standings import groups_in_order, runs_by_group
from seatrial.report.numbers import number_in


def groups_with(results: CampaignResults, table: str) -> int:
    """How many groups have runs that count with rows of that table."""
    return sum(1 for _ in charted_runs(results, table))


def charted_runs(results: CampaignResults, table: str) -> Iterator[tuple[GroupSummary, list[MeasuredRun]]]:
    """Groups with runs that count and have that table, best first, and those runs."""
    by_group = runs_by_group(results)
    for group in groups_in_order(results):
        if runs := [run for run in by_group.get(group.group_key, []) if run.charts and table in run.charts.tables]:
            yield group, runs


def rows_of(run: MeasuredRun, table: str) -> list[dict[str, Cell]]:
    """The rows of one of a run's tables; none where it has no such table."""
    columns = run.charts.tables.get(table, {}) if run.charts else {}
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


def usual_ms(group: GroupSummary) -> float | None:
    """The median of all its steps that count; None where none was timed."""
    middle = group.figures.get("wall_p50_ms")
    return middle.mean if middle else None


def columns_of(run: MeasuredRun, table: str, *names: str) -> Iterator[tuple[Cell, ...]]:
    """The rows of some columns alone: steps are many."""
    columns = run.charts.tables.get(table, {}) if run.charts else {}
    return zip(*(columns[name] for name in names), strict=True) if all(name in columns for name in names) else iter(())


def steps_taken_apart(run: MeasuredRun) -> int:
    """Steps whose phases all ranks told: work and wait are made of these, and the n of a rank is of all that count."""
    return max((int(number_in(row.get("n")) or 0) for row in rows_of(run, PHASES)), default=0)
