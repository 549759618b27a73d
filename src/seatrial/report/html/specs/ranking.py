"""The ranking: a dot with its 95 % interval for each group, best first.

How a group stands (winner, tied, behind, cannot win, off the lane) comes from summary.json's `ranking` and is told by colour and shape.
"""

from __future__ import annotations

import json
from typing import Any

from seatrial.report.html import loose
from seatrial.report.html.chart import Chart
from seatrial.report.html.page_data import PageData
from seatrial.report.html.specs.palette import BLUE, GREEN, GREY, PINK, RED
from seatrial.report.html.specs.placed import MOST, Row, is_number, only_best, ranked_groups, shown, told
from seatrial.report.html.specs.theme import Spec, document, legend, named_y, quantity, row_height
from seatrial.report.html.specs.tooltip import interval_text, number, number_text, tooltip, word
from seatrial.report.html.summary_tables import unit_of

STANDINGS = {
    "winner": (GREEN, "circle"),
    "tied": (BLUE, "diamond"),
    "behind": (GREY, "circle"),
    "cannot win": (RED, "cross"),
    "off lane": (PINK, "triangle-up"),
}
"""Colour and shape."""


def ranking(data: PageData) -> Chart | None:
    """None where no group has a figure."""
    groups = [row for row in ranked_groups(data) if is_number(row.get("value"))]
    if not groups:
        return None
    drawn = groups[:MOST]
    said = loose.mapping(data.summary, "ranking")
    values = [{"group": row["group"], "place": place, "standing": standing(row, said)} for place, row in enumerate(drawn)]
    return Chart(
        id="ranking",
        section="ranking",
        title="Ranking",
        caption=f"Figure and 95 % interval of each group, best first.{only_best(len(drawn), len(groups), 'groups')}",
        table="groups",
        spec=document(
            height=row_height(len(drawn)),
            transform=[*told("group", values), *_texts()],
            encoding={"y": named_y("group"), "color": _colour(values), "tooltip": _tooltip(str(drawn[0].get("unit") or ""))},
            layer=_layers(data, values),
        ),
    )


def standing(row: Row, ranking_said: dict[str, Any]) -> str:
    """A word of STANDINGS."""
    if not row.get("lane"):
        return "off lane"
    if row["group"] == shown(loose.text(ranking_said, "winner")):
        return "winner"
    place: dict[str, Any] = next((one for one in loose.objects(ranking_said, "groups") if shown(one.get("group")) == row["group"]), {})
    if place.get("can_win") is False:
        return "cannot win"
    return "tied" if place.get("tied") else "behind"


def figure_title(data: PageData) -> str:
    """The figure ranked by and which way is better."""
    better = "less is better" if loose.mapping(data.summary, "ranking").get("higher_is_better") is False else "more is better"
    return f"{unit_of(data.summary) or 'figure'} ({better})"


def _texts() -> list[Spec]:
    return [
        interval_text("low", "high", "interval"),
        interval_text("ratio_low", "ratio_high", "ratio_interval", ".3f"),
        number_text("ratio", "ratio_text", ".3f"),
        number_text("p90_over_p50", "p90_text", ".3f"),
        {"calculate": "datum.note || datum.standing", "as": "said"},
    ]


def _tooltip(unit: str) -> list[Spec]:
    return tooltip(
        [
            word("group", "group"),
            word("rank", "rank"),
            number("value", unit or "figure"),
            word("interval", "95 % interval"),
            word("ratio_text", "of the leader"),
            word("ratio_interval", "its 95 % interval"),
            word("runs", "runs"),
            word("p90_text", "p90/p50"),
            word("said", "standing"),
        ]
    )


def _scale(values: list[dict[str, Any]], part: int) -> Spec:
    there = [name for name in STANDINGS if any(row["standing"] == name for row in values)]
    return {"domain": there, "range": [STANDINGS[name][part] for name in there]}


def _colour(values: list[dict[str, Any]]) -> Spec:
    return {"field": "standing", "type": "nominal", "scale": _scale(values, 0), "legend": legend()}


def _layers(data: PageData, values: list[dict[str, Any]]) -> list[Spec]:
    is_winner = "datum.standing === 'winner'"
    x = quantity("value", figure_title(data), zero=False)
    shape = {"field": "standing", "type": "nominal", "scale": _scale(values, 1), "legend": legend()}
    size = {"condition": {"test": is_winner, "value": 160}, "value": 80}
    bold = [row["group"] for row in values if row["standing"] == "winner"][:1]
    y = named_y("group")
    if bold:
        # ASCII JSON is a safe literal of an expression, whatever the name holds.
        y["axis"]["labelFontWeight"] = {"condition": {"test": f"datum.value === {json.dumps(bold[0])}", "value": "bold"}, "value": "normal"}
    width = {"condition": {"test": is_winner, "value": 4}, "value": 2}
    return [
        {"mark": {"type": "rule"}, "encoding": {"y": y, "x": {**x, "field": "low"}, "x2": {"field": "high"}, "strokeWidth": width}},
        {"mark": {"type": "point", "filled": True, "opacity": 1}, "encoding": {"x": x, "shape": shape, "size": size}},
    ]
