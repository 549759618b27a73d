"""The ranking: a dot with its 95 % interval for each group, in the order of the ranking.

How a group stands is the word of its note (report/digest/standings.py), told by colour and shape; of an earlier version's summary.json,
which has no notes, it is made of its `ranking` by the same rule. What rests on no interval is hollow.
"""

from __future__ import annotations

import json
from typing import Any

from seatrial.report.digest.standings import ALONE, CANNOT_WIN, LEADS, NO_INTERVAL, OFF_LANE, SHOWN_NOTES, TIED, WINNER
from seatrial.report.html import loose
from seatrial.report.html.chart import Chart
from seatrial.report.html.page_data import PageData
from seatrial.report.html.specs.palette import BLUE, GREEN, GREY, ORANGE, PINK, PURPLE, RED
from seatrial.report.html.specs.placed import MOST, Row, is_number, only_best, ranked_groups, shown, told
from seatrial.report.html.specs.theme import Spec, document, legend, named_y, quantity, row_height
from seatrial.report.html.specs.tooltip import interval_text, number, number_text, tooltip, word
from seatrial.report.html.summary_tables import unit_of

NOT_PROVEN = SHOWN_NOTES[LEADS]
BEHIND = "behind"
"""How a group stands that has no note."""
STANDINGS = {
    WINNER: (GREEN, "circle"),
    NOT_PROVEN: (ORANGE, "square"),
    ALONE: (BLUE, "circle"),
    TIED: (BLUE, "diamond"),
    NO_INTERVAL: (PURPLE, "circle"),
    BEHIND: (GREY, "circle"),
    CANNOT_WIN: (RED, "cross"),
    OFF_LANE: (PINK, "triangle-up"),
}
"""Colour and shape."""


def ranking(data: PageData) -> Chart | None:
    """None where no group has a figure."""
    groups = [row for row in ranked_groups(data) if is_number(row.get("value"))]
    if not groups:
        return None
    drawn = groups[:MOST]
    values = [{"group": row["group"], "place": place, "standing": standing(row, data.summary)} for place, row in enumerate(drawn)]
    return Chart(
        id="ranking",
        section="ranking",
        title="Ranking",
        caption=f"Figure and 95 % interval of each group, in the order of the ranking.{only_best(len(drawn), len(groups), 'groups')}",
        table="groups",
        spec=document(
            height=row_height(len(drawn)),
            transform=[*told("group", values), *_texts()],
            encoding={"y": named_y("group"), "color": _channel(values, "color"), "tooltip": _tooltip(str(drawn[0].get("unit") or ""))},
            layer=_layers(data, values),
        ),
    )


def standing(row: Row, summary: dict[str, Any]) -> str:
    """A word of STANDINGS."""
    # What stands behind the first comma is a remark beside the note.
    said = str(row.get("note")).split(",")[0]
    note = SHOWN_NOTES.get(said, said)
    return note if note in STANDINGS else _standing_by_rank(row, summary)


def _standing_by_rank(row: Row, summary: dict[str, Any]) -> str:
    if not row.get("lane"):
        return OFF_LANE
    if row["group"] == shown(loose.text(summary, "ranking", "winner")):
        is_proven = loose.mapping(summary, "ranking").get("decided") is True and not loose.items(summary, "pending")
        return WINNER if is_proven else NOT_PROVEN
    place: dict[str, Any] = next(
        (one for one in loose.objects(summary, "ranking", "groups") if shown(one.get("group")) == row["group"]), {}
    )
    if place.get("can_win") is False:
        return CANNOT_WIN
    if not place.get("tied"):
        return BEHIND
    return TIED if loose.number(place, "ratio", "low") is not None or not loose.mapping(place, "ratio") else NO_INTERVAL


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
    ]


def _tooltip(unit: str) -> list[Spec]:
    return tooltip(
        [
            word("group", "group"),
            word("rank", "rank"),
            number("value", unit or "figure"),
            word("interval", "95 % interval"),
            word("ratio_text", "of the best mean"),
            word("ratio_interval", "its 95 % interval"),
            word("runs", "runs"),
            word("p90_text", "wall p90/p50"),
            word("standing", "standing"),
        ]
    )


def _channel(values: list[dict[str, Any]], kind: str) -> Spec:
    """`color`, `fill` or `shape` by standing; channels alike in domain share one legend."""
    there = [name for name in STANDINGS if any(row["standing"] == name for row in values)]
    told = {
        "color": [STANDINGS[name][0] for name in there],
        "fill": ["transparent" if name == NO_INTERVAL else STANDINGS[name][0] for name in there],
        "shape": [STANDINGS[name][1] for name in there],
    }
    return {"field": "standing", "type": "nominal", "scale": {"domain": there, "range": told[kind]}, "legend": legend()}


def _layers(data: PageData, values: list[dict[str, Any]]) -> list[Spec]:
    is_winner = "datum.standing === 'winner'"
    x = quantity("value", figure_title(data), zero=False)
    size = {"condition": {"test": is_winner, "value": 160}, "value": 80}
    bold = [row["group"] for row in values if row["standing"] == WINNER][:1]
    y = named_y("group")
    if bold:
        # ASCII JSON is a safe literal of an expression, whatever the name holds.
        y["axis"]["labelFontWeight"] = {"condition": {"test": f"datum.value === {json.dumps(bold[0])}", "value": "bold"}, "value": "normal"}
    width = {"condition": {"test": is_winner, "value": 4}, "value": 2}
    return [
        {"mark": {"type": "rule"}, "encoding": {"y": y, "x": {**x, "field": "low"}, "x2": {"field": "high"}, "strokeWidth": width}},
        {
            "mark": {"type": "point", "filled": False, "strokeWidth": 2, "opacity": 1},
            "encoding": {"x": x, "size": size, **{kind: _channel(values, kind) for kind in ("fill", "shape")}},
        },
    ]
