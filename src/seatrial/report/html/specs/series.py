"""A series over steps or time, drawn alike for step times and losses: what counts solid, what does not light, the nearest point lit.

The page sets `x` of every row to `step` or `t_s`, and the title `{x}` to the word for it. Drag moves what is on view, the wheel
with Ctrl (or a pinch) zooms, a double click shows all again: a plain wheel is left to the page, which could not be scrolled past otherwise.
"""

from __future__ import annotations

from typing import Any

from seatrial.report.html.specs.palette import DASHES, SERIES
from seatrial.report.html.specs.theme import NUMBER, Spec, by_width, legend
from seatrial.report.html.specs.tooltip import nearest_tooltip, number, tooltip, word

HOW_TO_ZOOM = "Drag to move, Ctrl and wheel to zoom, double click to see all."
X_TITLE = "{x}"
BINS = 150
"""Of what is on view: a pointer is no finer on a screen."""


def zoom(**more: Any) -> Spec:
    """The selection that is the part of x on view."""
    select = {"type": "interval", "encodings": ["x"], "zoom": "wheel![event.ctrlKey || event.metaKey]"}
    return {"name": "zoom", "select": select, "bind": "scales", **more}


def nearest(fields: list[str], **more: Any) -> Spec:
    """The selection of the point nearest to the pointer."""
    return {
        "name": "hover",
        "select": {"type": "point", "fields": fields, "nearest": True, "on": "pointermove", "clear": "pointerout"},
        **more,
    }


def in_view(x: str, field: str, by: str) -> list[Spec]:
    """Transforms that leave what can be pointed at: of each `by` and each of BINS parts of what is on view, the highest `field`.
    A mark for every row would be thousands, and a browser takes seconds to make them."""
    return [
        *binned(x),
        {"window": [{"op": "row_number", "as": "nth"}], "sort": [{"field": field, "order": "descending"}], "groupby": [by, "bin"]},
        {"filter": "datum.nth === 1"},
    ]


def binned(x: str) -> list[Spec]:
    """Transforms that leave the rows on view, each with its `bin`, and `from_x`, `to_x`: what is on view."""
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
    """Colour and dash by run: the second half of the colours is dashed, for those who cannot tell it from the first."""
    dashes = [DASHES[0]] * (len(SERIES) // 2) + [DASHES[1]] * (len(SERIES) // 2)
    return {
        "color": {"field": "run", "type": "nominal", "scale": {"range": list(SERIES)}, "legend": legend()},
        "strokeDash": {"field": "run", "type": "nominal", "scale": {"range": dashes}, "legend": legend()},
    }


def lines(field: str, y: Spec, shown: list[Spec]) -> list[Spec]:
    """The light line of all steps, the solid one of those that count, and the points that answer the pointer."""
    of_all: Spec = {
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
        "transform": [{"filter": f"isValid(datum.{field})"}, *in_view("x", field, "run")],
        "mark": {"type": "point", "filled": True, "size": 70, "clip": True},
        "encoding": {
            "x": x_axis(),
            "y": y,
            # With the same channels as the lines, so that there is one legend for both.
            **by_run(),
            "opacity": {"condition": {"param": "hover", "value": 1, "empty": False}, "value": 0},
            "tooltip": nearest_tooltip(shown),
        },
    }
    return [of_all, solid, _only_one(field, y), points]


def _only_one(field: str, y: Spec) -> Spec:
    """The step of a run that has no other: no line is drawn of one."""
    return {
        "transform": [
            {"filter": f"isValid(datum.{field})"},
            {"joinaggregate": [{"op": "count", "as": "steps_told"}], "groupby": ["run"]},
            {"filter": "datum.steps_told === 1"},
        ],
        "mark": {"type": "point", "filled": True, "size": 60, "opacity": 1, "clip": True},
        "encoding": {"x": x_axis(), "y": y, **by_run()},
    }


def shown_step(figure: Spec) -> list[Spec]:
    """What a point of a series says."""
    counts = word("counts", "counts")
    return tooltip([word("run", "run"), word("step", "step"), figure, number("t_s", "s since launch"), counts])


# A row of a script that tells every so many steps speaks of several; times are told to the millisecond, so that their number is a guess.
_STEPS_OF_ROW = "isValid(datum.begin_s) && datum.iter_ms > 0 ? (datum.t_s - datum.begin_s) * 1000 / datum.iter_ms : 1"
_NUM_STEPS = "datum.steps_of_row > 1.5 + 2 / datum.iter_ms ? '≈ ' + format(round(datum.steps_of_row), ',') : '1'"
_WHERE = "datum.counted ? ', in a window of ' : ', outside a window of '"
OF_ONE_STEP: tuple[Spec, ...] = (
    {"calculate": "datum.counted ? 'yes' : 'no'", "as": "counts"},
    {"calculate": _STEPS_OF_ROW, "as": "steps_of_row"},
    {"calculate": f"({_NUM_STEPS}) + (datum.n > 0 ? ({_WHERE}) + datum.n : '')", "as": "n"},
)
"""Transforms for a row of steps that has the window and n of its run: whether it counts, and how many steps it is of."""
