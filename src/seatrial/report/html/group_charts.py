"""Charts of groups: ranking, heat map over the axes, phases of a step, start-up."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from statistics import fmean, geometric_mean, pvariance
from typing import Any

from seatrial.core.text import join_names
from seatrial.records.caution import Scalar
from seatrial.records.columns import AXIS
from seatrial.records.events import STARTUP_PARTS
from seatrial.records.ranking import (
    CANNOT_WIN,
    CONFOUNDED,
    DUPLICATE,
    NO_INTERVAL,
    OFF_LANE,
    ONLY_GROUP,
    RECOMMENDED,
    TIED,
    WINNER,
)
from seatrial.report.html import vega
from seatrial.report.html.data import STARTUP_WINDOW, Chart, ChartData
from seatrial.report.html.vega import Row, Spec
from seatrial.report.text import figure, finite_number, plain_line
from seatrial.report.view.campaign import NOTE_TEXTS

NOT_PROVEN = NOTE_TEXTS[RECOMMENDED]
BEHIND = "behind"
"""Standing of a group without a note."""
STANDINGS = {
    WINNER: (vega.GREEN, "circle"),
    NOT_PROVEN: (vega.ORANGE, "square"),
    ONLY_GROUP: (vega.BLUE, "circle"),
    TIED: (vega.BLUE, "diamond"),
    NO_INTERVAL: (vega.PURPLE, "circle"),
    CONFOUNDED: (vega.PURPLE, "square"),
    DUPLICATE: (vega.GREY, "diamond"),
    BEHIND: (vega.GREY, "circle"),
    CANNOT_WIN: (vega.RED, "cross"),
    OFF_LANE: (vega.PINK, "triangle-up"),
}
"""Colour and shape."""


def ranking_chart(data: ChartData) -> Chart | None:
    """None where no group has a figure."""
    groups = [row for row in vega.ranked_groups(data) if vega.is_number(row.get("value"))]
    if not groups:
        return None
    drawn = groups[: vega.MAX_NAMES]
    values = [{"group": row["group"], "position": position, "standing": _standing(row)} for position, row in enumerate(drawn)]
    return Chart(
        id="ranking",
        section="ranking",
        title="Ranking",
        caption="Figure and 95 % interval of each group, in the order of the ranking."
        + vega.best_only_note(len(drawn), len(groups), "groups"),
        tables=("groups",),
        spec=vega.document(
            height=vega.row_height(len(drawn)),
            transform=[*vega.lookup_rows("group", values), *_texts()],
            encoding={
                "y": vega.named_y("group"),
                "color": _channel(values, "color"),
                "tooltip": _ranking_tooltip(str(drawn[0].get("unit") or "")),
            },
            layer=_ranking_layers(data, values),
        ),
    )


def _standing(row: Row) -> str:
    """A key of STANDINGS: the note without the remarks after it."""
    note = str(row.get("note") or "").split(",")[0]
    return NOTE_TEXTS.get(note, note) or BEHIND


def figure_title(data: ChartData) -> str:
    """The ranked figure, and whether more or less is better."""
    return f"{data.unit or 'figure'} ({'more' if data.higher_is_better else 'less'} is better)"


def _texts() -> list[Spec]:
    return [
        vega.interval_text("low", "high", "interval"),
        vega.interval_text("ratio_low", "ratio_high", "ratio_interval", ".3f"),
        vega.number_text("ratio", "ratio_text", ".3f"),
        vega.number_text("p90_over_p50", "p90_text", ".3f"),
    ]


def _ranking_tooltip(unit: str) -> list[Spec]:
    return vega.tooltip(
        [
            vega.text_field("group", "group"),
            vega.text_field("rank", "rank"),
            vega.number_field("value", unit or "figure"),
            vega.text_field("interval", "95 % interval"),
            vega.text_field("ratio_text", "of the best mean"),
            vega.text_field("ratio_interval", "its 95 % interval"),
            vega.text_field("runs", "runs"),
            vega.text_field("p90_text", "wall p90/p50"),
            vega.text_field("standing", "standing"),
        ]
    )


def _channel(values: list[dict[str, Any]], kind: str) -> Spec:
    """`color`, `fill` or `shape` by standing; channels with the same domain share a legend."""
    there = [name for name in STANDINGS if any(row["standing"] == name for row in values)]
    ranges = {
        "color": [STANDINGS[name][0] for name in there],
        "fill": ["transparent" if name == NO_INTERVAL else STANDINGS[name][0] for name in there],
        "shape": [STANDINGS[name][1] for name in there],
    }
    return {"field": "standing", "type": "nominal", "scale": {"domain": there, "range": ranges[kind]}, "legend": vega.legend()}


def _ranking_layers(data: ChartData, values: list[dict[str, Any]]) -> list[Spec]:
    is_winner = "datum.standing === 'winner'"
    x = vega.quantity("value", figure_title(data), zero=False)
    size = {"condition": {"test": is_winner, "value": 160}, "value": 80}
    bold = [row["group"] for row in values if row["standing"] == WINNER][:1]
    y = vega.named_y("group")
    if bold:
        # ASCII JSON is a safe literal in an expression, whatever the name contains.
        y["axis"]["labelFontWeight"] = {"condition": {"test": f"datum.value === {json.dumps(bold[0])}", "value": "bold"}, "value": "normal"}
    width = {"condition": {"test": is_winner, "value": 4}, "value": 2}
    return [
        {"mark": {"type": "rule"}, "encoding": {"y": y, "x": {**x, "field": "low"}, "x2": {"field": "high"}, "strokeWidth": width}},
        {
            "mark": {"type": "point", "filled": False, "strokeWidth": 2, "opacity": 1},
            "encoding": {"x": x, "size": size, **{kind: _channel(values, kind) for kind in ("fill", "shape")}},
        },
    ]


X, Y = "{x}", "{y}"
"""Titles that the page replaces by the names of the chosen axes."""
ABOVE: Spec = {"titleAngle": 0, "titleAlign": "left", "titleAnchor": "end", "titleBaseline": "bottom", "titleX": 0, "titleY": -6}
"""The title of y above the axis: a chart of few rows is lower than the title is long."""


def heat_chart(data: ChartData) -> Chart | None:
    """None where no axis has two levels with a figure each."""
    axes = axes_by_effect(data)
    if not axes:
        return None
    drawn = _heat_map(data, len({row.get(AXIS + axes[1]) for row in _figures(data)})) if len(axes) > 1 else _dots(data, axes[0])
    several = " Where several groups share a cell, the best is shown; the tooltip names it." if len(axes) > 1 else ""
    return Chart(
        id="heat",
        section="heat",
        title="Figure by axis" if len(axes) == 1 else "Figure by two axes",
        caption=f"{figure_title(data)}, over the steps that count.{several}",
        tables=("groups",),
        spec=drawn,
        axes=axes,
    )


def axes_by_effect(data: ChartData) -> tuple[str, ...]:
    """Axes with two levels or more, by how much the figure differs between their levels."""
    figures = _figures(data)
    names = [column.removeprefix(AXIS) for column in data.tables.get("groups", {}) if column.startswith(AXIS)]
    with_effect = [(_effect(figures, name), name) for name in names if len({row[AXIS + name] for row in figures}) > 1]
    # The sort is stable: axes of equal effect keep the plan's order.
    return tuple(name for _, name in sorted(with_effect, key=lambda pair: -pair[0]))


def _figures(data: ChartData) -> list[Row]:
    return [row for row in vega.table_rows(data.tables.get("groups")) if vega.is_number(row.get("value"))]


def _effect(figures: Sequence[Row], axis: str) -> float:
    """Variance of the levels' means, on logs where all figures are positive."""
    positive = all(float(row["value"] or 0) > 0 for row in figures)
    levels: dict[Scalar, list[float]] = {}
    for row in figures:
        value = float(row["value"] or 0)
        levels.setdefault(row[AXIS + axis], []).append(math.log(value) if positive else value)
    return pvariance([fmean(values) for values in levels.values()])


