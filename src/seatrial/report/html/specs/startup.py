"""The time before the first step: its parts for each group, stacked, mean over its runs, from summary.json's rows of runs."""

from __future__ import annotations

from seatrial.records.charts import Columns
from seatrial.records.events import STARTUP_PARTS
from seatrial.records.measure import Cell
from seatrial.report.html import loose
from seatrial.report.html.chart import Chart
from seatrial.report.html.page_data import PageData
from seatrial.report.html.specs.palette import BLUE, BROWN, GREEN, GREY, ORANGE, PINK, PURPLE, RED, SKY, colour
from seatrial.report.html.specs.placed import first_of, only_best
from seatrial.report.html.specs.stacked import stacked

TABLE = "startup"
COLUMNS = ("run", "group", "repeat", "part", "seconds", "window", "n")
WINDOW = "launch to the end of the first step"
SHADES = {
    "launch": BROWN,
    "import": SKY,
    "process_group": PINK,
    "model": BLUE,
    "data": ORANGE,
    "tokenise": PURPLE,
    "compile": GREEN,
    "first_step": RED,
    "other": GREY,
}
"""One that is not named here gets a colour by its place."""


def startup_table(data: PageData) -> Columns | None:
    """A row a run and part; n is 1 launch, since a start-up is measured once a run."""
    rows: list[tuple[Cell, ...]] = []
    for run in loose.objects(data.summary, "runs"):
        for part in STARTUP_PARTS:
            seconds = loose.number(run, f"startup_{part}_sec")
            if seconds is not None:
                whose = (loose.text(run, "run"), loose.text(run, "group"), loose.whole(run, "repeat"))
                rows.append((*whose, part, seconds, WINDOW, 1))
    return {name: [row[index] for row in rows] for index, name in enumerate(COLUMNS)} if rows else None


def startup(data: PageData) -> Chart | None:
    """None where no run tells its start-up apart."""
    table = startup_table(data)
    if table is None:
        return None
    groups, in_all = first_of(PageData(summary=data.summary, tables={**data.tables, TABLE: table}), TABLE, "group")
    colours = {part: SHADES.get(part, colour(at)) for at, part in enumerate(STARTUP_PARTS) if part in table["part"]}
    return Chart(
        id="startup",
        section="startup",
        title="Start-up",
        caption=f"Seconds from launch to the end of the first step, mean over a group's runs.{only_best(len(groups), in_all, 'groups')}",
        table=TABLE,
        spec=stacked(groups, "part", "seconds", "seconds", colours, windows=dict.fromkeys(groups, WINDOW)),
    )
