"""Where a step's time goes: the phases of each group, stacked, mean over its runs, over the steps that count.

Phases are taken on some of these steps only, and taking them makes a step slower: how many there were, how long they took and how long the
usual step took is told beside them.
"""

from __future__ import annotations

from statistics import fmean

from seatrial.report.html import loose
from seatrial.report.html.chart import Chart
from seatrial.report.html.page_data import PageData
from seatrial.report.html.specs.palette import GREY, PHASES, colour
from seatrial.report.html.specs.placed import first_of, only_best, rows_of
from seatrial.report.html.specs.stacked import stacked
from seatrial.report.html.specs.theme import Spec
from seatrial.report.html.specs.tooltip import number, number_text, word
from seatrial.report.numbers import figure
from seatrial.wording import named

SHOWN = (number("whole", "those steps, ms"), word("usual", "the usual step, ms"))
"""Of a group, beside each of its phases."""


def phases(data: PageData) -> Chart | None:
    """None where no run tells its phases."""
    groups, in_all = first_of(data, "phases", "group")
    if not groups:
        return None
    usual = _usual(data)
    return Chart(
        id="phases",
        section="phases",
        title="Phases of a step",
        caption=f"Milliseconds a step spends in each phase, mean over a group's runs, on the steps whose phases were taken. "
        f"{_told_of(groups[0], data, usual)}{only_best(len(groups), in_all, 'groups')}",
        table="phases",
        spec=stacked(
            groups, "phase", "mean_ms", "ms a step", _colours(data), windows=_windows(data), of_group=_usual_text(usual), shown=SHOWN
        ),
    )


def _windows(data: PageData) -> dict[str, str]:
    """Group → the windows of its runs; most often they are one and the same."""
    spans: dict[str, dict[str, None]] = {}
    for row in rows_of(data.tables["phases"]):
        spans.setdefault(str(row["group"]), {})[f"{row['first_step']}–{row['last_step']}"] = None
    return {group: f"steps {named(list(there))}" for group, there in spans.items()}


def _usual(data: PageData) -> dict[str, float]:
    """Group → milliseconds of its usual step: the mean of its runs' medians by wall clock."""
    told = {str(row["run"]) for row in rows_of(data.tables["phases"])}
    found: dict[str, list[float]] = {}
    for row in rows_of(data.tables.get("runs")):
        if row["run"] in told and (ms := loose.number(row.get("p50_ms"))) is not None:
            found.setdefault(str(row["group"]), []).append(ms)
    return {group: fmean(values) for group, values in found.items()}


def _told_of(group: str, data: PageData, usual: dict[str, float]) -> str:
    """A sentence on one group: a chart has no room for that of each, its tooltips have."""
    rows = [row for row in rows_of(data.tables["phases"]) if row["group"] == group]
    steps = sum({str(row["run"]): loose.whole(row.get("n")) or 0 for row in rows}.values())
    phases_ms: dict[str, list[float]] = {}
    for row in rows:
        phases_ms.setdefault(str(row["phase"]), []).append(loose.number(row.get("mean_ms")) or 0.0)
    those = f"In {group} these are {steps:,} steps, which took {figure(sum(map(fmean, phases_ms.values())))} ms"
    return f"{those}; its usual step took {figure(usual[group])} ms." if group in usual else f"{those}."


def _usual_text(usual: dict[str, float]) -> list[Spec]:
    values = [{"group": group, "usual_ms": ms} for group, ms in usual.items()]
    looked_up = {"lookup": "group", "from": {"data": {"values": values}, "key": "group", "fields": ["usual_ms"]}}
    return [*([looked_up] if values else [{"calculate": "null", "as": "usual_ms"}]), number_text("usual_ms", "usual")]


def _colours(data: PageData) -> dict[str, str]:
    """Those there are, in the order of a step; one that is not known comes before `other`."""
    there = [str(phase) for phase in dict.fromkeys(data.tables["phases"]["phase"])]
    unknown = {phase: colour(index) for index, phase in enumerate(there) if phase not in PHASES}
    known = {phase: shade for phase, shade in PHASES.items() if phase in there and phase != "other"}
    return {**known, **unknown, **({"other": GREY} if "other" in there else {})}
