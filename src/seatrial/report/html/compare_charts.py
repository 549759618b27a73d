"""The charts of two campaigns together: those of one, drawn of the data of both, with a ranking that tells the sides apart.

In: the data of both (both_sides). Out: charts. The heat map is left out: cells of both would lie over one another.
"""

from __future__ import annotations

from seatrial.report.digest.standings import LEADS
from seatrial.report.html.both_sides import SIDES
from seatrial.report.html.chart import Chart
from seatrial.report.html.page_data import PageData
from seatrial.report.html.specs.all_charts import all_charts
from seatrial.report.html.specs.palette import BLUE, ORANGE
from seatrial.report.html.specs.placed import MOST, Row, is_number, only_best, rows_of, told
from seatrial.report.html.specs.ranking import NOT_PROVEN, figure_title
from seatrial.report.html.specs.theme import Spec, document, legend, named_y, quantity, row_height
from seatrial.report.html.specs.tooltip import interval_text, number, tooltip, word

OF_ONE_ALONE = ("ranking", "heat")
COLOURS, SHAPES = (BLUE, ORANGE), ("circle", "diamond")


def compare_charts(data: PageData) -> list[Chart]:
    """Those that have rows to draw."""
    ranked = both_ranked(data)
    others = [chart for chart in all_charts(data) if chart.id not in OF_ONE_ALONE]
    return [ranked, *others] if ranked else others


def both_ranked(data: PageData) -> Chart | None:
    """Every group of both with its interval, best first; None where no group has a figure."""
    groups = [row for row in rows_of(data.tables.get("groups")) if is_number(row.get("value"))]
    groups.sort(key=lambda row: _goodness(row, data))
    if not groups:
        return None
    drawn = groups[:MOST]
    return Chart(
        id="ranking",
        section="ranking",
        title="Both rankings",
        caption="Each group's figure with its 95 % interval, best first, over the steps that count; A and B apart by colour and shape."
        + only_best(len(drawn), len(groups), "groups"),
        table="groups",
        spec=document(
            height=row_height(len(drawn)),
            transform=[
                *told("group", [{"group": row["group"], "place": place} for place, row in enumerate(drawn)]),
                interval_text("low", "high", "interval"),
                {"calculate": f"split(datum.note, ',')[0] === '{LEADS}' ? '{NOT_PROVEN}' : datum.note", "as": "standing"},
            ],
            encoding={"y": named_y("group"), "color": _by_side("range", COLOURS), "tooltip": _tooltip(str(drawn[0].get("unit") or ""))},
            layer=_layers(data),
        ),
    )


def _goodness(row: Row, data: PageData) -> float:
    value = row["value"]
    assert isinstance(value, (int, float))
    return value if data.summary["ranking"].get("higher_is_better") is False else -value


def _by_side(kind: str, values: tuple[str, str]) -> Spec:
    return {"field": "side", "type": "nominal", "scale": {"domain": list(SIDES), kind: list(values)}, "legend": legend()}


def _layers(data: PageData) -> list[Spec]:
    x = quantity("value", figure_title(data), zero=False)
    shape = _by_side("range", SHAPES)
    return [
        {"mark": {"type": "rule", "strokeWidth": 2}, "encoding": {"x": {**x, "field": "low"}, "x2": {"field": "high"}}},
        {"mark": {"type": "point", "filled": True, "opacity": 1, "size": 100}, "encoding": {"x": x, "shape": shape}},
    ]


def _tooltip(unit: str) -> list[Spec]:
    shown = [word("group", "group"), word("rank", "rank on its side"), number("value", unit or "figure"), word("interval", "95 % interval")]
    return tooltip([*shown, word("runs", "runs"), word("standing", "standing")])
