"""One run from its launch on: what it did, how long its steps took and what the machine did meanwhile, on one axis of time.

Its table is `timeline`, which the page makes for the chosen run: the rows of `telemetry`, `spans` and `steps` one after another, each with
`kind` (`telemetry`, `span`, `step`). A panel is there where any run has rows for it. All panels zoom together, a rule follows the pointer
through all of them, and the time of the steps that count is shaded. Vega-Lite fits no panels to their
container: they are WIDTH wide here, and the page gives every panel what it has less what stands beside it (Y_EXTENT and some air).
"""

from __future__ import annotations

from seatrial.report.html import loose
from seatrial.report.html.chart import Chart
from seatrial.report.html.page_data import PageData
from seatrial.report.html.specs.placed import told_window
from seatrial.report.html.specs.series import HOW_TO_ZOOM, nearest, zoom
from seatrial.report.html.specs.theme import CONFIG, SCHEMA, Spec
from seatrial.report.html.specs.timeline_panels import ANSWERS, Y_EXTENT, panels
from seatrial.wording import named

TABLES = {"telemetry": "telemetry", "spans": "span", "steps": "step"}
"""Table → `kind` of its rows in `timeline`, in the order in which the page puts them."""


def timeline(data: PageData) -> Chart | None:
    """None where no run has anything to be drawn over time."""
    drawn = panels(data)
    if not drawn:
        return None
    left_out = _drawn(data, "gpus", "GPUs") + _drawn(data, "hosts", "hosts")
    return Chart(
        id="timeline",
        section="timeline",
        title="Timeline",
        caption=f"One run, seconds since its launch; the steps that count are shaded. {HOW_TO_ZOOM}{left_out}",
        table="timeline",
        spec=_document(data, drawn),
        picks="run",
    )


def _drawn(data: PageData, key: str, what: str) -> str:
    """A sentence for each number of GPUs, or of hosts, that are not all drawn, and in which runs."""
    found: dict[tuple[int, int], list[str]] = {}
    runs = loose.objects(data.summary, "current_runs")
    for run in runs:
        drawn, there = loose.whole(run, f"{key}_drawn"), loose.whole(run, key)
        if drawn is not None and there is not None and drawn < there:
            found.setdefault((drawn, there), []).append(str(run.get("run") or ""))
    return "".join(
        f" {drawn} of {there} {what} drawn{'' if len(names) == len(runs) else f' in {named(names)}'}."
        for (drawn, there), names in found.items()
    )


def _document(data: PageData, drawn: list[Spec]) -> Spec:
    views = [layer["name"] for panel in drawn for layer in panel["layer"] if "name" in layer]
    answering = [name for name in views if name.startswith(ANSWERS)]
    axis_y = {"minExtent": Y_EXTENT, "maxExtent": Y_EXTENT, "labelLimit": Y_EXTENT - 2}
    return {
        "$schema": SCHEMA,
        "data": {"name": "rows"},
        "transform": [{"calculate": "datum.kind === 'span' ? datum.begin_s : datum.t_s", "as": "t_s"}, *told_window(data, "steps")],
        "params": [nearest(["t_s"], views=answering), zoom(views=views)],
        "vconcat": drawn,
        "spacing": 8,
        "resolve": {"scale": {"x": "shared", "color": "independent", "strokeDash": "independent"}},
        "config": {**CONFIG, "axisY": axis_y, "concat": {"spacing": 8}},
    }
