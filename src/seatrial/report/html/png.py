"""PNGs of the main charts, for a pull request: drawn by Vega itself, inside its makers' package; no browser.

In: the page's data and a folder. Out: `ID.png` of each main chart that has rows, in dark on white, with what the page shows before anybody
picks.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from seatrial import files
from seatrial.report.html.page_data import PageData
from seatrial.report.html.rows_for import drawn_spec
from seatrial.report.html.specs.all_charts import all_charts

DRAWN = ("ranking", "heat", "steps", "step_times", "phases", "timeline")
WIDTH = 800
SCALE = 2.0
INK, PAPER = "#222222", "white"
VEGALITE = "6.4"


def write_pngs(data: PageData, folder: Path) -> list[Path]:
    """The files that were written, in the order of the page."""
    import vl_convert

    written = []
    for chart in all_charts(data):
        if chart.id in DRAWN:
            spec = on_paper(drawn_spec(chart, data), chart.title)
            path = folder / f"{chart.id}.png"
            with files.written_aside(path) as part:
                part.write_bytes(vl_convert.vegalite_to_png(json.dumps(spec), vl_version=VEGALITE, scale=SCALE))
            written.append(path)
    return written


def on_paper(spec: dict[str, Any], title: str) -> dict[str, Any]:
    """The document with a width, a title and colours of its own, which the page would have given it."""
    sized = {**spec, "width": WIDTH} if spec.get("width") == "container" else spec
    heading = {"text": title, "fontSize": 15, "fontWeight": "bold", "offset": 12}
    inked: dict[str, Any] = _inked({**sized, "background": PAPER, "title": heading, "padding": 12})
    return inked


def _inked(part: Any) -> Any:
    if isinstance(part, dict):
        # The rows are the user's: a name may be any word.
        return {name: value if name in ("datasets", "values") else _inked(value) for name, value in part.items()}
    if isinstance(part, list):
        return [_inked(value) for value in part]
    return INK if part == "currentColor" else part
