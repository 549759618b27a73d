"""Building blocks of the Vega-Lite charts: colours, theme, axes, tooltips, lookups and series."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from seatrial.records.caution import Scalar
from seatrial.records.columns import Columns
from seatrial.report.html.data import ChartData
from seatrial.report.text import finite_number, plain_line

COLOURS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#8C8C8C")
BLUE, ORANGE, GREEN, PINK, SKY, RED, GREY = COLOURS
PURPLE, BROWN = "#7A5195", "#8A6428"
SERIES = (*COLOURS, PURPLE)
"""Eight runs can be selected, and a node has eight GPUs."""
DASHES: tuple[list[int], ...] = ([1, 0], [6, 3], [2, 2], [8, 2, 2, 2])
"""Dashes of series that share a colour or cross each other."""
HEAT = ("#e3eef9", "#9ac8e0", "#4a97c9", "#1862a8", "#08306b")
"""One hue from light to dark, the same on both backgrounds: only darkness gives the order."""
ON_LIGHT, ON_DARK = "#111111", "#ffffff"
"""Text in a cell of HEAT."""
PHASE_COLOURS = {"data_wait": ORANGE, "preprocess": PINK, "fwd": SKY, "bwd": BLUE, "step": GREEN, "other": GREY}
"""Phases in the order of a step."""


def series_colour(index: int) -> str:
    """The colour of the series with that index; they repeat after the last."""
    return SERIES[index % len(SERIES)]


Spec = dict[str, Any]

SCHEMA = "https://vega.github.io/schema/vega-lite/v6.json"
TEXT = "currentColor"
GRID = "#808080"
FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'DejaVu Sans', sans-serif"
NUMBER = ",.4~r"
"""Four significant digits, thousands separated."""
# Half of a label such as 250,000.
FLUSH_PX = 24
# A phone held upright; outside a browser the size is unknown.
NARROW = "(containerSize()[0] || 800) < 500"

CONFIG: Spec = {
    "background": "transparent",
    "font": FONT,
    "view": {"stroke": None},
    "axis": {
        **{f"{part}Color": TEXT for part in ("label", "title", "tick", "domain")},
        "gridColor": GRID,
        "gridOpacity": 0.25,
        "labelFontSize": 12,
        "titleFontSize": 12,
        "titleFontWeight": "normal",
        "labelOverlap": True,
    },
    # The last label of x is inside: the axis gets its final range after the layout.
    "axisXQuantitative": {"labelFlush": FLUSH_PX},
    "legend": {
        "labelColor": TEXT,
        "titleColor": TEXT,
        "labelFontSize": 12,
        "titleFontSize": 12,
        "titleFontWeight": "normal",
        "orient": "top",
    },
    "title": {"color": TEXT, "fontSize": 12, "fontWeight": "normal", "anchor": "start"},
    "text": {"color": TEXT, "fontSize": 12},
    "rule": {"color": TEXT},
}


def document(**parts: Any) -> Spec:
    """A whole chart; `parts` override the defaults."""
    fitted = {"width": "container", "autosize": {"type": "fit-x", "contains": "padding"}}
    return {"$schema": SCHEMA, "data": {"name": "rows"}, **fitted, "config": CONFIG, **parts}


def by_width(narrow: float, wide: float) -> Spec:
    """One number for phones, another for wider screens."""
    return {"expr": f"{NARROW} ? {narrow} : {wide}"}


def named_y(field: str) -> Spec:
    """One row per name, in the order of the field `position`; long names are shortened, and complete in the tooltip."""
    axis = {"labelExpr": short(14, 34), "labelLimit": by_width(112, 260), "title": None, "ticks": False, "domain": False, "labelPadding": 6}
    return {
        "field": field,
        "type": "nominal",
        "sort": {"field": "position", "op": "min", "order": "ascending"},
        "axis": {**axis, "grid": False},
    }


def row_height(count: int) -> Spec:
    """Height for `count` names, one per row."""
    return {"step": 26 if count <= 12 else 20}


def quantity(field: str, title: str, *, zero: bool = True, **scale: Any) -> Spec:
    """A number along x or y."""
    axis = {"title": title, "tickCount": by_width(4, 8), "format": NUMBER}
    return {"field": field, "type": "quantitative", "scale": {"zero": zero, **scale}, "axis": axis}


def legend(*, columns: tuple[int, int] = (2, 4)) -> Spec:
    """A legend above the chart, with `columns` on phones and elsewhere; its symbols are solid even where the chart's marks are light."""
    narrow, wide = columns
    room = {
        "columns": by_width(narrow, wide),
        "labelExpr": short(24 // narrow, 96 // wide),
        "labelLimit": by_width(180 / narrow, 680 / wide),
    }
    return {"title": None, "orient": "top", "symbolLimit": 40, "symbolOpacity": 1, **room}


def short(narrow: int, wide: int) -> str:
    """An expression that cuts long labels in the middle: names of one family differ at their ends."""
    most = f"({NARROW} ? {narrow} : {wide})"
    begin = f"substring(datum.label, 0, floor({most} * 0.4))"
    end = f"substring(datum.label, length(datum.label) - ceil({most} * 0.5), length(datum.label))"
    return f"length(datum.label) > {most} ? {begin} + '…' + {end} : datum.label"


SECONDS = ",.2~f"
COUNTED: tuple[Spec, ...] = ({"field": "window", "type": "nominal", "title": "window"}, {"field": "n", "type": "nominal", "title": "n"})
"""The steps that a figure is from, and their number."""
SPELT_WINDOW: Spec = {"calculate": "'steps ' + datum.first_step + '–' + datum.last_step", "as": "window"}
"""The window as text, for tables that have it as two numbers."""


def spelt_seconds(begin: str, end: str) -> Spec:
    """The window in seconds since launch, for rows of time instead of steps."""
    first, last = (f"format(datum.{field}, '{SECONDS}')" for field in (begin, end))
    return {"calculate": f"{first} + ({first} === {last} ? '' : ' to ' + {last}) + ' s since launch'", "as": "window"}


def text_field(field: str, title: str) -> Spec:
    return {"field": field, "type": "nominal", "title": title}


def number_field(field: str, title: str, form: str = NUMBER) -> Spec:
    return {"field": field, "type": "quantitative", "title": title, "format": form}


def tooltip(shown: Iterable[Spec]) -> list[Spec]:
    """`shown`, then window and n."""
    return [*shown, *COUNTED]


def nearest_tooltip(shown: Iterable[Spec]) -> Spec:
    """The tooltip of marks selected as nearest point: there Vega-Lite 6.4 finds the row's numbers but not its text."""
    row = "(datum.datum || datum)"
    parts = []
    for one in shown:
        cell = f"{row}[{json.dumps(one['field'])}]"
        text = f"format({cell}, {json.dumps(one['format'])})" if "format" in one else f"'' + {cell}"
        parts.append(f"{json.dumps(one['title'])}: isValid({cell}) ? {text} : '–'")
    return {"value": {"expr": f"{{{', '.join(parts)}}}"}}


def interval_text(low: str, high: str, name: str, form: str = NUMBER) -> Spec:
    """A transform: `LOW to HIGH`, or `none`; a format alone would show a missing bound as 0."""
    text = f"format(datum.{low}, '{form}') + ' to ' + format(datum.{high}, '{form}')"
    return {"calculate": f"isValid(datum.{low}) && isValid(datum.{high}) ? {text} : 'none'", "as": name}


def number_text(field: str, name: str, form: str = NUMBER) -> Spec:
    """A transform: the number as text, or `not known`."""
    return {"calculate": f"isValid(datum.{field}) ? format(datum.{field}, '{form}') : 'not known'", "as": name}


Row = dict[str, Scalar]

MAX_NAMES = 40
"""Names in one chart; more would not be readable."""
UNKNOWN = "not known"


def table_rows(table: Columns | None) -> list[Row]:
    """The rows of a table, with text as the page shows it."""
    if not table:
        return []
    return [dict(zip(table, values, strict=True)) for values in zip(*map(_plain, table.values()), strict=True)]


def _plain(values: Sequence[Scalar]) -> list[Scalar]:
    """The values as plain lines; names repeat in many rows, so each is converted once."""
    texts = {value: plain_line(value) for value in set(values) if isinstance(value, str)}
    return [texts[value] if isinstance(value, str) else value for value in values]


def is_number(value: object) -> bool:
    """Whether it is a number that can be drawn."""
    return finite_number(value) is not None


def ranked_groups(data: ChartData) -> list[Row]:
    """Groups with a rank, those of the main lane first."""
    ranked = [row for row in table_rows(data.tables.get("groups")) if is_number(row.get("rank"))]
    return sorted(ranked, key=lambda row: (not row.get("lane"), row["rank"]))


def group_order(data: ChartData) -> list[str]:
    """Names of all groups, those without a rank last."""
    ranked = [str(row["group"]) for row in ranked_groups(data)]
    return list(dict.fromkeys([*ranked, *(str(row["group"]) for row in table_rows(data.tables.get("groups")))]))


def run_order(data: ChartData) -> list[str]:
    """Names of all runs, those of the best group first."""
    positions = {group: position for position, group in enumerate(group_order(data))}
    rows = table_rows(data.tables.get("runs"))
    in_order = sorted(rows, key=lambda row: (positions.get(str(row["group"]), len(positions)), row.get("repeat") or 0))
    return [str(row["run"]) for row in in_order]


def first_of(data: ChartData, table: str, column: str) -> tuple[list[str], int]:
    """The first MAX_NAMES names of `column` with rows in `table`, by rank, and the number of all with rows."""
    order = run_order(data) if column == "run" else group_order(data)
    there = _names(data, table, column)
    names = [name for name in order if name in there]
    names += sorted(there.difference(names))
    return names[:MAX_NAMES], len(names)


def lookup_rows(column: str, rows: Sequence[Mapping[str, Any]]) -> list[Spec]:
    """Transforms that add the fields of `rows` by name, and drop rows without an entry."""
    if not rows:
        return [{"filter": "false"}]
    fields = [field for field in rows[0] if field != column]
    looked_up = {"lookup": column, "from": {"data": {"values": list(rows)}, "key": column, "fields": fields}}
    return [looked_up, {"filter": f"isValid(datum.{fields[0]})"}]


def lookup_position(column: str, names: Sequence[str]) -> list[Spec]:
    """Transforms that add the position of a row's name in `names` as `position`."""
    return lookup_rows(column, [{column: name, "position": position} for position, name in enumerate(names)])


def lookup_window(data: ChartData, *tables: str) -> list[Spec]:
    """Transforms that add window and n of its run to a row of `tables`."""
    there = {name for table in tables for name in _names(data, table, "run")}
    runs = [row for row in table_rows(data.tables.get("runs")) if str(row["run"]) in there]
    values = [{"run": row["run"], "window": row.get("window") or UNKNOWN, "n": row.get("n") or 0} for row in runs]
    looked_up = {"data": {"values": values}, "key": "run", "fields": ["window", "n"]}
    return [{"lookup": "run", "from": looked_up, "default": UNKNOWN}]


def _names(data: ChartData, table: str, column: str) -> set[str]:
    return {plain_line(str(name)) for name in set(data.tables.get(table, {}).get(column, []))}


def best_only_note(shown: int, in_all: int, what: str) -> str:
    """A sentence for the caption, where not all are drawn."""
    return f" Only the best {shown} of {in_all} {what} are drawn." if in_all > shown else ""


HOW_TO_ZOOM = "Drag to move, Ctrl and wheel to zoom, double click to see all."
X_TITLE = "{x}"
X_BY = {"step": ("step", "step"), "time": ("t_s", "seconds since launch")}
BINS = 150
"""Bins of the visible range: a pointer is not more precise."""


def zoom(**more: Any) -> Spec:
    """The selection of the visible range of x."""
    select = {"type": "interval", "encodings": ["x"], "zoom": "wheel![event.ctrlKey || event.metaKey]"}
    return {"name": "zoom", "select": select, "bind": "scales", **more}


def nearest(fields: list[str], **more: Any) -> Spec:
    """The selection of the point nearest to the pointer."""
    return {
        "name": "hover",
        "select": {"type": "point", "fields": fields, "nearest": True, "on": "pointermove", "clear": "pointerout"},
        **more,
    }


def highest_in_view(x: str, field: str, by: str) -> list[Spec]:
    """Transforms that keep what can be pointed at: for each `by`, the highest `field` in each of BINS parts of the visible range. A mark
    for each of thousands of rows would take a browser seconds."""
    return [
        *binned(x),
        {"window": [{"op": "row_number", "as": "nth"}], "sort": [{"field": field, "order": "descending"}], "groupby": [by, "bin"]},
        {"filter": "datum.nth === 1"},
    ]


def binned(x: str) -> list[Spec]:
    """Transforms that keep the visible rows and add their `bin` and the visible range (`from_x`, `to_x`)."""
    ends = [{"op": "min", "field": x, "as": "first_x"}, {"op": "max", "field": x, "as": "last_x"}]
    return [
        {"joinaggregate": ends},
        {"calculate": f"isValid(zoom.{x}) ? zoom.{x}[0] : datum.first_x", "as": "from_x"},
        {"calculate": f"isValid(zoom.{x}) ? zoom.{x}[1] : datum.last_x", "as": "to_x"},
        {"calculate": f"floor({BINS} * (datum.{x} - datum.from_x) / max(datum.to_x - datum.from_x, 1e-6))", "as": "bin"},
        {"filter": f"datum.bin >= 0 && datum.bin <= {BINS}"},
    ]


def x_axis() -> Spec:
    axis = {"title": X_TITLE, "tickCount": by_width(4, 10), "format": NUMBER, "grid": False}
    return {"field": "x", "type": "quantitative", "scale": {"zero": False, "nice": False}, "axis": axis}


def by_run() -> Spec:
    """Colour and dash by run: the second half of the colours is dashed, for readers who cannot distinguish it from the first."""
    dashes = [DASHES[0]] * (len(SERIES) // 2) + [DASHES[1]] * (len(SERIES) // 2)
    return {
        "color": {"field": "run", "type": "nominal", "scale": {"range": list(SERIES)}, "legend": legend()},
        "strokeDash": {"field": "run", "type": "nominal", "scale": {"range": dashes}, "legend": legend()},
    }


def lines(field: str, y: Spec, shown: list[Spec]) -> list[Spec]:
    """A light line of all steps, a solid one of counted steps, and points that respond to the pointer."""
    all_steps: Spec = {
        "mark": {"type": "line", "strokeWidth": 1, "opacity": 0.4, "clip": True},
        "encoding": {"x": x_axis(), "y": y, **by_run()},
    }
    solid: Spec = {
        "transform": [{"calculate": f"datum.counted ? datum.{field} : null", "as": "solid"}],
        "mark": {"type": "line", "strokeWidth": 1.5, "clip": True, "invalid": "break-paths-show-path-domains"},
        "encoding": {"x": x_axis(), "y": {**y, "field": "solid"}, **by_run()},
    }
    points: Spec = {
        "params": [nearest(["run", "step"]), zoom()],
        "transform": [{"filter": f"isValid(datum.{field})"}, *highest_in_view("x", field, "run")],
        "mark": {"type": "point", "filled": True, "size": 70, "clip": True},
        "encoding": {
            "x": x_axis(),
            "y": y,
            # The same channels as the lines, so that both share a legend.
            **by_run(),
            "opacity": {"condition": {"param": "hover", "value": 1, "empty": False}, "value": 0},
            "tooltip": nearest_tooltip(shown),
        },
    }
    return [all_steps, solid, _only_one(field, y), points]


def _only_one(field: str, y: Spec) -> Spec:
    """A point for a run with a single step: a line needs two."""
    return {
        "transform": [
            {"filter": f"isValid(datum.{field})"},
            {"joinaggregate": [{"op": "count", "as": "steps_shown"}], "groupby": ["run"]},
            {"filter": "datum.steps_shown === 1"},
        ],
        "mark": {"type": "point", "filled": True, "size": 60, "opacity": 1, "clip": True},
        "encoding": {"x": x_axis(), "y": y, **by_run()},
    }


def shown_step(figure: Spec) -> list[Spec]:
    """The tooltip of a point."""
    counts = text_field("counts", "counts")
    return tooltip([text_field("run", "run"), text_field("step", "step"), figure, number_field("t_s", "s since launch"), counts])


# A script that logs every so many steps has one row for several; times are to the millisecond, so their number is approximate.
_STEPS_OF_ROW = "isValid(datum.begin_s) && datum.iter_ms > 0 ? (datum.t_s - datum.begin_s) * 1000 / datum.iter_ms : 1"
_NUM_STEPS = "datum.steps_of_row > 1.5 + 2 / datum.iter_ms ? '≈ ' + format(round(datum.steps_of_row), ',') : '1'"
_WHERE = "datum.counted ? ', in a window of ' : ', outside a window of '"
OF_ONE_STEP: tuple[Spec, ...] = (
    {"calculate": "datum.counted ? 'yes' : 'no'", "as": "counts"},
    {"calculate": _STEPS_OF_ROW, "as": "steps_of_row"},
    {"calculate": f"({_NUM_STEPS}) + (datum.n > 0 ? ({_WHERE}) + datum.n : '')", "as": "n"},
)
"""Transforms for a row of steps with window and n of its run: whether it counts, and how many steps it stands for."""