def _best_of_cell(data: ChartData) -> list[Spec]:
    less = not data.higher_is_better
    first = {"op": "row_number", "as": "best"}
    return [
        {"filter": "isValid(datum.value) && isFinite(datum.value)"},
        {"window": [first], "sort": [{"field": "value", "order": "ascending" if less else "descending"}], "groupby": ["x", "y"]},
        {"filter": "datum.best === 1"},
        {"joinaggregate": [{"op": "min", "field": "value", "as": "least"}, {"op": "max", "field": "value", "as": "most"}]},
        {"calculate": "datum.most > datum.least ? (datum.value - datum.least) / (datum.most - datum.least) : 0", "as": "shade"},
        {"calculate": f"datum.value === datum.{'least' if less else 'most'}", "as": "is_best"},
        vega.interval_text("low", "high", "interval"),
    ]


def _heat_tooltip(unit: str) -> list[Spec]:
    figure = [vega.number_field("value", unit), vega.text_field("interval", "95 % interval"), vega.text_field("runs", "runs")]
    return vega.tooltip([vega.text_field("x", X), *figure, vega.text_field("group", "group")])


def _heat_map(data: ChartData, num_rows: int) -> Spec:
    frame = {"condition": {"test": "datum.is_best", "value": vega.TEXT}, "value": None}
    colour = {
        "field": "value",
        "type": "quantitative",
        "scale": {"range": list(vega.HEAT), "zero": False, "nice": False},
        "legend": {
            "title": data.unit or "figure",
            "orient": "bottom",
            "gradientLength": vega.by_width(200, 300),
            "format": vega.NUMBER,
            "tickCount": 4,
        },
    }
    # A cell that is too small for its number shows only its colour.
    size = {"expr": "bandwidth('x') < 24 ? 0 : bandwidth('x') < 44 ? 9 : 12"}
    on_cell = {"condition": {"test": "datum.shade > 0.65", "value": vega.ON_DARK}, "value": vega.ON_LIGHT}
    axis = {"labelLimit": vega.by_width(80, 140), "labelPadding": 6, "grid": False, "ticks": False, "domain": False}
    shown = _heat_tooltip(data.unit or "figure")
    return vega.document(
        height={"step": 34 if num_rows <= 12 else 24},
        transform=_best_of_cell(data),
        encoding={
            "x": {"field": "x", "type": "ordinal", "title": X, "axis": {**axis, "labelAngle": 0, "title": X}},
            "y": {"field": "y", "type": "ordinal", "title": Y, "axis": {**axis, **ABOVE, "title": Y}},
            "tooltip": [shown[0], vega.text_field("y", Y), *shown[1:]],
        },
        layer=[
            {"mark": {"type": "rect", "strokeWidth": 2}, "encoding": {"color": colour, "stroke": frame}},
            {
                "mark": {"type": "text", "fontSize": size},
                "encoding": {"text": {"field": "value", "type": "quantitative", "format": vega.NUMBER}, "color": on_cell},
            },
        ],
    )


