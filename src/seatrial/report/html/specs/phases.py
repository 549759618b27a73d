"""Where a step's time goes: the phases of each group, stacked, mean over its runs, over the steps that count."""

from __future__ import annotations

from seatrial.report.html.chart import Chart
from seatrial.report.html.page_data import PageData
from seatrial.report.html.specs.palette import GREY, PHASES, colour
from seatrial.report.html.specs.placed import first_of, only_best
from seatrial.report.html.specs.stacked import stacked
from seatrial.report.html.specs.tooltip import SPELT_WINDOW


def phases(data: PageData) -> Chart | None:
    """None where no run tells its phases."""
    groups, in_all = first_of(data, "phases", "group")
    if not groups:
        return None
    return Chart(
        id="phases",
        section="phases",
        title="Phases of a step",
        caption=f"Milliseconds a step spends in each phase, mean over a group's runs.{only_best(len(groups), in_all, 'groups')}",
        table="phases",
        spec=stacked(groups, "phase", "mean_ms", "ms a step", _colours(data), [SPELT_WINDOW]),
    )


def _colours(data: PageData) -> dict[str, str]:
    """Those there are, in the order of a step; one that is not known comes before `other`."""
    there = [str(phase) for phase in dict.fromkeys(data.tables["phases"]["phase"])]
    unknown = {phase: colour(index) for index, phase in enumerate(there) if phase not in PHASES}
    known = {phase: shade for phase, shade in PHASES.items() if phase in there and phase != "other"}
    return {**known, **unknown, **({"other": GREY} if "other" in there else {})}
