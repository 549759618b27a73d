"""Step times on a terminal: each group's course as a sparkline, between its lowest and its highest step.

Step time, ms  steps 61–299: course, lowest, median, highest
mb16_nw2  ▂▁▁▂▁▁▁▂▁▇▁▁▂▁▁▁▁▂▁▁▁▁▂▁▁▁▁▁▂▁▁   98.2  104.9  167.1  n 356
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.console import RenderableType
from rich.text import Text

from seatrial.records.charts import STEPS
from seatrial.records.results import CampaignResults
from seatrial.report.digest.charted_runs import groups_with
from seatrial.report.digest.step_times import StepTimes, drawn_course, step_times
from seatrial.report.numbers import figure
from seatrial.report.terminal.text import MOST_DETAILED, columns, fitted, heading, more, names_width, spans

WIDEST = 60
NARROWEST = 8
GAP = "  "


def courses(results: CampaignResults, width: int) -> Iterator[RenderableType]:
    """One line a group; nothing where nobody asked for something to draw."""
    shown = step_times(results, MOST_DETAILED)
    if not shown:
        return
    on_logs = "; log: log scale" if any(times.on_logs for times in shown) else ""
    yield heading("Step time, ms", f"{spans(times.window for times in shown)}: course, lowest, median, highest{on_logs}")
    names = names_width([times.group.group for times in shown], width)
    figures = _figures(shown)
    room = min(width - names - max(len(line) for line in figures) - 2 * len(GAP), WIDEST)
    for times, numbers in zip(shown, figures, strict=True):
        drawn = drawn_course(times, room) if room >= NARROWEST else ""
        yield Text.assemble(fitted(times.group.group, names), GAP, (drawn, "cyan"), GAP if drawn else "", numbers, no_wrap=True)
    if (left_out := groups_with(results, STEPS) - len(shown)) > 0:
        yield more(left_out, "groups")


def _figures(shown: Sequence[StepTimes]) -> list[str]:
    """Lowest, median, highest and n of each, in columns; and whether the course is drawn on logs."""
    rows = [[figure(one.lowest_ms), figure(one.median_ms), figure(one.highest_ms), f"n {one.group.window_n}"] for one in shown]
    return [f"{line} log" if one.on_logs else line for one, line in zip(shown, columns(rows), strict=True)]