def _dots(data: ChartData, axis: str) -> Spec:
    numeric = all(vega.is_number(row[AXIS + axis]) for row in _figures(data))
    y = vega.quantity("value", figure_title(data), zero=False)
    y["axis"] = {**y["axis"], "titleLimit": 240}
    line: list[Spec] = [{"mark": {"type": "line", "color": vega.BLUE, "opacity": 0.5}, "encoding": {"y": y}}] if numeric else []
    shown = [vega.text_field("x", plain_line(axis)), *_heat_tooltip(data.unit or "figure")[1:]]
    return vega.document(
        height=260,
        transform=_best_of_cell(data),
        encoding={
            "x": {"field": "x", "type": "ordinal", "title": X, "axis": {"labelAngle": 0, "title": X, "labelLimit": 100}},
        },
        layer=[
            *line,
            {
                "mark": {"type": "rule", "color": vega.BLUE, "strokeWidth": 2},
                "encoding": {"y": {**y, "field": "low"}, "y2": {"field": "high"}},
            },
            {
                # The nearest dot also responds over its interval and the line, which has only one tooltip of its own.
                "params": [vega.nearest(["x"])],
                "mark": {"type": "point", "filled": True, "size": 90, "color": vega.BLUE, "opacity": 1},
                "encoding": {"y": y, "tooltip": vega.nearest_tooltip(shown)},
            },
        ],
    )


