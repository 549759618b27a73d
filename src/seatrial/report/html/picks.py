"""Which runs the page shows before anybody picks: all where they are few, else the winner beside what it is compared with.

In: the page's data. Out: runs for the charts of single runs, those of the best group first, and one for the timeline and the ranks: the
first that a finding names as a leak, a straggler or unstable, since that is the evidence one looks for. Axes are the chart's to order.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from seatrial.records.charts import Columns
from seatrial.records.criteria_catalog import CAMPAIGN
from seatrial.records.outcome import Outcome
from seatrial.records.verdict import Verdict
from seatrial.report.html import loose
from seatrial.report.html.page_data import PageData
from seatrial.report.html.summary_tables import standings
from seatrial.run_table.told_apart import APART

MOST_PICKED = 8
"""As many as the page lets a reader pick."""
REPEATS_EACH = 2
SUSPECTS = 2
DRAWN_BY_RUN = ("steps", "step_times", "phases", "ranks", "eta")
DRAWN_OF_ONE = ("telemetry", "spans", "steps", "ranks")
SHOWN_IN_TIME = ("straggler:", "leak:", "stability:", "steady_state:")
"""How the statements begin whose evidence a timeline or the ranks show."""

Runs = dict[str, list[str]]
"""Group → its runs."""


def default_picks(data: PageData) -> dict[str, Any]:
    """`{"runs": […], "timeline": RUN}`; empty where there is nothing to pick from."""
    drawn = _in_order(_runs_of(data, DRAWN_BY_RUN), data.summary)
    return {"runs": _picked(data, drawn), "timeline": _in_time(data)}


def _picked(data: PageData, drawn: Runs) -> list[str]:
    every = _all(drawn)
    if len(every) <= MOST_PICKED:
        return every
    counted = _that_ended_well(data, drawn)
    compared = [run for group in _compared(counted, data.summary) for run in counted[group][:REPEATS_EACH]]
    suspects = [run for run in _suspects(data.summary, drawn) if run not in compared][:SUSPECTS]
    return [*compared, *suspects]


def _in_time(data: PageData) -> str:
    """The first suspect; without one a run of the best group that has one."""
    there = _in_order(_runs_of(data, DRAWN_OF_ONE), data.summary)
    return next(iter([*_suspects(data.summary, there), *_all(_that_ended_well(data, there))]), "")


def _that_ended_well(data: PageData, runs: Runs) -> Runs:
    """What is left without runs that failed; all of them where none is."""
    told = data.tables.get("runs", {})
    well = {run for run, outcome in zip(told.get("run", ()), told.get("outcome", ()), strict=False) if outcome == Outcome.OK.value}
    left = {group: [run for run in of_group if run in well] for group, of_group in runs.items()}
    return {group: of_group for group, of_group in left.items() if of_group} or runs


def _suspects(summary: dict[str, Any], runs: Runs) -> list[str]:
    """Runs that findings which do not hold name first, or the first run of the group that they name; each once."""
    every = list(_all(runs))
    found = (_run_of(subject, runs, every) for subject in _accused(summary))
    return list(dict.fromkeys(run for run in found if run))


def _run_of(subject: str, runs: Runs, every: Sequence[str]) -> str | None:
    """The run meant. Evidence has a run's own name; where two configurations gave it, the runs here have digits behind it."""
    if subject in runs:
        return runs[subject][0]
    return next((run for run in every if run == subject or run.startswith(f"{subject}{APART}")), None)


def _accused(summary: dict[str, Any]) -> Iterator[str]:
    for row in loose.objects(summary, "verdict", "statements"):
        if _is_bad(row) and loose.text(row, "id").startswith(SHOWN_IN_TIME):
            yield from _first_subject(row)
    for row in loose.objects(summary, "verdict", "findings"):
        # Over the whole campaign the numbers stand in the order of the runs, elsewhere the worst stands first.
        if _is_bad(row) and loose.text(row, "criterion", "scope") != CAMPAIGN:
            yield from _first_subject(row)


def _is_bad(row: dict[str, Any]) -> bool:
    return loose.text(row, "verdict") == Verdict.FAIL.value


def _first_subject(row: dict[str, Any]) -> list[str]:
    return [subject for one in loose.objects(row, "evidence") if (subject := loose.text(one, "subject"))][:1]


def _compared(runs: Runs, summary: dict[str, Any]) -> Sequence[str]:
    """The winner or the first that has runs, and the baseline or the last."""
    first, *others = runs
    baseline = loose.text(summary, "baseline_group")
    return [first, *([baseline] if baseline in others else others[-1:])]


def _runs_of(data: PageData, tables: Iterable[str]) -> Runs:
    """Those in any of the tables, in the tables' order."""
    found: Runs = {}
    for run, group in dict.fromkeys(pair for name in tables for pair in _pairs(data.tables.get(name, {}))):
        found.setdefault(group, []).append(run)
    return found


def _pairs(table: Columns) -> Iterator[tuple[str, str]]:
    for run, group in dict(zip(table.get("run", ()), table.get("group", ()), strict=False)).items():
        yield str(run), str(group)


def _in_order(runs: Runs, summary: dict[str, Any]) -> Runs:
    """The winner's, then by rank, then what has no place."""
    ranked = [loose.text(summary, "ranking", "winner"), *(loose.text(row, "group") for row in standings(summary))]
    order = [group for group in dict.fromkeys((*ranked, *runs)) if group in runs]
    return {group: runs[group] for group in order}


def _all(runs: Runs) -> list[str]:
    return [run for of_group in runs.values() for run in of_group]
