"""The figure against the axes of the campaign: a heat map with the number in each cell, or, of one axis, dots with their intervals.

The page sets `x` and `y` of every row of `groups` to the levels of the axes that the reader chose (`Chart.axes`, the one that changes the
figure most first: x is the first and y the second until the reader chooses). Where several groups fall into one cell the best is drawn.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import fmean, pvariance

from seatrial.records.columns import AXIS
from seatrial.records.measure import Cell
from seatrial.report.html import loose
from seatrial.report.html.chart import Chart
from seatrial.report.html.page_data import PageData
from seatrial.report.html.shown_text import plain
from seatrial.report.html.specs.palette import BLUE, HEAT, ON_DARK, ON_LIGHT
from seatrial.report.html.specs.placed import Row, is_number, rows_of
from seatrial.report.html.specs.ranking import figure_title
from seatrial.report.html.specs.series import nearest
from seatrial.report.html.specs.theme import NUMBER, TEXT, Spec, by_width, document, quantity
from seatrial.report.html.specs.tooltip import interval_text, nearest_tooltip, number, tooltip, word

X, Y = "{x}", "{y}"
"""Titles that the page puts the chosen axes' names in place of."""
ABOVE: Spec = {"titleAngle": 0, "titleAlign": "left", "titleAnchor": "end", "titleBaseline": "bottom", "titleX": 0, "titleY": -6}
"""Where the name of y has room: few rows are lower than it is long."""


def heat(data: PageData) -> Chart | None:
    """None where no axis has two levels with a figure each."""
    axes = axes_by_effect(data)
    if not axes:
        return None
    drawn = _map(data, len({row.get(AXIS + axes[1]) for row in _figures(data)})) if len(axes) > 1 else _dots(data, axes[0])
    several = " Where several groups share a cell, the best is shown; the tooltip names it." if len(axes) > 1 else ""
    return Chart(
        id="heat",
        section="heat",
        title="Figure by axis" if len(axes) == 1 else "Figure by two axes",
        caption=f"{figure_title(data)}, over the steps that count.{several}",
        table="groups",
        spec=drawn,
        axes=axes,
    )


def axes_by_effect(data: PageData) -> tuple[str, ...]:
    """Axes with two levels or more, the one whose levels differ most in the figure first."""
    figures = _figures(data)
    names = [column.removeprefix(AXIS) for column in data.tables.get("groups", {}) if column.startswith(AXIS)]
    with_effect = [(_effect(figures, name), name) for name in names if len({row[AXIS + name] for row in figures}) > 1]
    # The sort is stable: axes of equal effect keep the plan's order.
    return tuple(name for _, name in sorted(with_effect, key=lambda pair: -pair[0]))


def _figures(data: PageData) -> list[Row]:
    return [row for row in rows_of(data.tables.get("groups")) if is_number(row.get("value"))]


def _effect(figures: Sequence[Row], axis: str) -> float:
    """How far the levels' means lie apart, on logs where the figure allows it."""
    positive = all(float(row["value"] or 0) > 0 for row in figures)
    levels: dict[Cell, list[float]] = {}
    for row in figures:
        value = float(row["value"] or 0)
        levels.setdefault(row[AXIS + axis], []).append(math.log(value) if positive else value)
    return pvariance([fmean(values) for values in levels.values()])


def _best_of_cell(data: PageData) -> list[Spec]:
    less = loose.mapping(data.summary, "ranking").get("higher_is_better") is False
    first = {"op": "row_number", "as": "best"}
    return [
        {"filter": "isValid(datum.value) && isFinite(datum.value)"},
        {"window": [first], "sort": [{"field": "value", "order": "ascending" if less else "descending"}], "groupby": ["x", "y"]},
        {"filter": "datum.best === 1"},
        {"joinaggregate": [{"op": "min", "field": "value", "as": "least"}, {"op": "max", "field": "value", "as": "most"}]},
        {"calculate": "datum.most > datum.least ? (datum.value - datum.least) / (datum.most - datum.least) : 0", "as": "shade"},
        {"calculate": f"datum.value === datum.{'least' if less else 'most'}", "as": "is_best"},
        interval_text("low", "high", "interval"),
    ]


def _shown(unit: str) -> list[Spec]:
    figure = [number("value", unit), word("interval", "95 % interval"), word("runs", "runs")]
    return tooltip([word("x", X), *figure, word("group", "group")])


def _unit(data: PageData) -> str:
    return loose.text(data.summary, "ranking", "unit") or "figure"


def _map(data: PageData, num_rows: int) -> Spec:
    frame = {"condition": {"test": "datum.is_best", "value": TEXT}, "value": None}
    colour = {
        "field": "value",
        "type": "quantitative",
        "scale": {"range": list(HEAT), "zero": False, "nice": False},
        "legend": {"title": _unit(data), "orient": "bottom", "gradientLength": by_width(200, 300), "format": NUMBER, "tickCount": 4},
    }
    # A cell that cannot hold its number shows its colour alone.
    size = {"expr": "bandwidth('x') < 24 ? 0 : bandwidth('x') < 44 ? 9 : 12"}
    on_cell = {"condition": {"test": "datum.shade > 0.65", "value": ON_DARK}, "value": ON_LIGHT}
    axis = {"labelLimit": by_width(80, 140), "labelPadding": 6, "grid": False, "ticks": False, "domain": False}
    shown = _shown(_unit(data))
    return document(
        height={"step": 34 if num_rows <= 12 else 24},
        transform=_best_of_cell(data),
        encoding={
            "x": {"field": "x", "type": "ordinal", "title": X, "axis": {**axis, "labelAngle": 0, "title": X}},
            "y": {"field": "y", "type": "ordinal", "title": Y, "axis": {**axis, **ABOVE, "title": Y}},
            "tooltip": [shown[0], word("y", Y), *shown[1:]],
        },
        layer=[
            {"mark": {"type": "rect", "strokeWidth": 2}, "encoding": {"color": colour, "stroke": frame}},
            {
                "mark": {"type": "text", "fontSize": size},
                "encoding": {"text": {"field": "value", "type": "quantitative", "format": NUMBER}, "color": on_cell},
            },
        ],
    )


def _dots(data: PageData, axis: str) -> Spec:
    numeric = all(is_number(row[AXIS + axis]) for row in _figures(data))
    y = quantity("value", figure_title(data), zero=False)
    y["axis"] = {**y["axis"], "titleLimit": 240}
    line: list[Spec] = [{"mark": {"type": "line", "color": BLUE, "opacity": 0.5}, "encoding": {"y": y}}] if numeric else []
    shown = [word("x", plain(axis)), *_shown(_unit(data))[1:]]
    return document(
        height=260,
        transform=_best_of_cell(data),
        encoding={
            "x": {"field": "x", "type": "ordinal", "title": X, "axis": {"labelAngle": 0, "title": X, "labelLimit": 100}},
        },
        layer=[
            *line,
            {"mark": {"type": "rule", "color": BLUE, "strokeWidth": 2}, "encoding": {"y": {**y, "field": "low"}, "y2": {"field": "high"}}},
            {
                # The nearest dot answers over its interval and over the line too, which has but one tooltip of its own.
                "params": [nearest(["x"])],
                "mark": {"type": "point", "filled": True, "size": 90, "color": BLUE, "opacity": 1},
                "encoding": {"y": y, "tooltip": nearest_tooltip(shown)},
            },
        ],
    )