def stacked_bars(
    groups: Sequence[str],
    part: str,
    field: str,
    unit: str,
    colours: Mapping[str, str],
    *,
    windows: Mapping[str, str],
    group_transforms: Sequence[Spec] = (),
    shown: Sequence[Spec] = (),
) -> Spec:
    """A bar per group; `part` is the column that names a part, `field` its amount in `unit`, and `whole` the sum of the parts. `windows`
    has the windows of each group's runs as text; `group_transforms` compute what `shown` adds to the tooltip."""
    group_rows = [
        {"group": group, "position": position, "window": windows.get(group, vega.UNKNOWN)} for position, group in enumerate(groups)
    ]
    shades = {"domain": list(colours), "range": list(colours.values())}
    return vega.document(
        height=vega.row_height(len(groups)),
        transform=[
            *vega.lookup_rows("group", group_rows),
            *vega.lookup_rows(part, [{part: name, "at": at} for at, name in enumerate(colours)]),
            *_mean(part, field),
            *group_transforms,
        ],
        mark={"type": "bar"},
        encoding={
            "y": vega.named_y("group"),
            "x": vega.quantity("mean", unit),
            "color": {"field": part, "type": "nominal", "scale": shades, "legend": vega.legend(columns=(2, 6))},
            "order": {"field": "at", "type": "quantitative"},
            "tooltip": vega.tooltip(
                [
                    vega.text_field("group", "group"),
                    vega.text_field(part, "part"),
                    vega.number_field("mean", unit),
                    vega.number_field("share", "share", ".1%"),
                    *shown,
                    vega.text_field("runs", "runs"),
                ]
            ),
        },
    )


def _mean(part: str, field: str) -> list[Spec]:
    means = [
        {"op": "mean", "field": field, "as": "mean"},
        {"op": "distinct", "field": "run", "as": "runs"},
        {"op": "sum", "field": "n", "as": "n"},
    ]
    return [
        {"aggregate": means, "groupby": ["group", "position", "window", part, "at"]},
        {"joinaggregate": [{"op": "sum", "field": "mean", "as": "whole"}], "groupby": ["group"]},
        {"calculate": "datum.whole > 0 ? datum.mean / datum.whole : 0", "as": "share"},
    ]


PHASE_TOOLTIP = (vega.number_field("whole", "those steps, ms"), vega.text_field("median_text", "the median step, ms"))
"""Figures of the group in the tooltip of each phase."""


def phases_chart(data: ChartData) -> Chart | None:
    """None where no run recorded phases."""
    groups, in_all = vega.first_of(data, "phases", "group")
    if not groups:
        return None
    median_steps = _median_steps(data)
    return Chart(
        id="phases",
        section="phases",
        title="Phases of a step",
        caption=f"Milliseconds a step spends in each phase, mean over a group's runs, on the steps whose phases were recorded. "
        f"{_phases_sentence(groups[0], data, median_steps)}{vega.best_only_note(len(groups), in_all, 'groups')}",
        tables=("phases",),
        spec=stacked_bars(
            groups,
            "phase",
            "mean_ms",
            "ms a step",
            _colours(data),
            windows=_windows(data),
            group_transforms=_median_step_text(median_steps),
            shown=PHASE_TOOLTIP,
        ),
    )


