"""How step times spread in each run: a thin line from the least to the most, a bar from p5 to p95, a box of the middle half, a tick for the
median, all on one scale of milliseconds, from the quantiles in `step_times`.
"""

from __future__ import annotations

from seatrial.report.html.chart import Chart
from seatrial.report.html.page_data import PageData
from seatrial.report.html.specs.palette import BLUE, SKY
from seatrial.report.html.specs.placed import first_of, only_best, told_place
from seatrial.report.html.specs.theme import TEXT, Spec, document, named_y, quantity, row_height
from seatrial.report.html.specs.tooltip import SPELT_WINDOW, number, tooltip, word

SHOWN = {"q0": "least, ms", "q5": "p5, ms", "q25": "p25, ms", "q50": "median, ms", "q75": "p75, ms", "q95": "p95, ms", "q100": "most, ms"}


def step_times(data: PageData) -> Chart | None:
    """None where no run has quantiles."""
    runs, in_all = first_of(data, "step_times", "run")
    if not runs:
        return None
    return Chart(
        id="step_times",
        section="distribution",
        title="Spread of step times",
        caption=f"Of the steps that count: least to most, p5 to p95, the middle half and the median.{only_best(len(runs), in_all, 'runs')}",
        table="step_times",
        spec=document(
            height=row_height(len(runs)),
            transform=[*told_place("run", runs), *_by_quantile()],
            encoding={"y": named_y("run"), "tooltip": tooltip([word("run", "run"), *(number(q, title) for q, title in SHOWN.items())])},
            layer=_layers(),
        ),
    )


def _by_quantile() -> list[Spec]:
    """One row a run; a field's name must hold no dot, so that 0.05 is called q5."""
    return [
        {"calculate": "'q' + round(datum.quantile * 100)", "as": "name"},
        SPELT_WINDOW,
        {"pivot": "name", "value": "iter_ms", "op": "max", "groupby": ["run", "place", "window", "n"]},
    ]


def _layers() -> list[Spec]:
    def x(field: str) -> Spec:
        return quantity(field, "ms a step", zero=False)

    return [
        {"mark": {"type": "rule", "strokeWidth": 1}, "encoding": {"x": x("q0"), "x2": {"field": "q100"}}},
        {"mark": {"type": "bar", "height": {"band": 0.3}, "color": SKY}, "encoding": {"x": x("q5"), "x2": {"field": "q95"}}},
        {"mark": {"type": "bar", "height": {"band": 0.6}, "color": BLUE}, "encoding": {"x": x("q25"), "x2": {"field": "q75"}}},
        {"mark": {"type": "tick", "thickness": 3, "color": TEXT, "bandSize": 18}, "encoding": {"x": x("q50")}},
    ]
