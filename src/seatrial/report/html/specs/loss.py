"""Loss over steps or time, of the picked runs. One that is no number is a red mark at the top; where none was told nothing is drawn.

A loss that is not finite comes as text (`NaN`, `Infinity`, `-Infinity`), since JSON has no number for it.
"""

from __future__ import annotations

from seatrial.report.html.chart import Chart
from seatrial.report.html.page_data import PageData
from seatrial.report.html.specs.palette import RED
from seatrial.report.html.specs.placed import told_window
from seatrial.report.html.specs.series import HOW_TO_ZOOM, OF_ONE_STEP, lines, shown_step, x_axis
from seatrial.report.html.specs.theme import Spec, document, quantity
from seatrial.report.html.specs.tooltip import word

FINITE: Spec = {"calculate": "isFinite(toNumber(datum.loss)) ? toNumber(datum.loss) : null", "as": "drawn_loss"}


def loss(data: PageData) -> Chart | None:
    """None where no loss was told."""
    if all(value is None for value in data.tables.get("steps", {}).get("loss", [])):
        return None
    return Chart(
        id="loss",
        section="steps",
        title="Loss",
        caption=f"Loss as the script told it; a red mark at the top is a loss that is no finite number. {HOW_TO_ZOOM}",
        table="steps",
        spec=document(
            height=220,
            transform=[{"filter": "isValid(datum.loss)"}, *told_window(data, "steps"), *OF_ONE_STEP, FINITE],
            layer=[*lines("drawn_loss", quantity("drawn_loss", "loss", zero=False), _shown()), _not_finite()],
        ),
        picks="runs",
    )


def _shown() -> list[Spec]:
    return shown_step(word("loss", "loss"))


def _not_finite() -> Spec:
    return {
        "transform": [{"filter": "!isValid(datum.drawn_loss)"}],
        "mark": {"type": "point", "shape": "triangle-down", "filled": True, "size": 90, "color": RED, "opacity": 1, "clip": True},
        "encoding": {"x": x_axis(), "y": {"value": 6}, "tooltip": _shown()},
    }
