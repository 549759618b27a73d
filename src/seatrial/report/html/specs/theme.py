"""What all charts have in common: a Vega-Lite document that reads the data set `rows`, as wide as its container, in the page's own colour.

Text, ticks and domain lines are `currentColor`, so that a change of theme needs no new drawing; the grid is a grey that both themes bear.
A chart asks how wide its container is where a phone needs fewer words; outside a browser there is none, and it is drawn wide.
"""

from __future__ import annotations

from typing import Any

Spec = dict[str, Any]

SCHEMA = "https://vega.github.io/schema/vega-lite/v6.json"
TEXT = "currentColor"
GRID = "#808080"
FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'DejaVu Sans', sans-serif"
NUMBER = ",.4~r"
"""Four significant digits, with the comma of thousands."""
# Half of a label such as 250,000.
FLUSH_PX = 24
# A phone held upright; nothing is known outside a browser.
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
    # A number at the end of x stands inside: how far the axis reaches is settled after its room was, which may have been for another end.
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
    """A whole chart; `parts` go over what all have."""
    fitted = {"width": "container", "autosize": {"type": "fit-x", "contains": "padding"}}
    return {"$schema": SCHEMA, "data": {"name": "rows"}, **fitted, "config": CONFIG, **parts}


def by_width(narrow: float, wide: float) -> Spec:
    """A number for a phone, and one for all else."""
    return {"expr": f"{NARROW} ? {narrow} : {wide}"}


def named_y(field: str, *, sort_by: str = "place") -> Spec:
    """A row a name, in the order of `sort_by`; long names are shortened, and are whole in the tooltip."""
    axis = {"labelExpr": short(14, 34), "labelLimit": by_width(112, 260), "title": None, "ticks": False, "domain": False, "labelPadding": 6}
    return {
        "field": field,
        "type": "nominal",
        "sort": {"field": sort_by, "op": "min", "order": "ascending"},
        "axis": {**axis, "grid": False},
    }


def row_height(count: int) -> Spec:
    """Room for `count` names one below the other."""
    return {"step": 26 if count <= 12 else 20}


def quantity(field: str, title: str, *, zero: bool = True, **scale: Any) -> Spec:
    """A number along x or y."""
    axis = {"title": title, "tickCount": by_width(4, 8), "format": NUMBER}
    return {"field": field, "type": "quantitative", "scale": {"zero": zero, **scale}, "axis": axis}


def legend(*, columns: tuple[int, int] = (2, 4)) -> Spec:
    """Above the chart, in so many columns on a phone and elsewhere; its marks are solid, however light the chart's are."""
    narrow, wide = columns
    room = {
        "columns": by_width(narrow, wide),
        "labelExpr": short(24 // narrow, 88 // wide),
        "labelLimit": by_width(180 / narrow, 640 / wide),
    }
    return {"title": None, "orient": "top", "symbolLimit": 40, "symbolOpacity": 1, **room}


def short(narrow: int, wide: int) -> str:
    """Of a label the begin and the end, if it has more characters than there is room for: names of one family differ at their end."""
    most = f"({NARROW} ? {narrow} : {wide})"
    begin = f"substring(datum.label, 0, floor({most} * 0.4))"
    end = f"substring(datum.label, length(datum.label) - ceil({most} * 0.5), length(datum.label))"
    return f"length(datum.label) > {most} ? {begin} + '…' + {end} : datum.label"
