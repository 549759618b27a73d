"""All charts of the page, in the order of its sections; one that has nothing to draw is left out."""

from __future__ import annotations

from seatrial.report.html.chart import Chart
from seatrial.report.html.page_data import PageData
from seatrial.report.html.specs.eta import eta
from seatrial.report.html.specs.heat import heat
from seatrial.report.html.specs.loss import loss
from seatrial.report.html.specs.phases import phases
from seatrial.report.html.specs.ranking import ranking
from seatrial.report.html.specs.ranks import ranks
from seatrial.report.html.specs.startup import startup
from seatrial.report.html.specs.step_times import step_times
from seatrial.report.html.specs.steps import steps
from seatrial.report.html.specs.timeline import timeline

CHARTS = (ranking, heat, steps, loss, step_times, phases, startup, timeline, ranks, eta)


def all_charts(data: PageData) -> list[Chart]:
    """Those that there are rows for."""
    return [chart for make in CHARTS if (chart := make(data)) is not None]