def _windows(data: ChartData) -> dict[str, str]:
    """Group → the windows of its runs, mostly one and the same."""
    spans: dict[str, dict[str, None]] = {}
    for row in vega.table_rows(data.tables["phases"]):
        spans.setdefault(str(row["group"]), {})[f"{row['first_step']}–{row['last_step']}"] = None
    return {group: f"steps {join_names(list(there))}" for group, there in spans.items()}


def _median_steps(data: ChartData) -> dict[str, float]:
    """Group → its median step in ms: the geometric mean of its runs' medians by wall clock, as in all reports."""
    with_phases = {str(row["run"]) for row in vega.table_rows(data.tables["phases"])}
    found: dict[str, list[float]] = {}
    for row in vega.table_rows(data.tables.get("runs")):
        if row["run"] in with_phases and (ms := finite_number(row.get("p50_ms"))):
            found.setdefault(str(row["group"]), []).append(ms)
    return {group: geometric_mean(values) for group, values in found.items()}


def _phases_sentence(group: str, data: ChartData, median_steps: dict[str, float]) -> str:
    """A sentence about one group; those of the others are in the tooltips."""
    rows = [row for row in vega.table_rows(data.tables["phases"]) if row["group"] == group]
    steps = sum({str(row["run"]): int(finite_number(row.get("n")) or 0) for row in rows}.values())
    phases_ms: dict[str, list[float]] = {}
    for row in rows:
        phases_ms.setdefault(str(row["phase"]), []).append(finite_number(row.get("mean_ms")) or 0.0)
    those = f"In {group} these are {steps:,} steps, which took {figure(sum(map(fmean, phases_ms.values())))} ms"
    return f"{those}; its median step took {figure(median_steps[group])} ms." if group in median_steps else f"{those}."


def _median_step_text(median_steps: dict[str, float]) -> list[Spec]:
    values = [{"group": group, "median_ms": ms} for group, ms in median_steps.items()]
    looked_up = {"lookup": "group", "from": {"data": {"values": values}, "key": "group", "fields": ["median_ms"]}}
    return [*([looked_up] if values else [{"calculate": "null", "as": "median_ms"}]), vega.number_text("median_ms", "median_text")]


def _colours(data: ChartData) -> dict[str, str]:
    """Phase → colour, in the order of a step; unknown phases before `other`."""
    there = [str(phase) for phase in dict.fromkeys(data.tables["phases"]["phase"])]
    unknown = {phase: vega.series_colour(index) for index, phase in enumerate(there) if phase not in vega.PHASE_COLOURS}
    known = {phase: shade for phase, shade in vega.PHASE_COLOURS.items() if phase in there and phase != "other"}
    return {**known, **unknown, **({"other": vega.GREY} if "other" in there else {})}


STARTUP_COLOURS = {
    "launch": vega.BROWN,
    "import": vega.SKY,
    "process_group": vega.PINK,
    "model": vega.BLUE,
    "data": vega.ORANGE,
    "tokenise": vega.PURPLE,
    "compile": vega.GREEN,
    "first_step": vega.RED,
    "other": vega.GREY,
}
"""Other parts get a colour by their position."""


def startup_chart(data: ChartData) -> Chart | None:
    """None where no run recorded its start-up."""
    table = data.tables.get("startup")
    if table is None:
        return None
    groups, in_all = vega.first_of(data, "startup", "group")
    colours = {part: STARTUP_COLOURS.get(part, vega.series_colour(at)) for at, part in enumerate(STARTUP_PARTS) if part in table["part"]}
    return Chart(
        id="startup",
        section="startup",
        title="Start-up",
        caption="Seconds from launch to the end of the first step, mean over a group's runs."
        + vega.best_only_note(len(groups), in_all, "groups"),
        tables=("startup",),
        spec=stacked_bars(groups, "part", "seconds", "seconds", colours, windows=dict.fromkeys(groups, STARTUP_WINDOW)),
    )
