"""Charts as Vega draws them, for tests: the SVG, and what of a document can be asked."""

from __future__ import annotations

import dataclasses
import html
import json
import re
from collections.abc import Iterator
from typing import Any

import vl_convert

from seatrial.report.html.data import Chart, ChartData, Picks, drawn_spec
from seatrial.report.html.page import all_charts
from seatrial.report.html.print import VEGALITE, standalone_spec


def chart(data: ChartData, name: str) -> Chart:
    return next(one for one in all_charts(data) if one.id == name)


def picked(data: ChartData, picks: Picks | None) -> ChartData:
    return data if picks is None else dataclasses.replace(data, picks=picks)


def vega(data: ChartData, name: str, picks: Picks | None = None) -> dict[str, Any]:
    """What Vega-Lite makes of the document; it raises where it cannot."""
    made: dict[str, Any] = vl_convert.vegalite_to_vega(json.dumps(drawn_spec(chart(data, name), picked(data, picks))), vl_version=VEGALITE)
    return made


def svg(data: ChartData, name: str, picks: Picks | None = None) -> str:
    spec = standalone_spec(drawn_spec(chart(data, name), picked(data, picks)), "")
    text: str = vl_convert.vegalite_to_svg(json.dumps(spec), vl_version=VEGALITE)
    return text


def told_by(data: ChartData, layer: str, fields: list[str], picks: Picks | None = None, name: str = "timeline") -> list[list[str]]:
    """What the first layer of the chart with that name or mark has after its transforms, row by row: `fields` as text."""
    spec = drawn_spec(chart(data, name), picked(data, picks))
    layers = [one for panel in spec.get("vconcat", [spec]) for one in panel.get("layer", [panel])]
    found = next(one for one in layers if layer in (one.get("name"), one["mark"]["type"]))
    text = " + '|' + ".join(f"datum[{json.dumps(field)}]" for field in fields)
    own = [] if found is spec else found.get("transform", [])
    whole = [*spec["transform"], *own, {"calculate": f"'' + {text}", "as": "row"}]
    drawn = {
        "data": spec["data"], "datasets": spec["datasets"], "params": [{"name": "zoom", "value": {}}], "transform": whole, "mark": "text",
        "encoding": {"text": {"field": "row"}},
    }  # fmt: skip
    picture: str = vl_convert.vegalite_to_svg(json.dumps(drawn), vl_version=VEGALITE)
    return [html.unescape(row).split("|") for row in re.findall(r"<text[^>]*>([^<]*\|[^<]*)</text>", picture)]


def layers_of(data: ChartData, name: str) -> list[dict[str, Any]]:
    """All layers of a chart or of its panels."""
    spec = chart(data, name).spec
    return [layer for panel in spec.get("vconcat", [spec]) for layer in panel["layer"]]


def marks(picture: str, kind: str) -> int:
    """How many marks of that kind, as Vega describes them to a reader who does not see them."""
    return picture.count(f'aria-roledescription="{kind}"')


def parts(spec: Any) -> Iterator[dict[str, Any]]:
    """Every object in a document, data left out."""
    if isinstance(spec, dict):
        yield spec
        for name, value in spec.items():
            if name != "values":
                yield from parts(value)
    elif isinstance(spec, list):
        for value in spec:
            yield from parts(value)
