"""Step time over steps or time, of the picked runs. The scale is logarithmic where the slowest step is many times the usual one, and its
title says so.
"""

from __future__ import annotations

import math

from seatrial.report.digest.step_times import LOG_FROM
from seatrial.report.html.chart import Chart
from seatrial.report.html.page_data import PageData
from seatrial.report.html.specs.placed import is_number, told_window
from seatrial.report.html.specs.series import HOW_TO_ZOOM, OF_ONE_STEP, lines, shown_step
from seatrial.report.html.specs.theme import Spec, document, quantity
from seatrial.report.html.specs.tooltip import number


def steps(data: PageData) -> Chart | None:
    """None where no step was timed."""
    if not any(is_number(ms) for ms in data.tables.get("steps", {}).get("iter_ms", [])):
        return None
    y = step_time_y(data)
    scale = " The scale of times is logarithmic." if is_logarithmic(y) else ""
    return Chart(
        id="steps",
        section="steps",
        title="Step time",
        caption=f"Milliseconds a step; steps that count are solid, warm-up and steps with a pause are light.{scale} {HOW_TO_ZOOM}",
        table="steps",
        spec=document(
            height=280,
            transform=[*told_window(data, "steps"), *OF_ONE_STEP],
            layer=lines("iter_ms", y, shown_step(number("iter_ms", "ms"))),
        ),
        picks="runs",
    )


def step_time_y(data: PageData) -> Spec:
    """The scale of step times, the same for all runs."""
    import numpy as np

    # A big campaign has some hundred thousand of them: looked at together.
    told = np.array([math.nan if ms is None else ms for ms in data.tables["steps"]["iter_ms"]], dtype=np.float64)
    told = told[np.isfinite(told)]
    logarithmic = bool(told.min() > 0 and told.max() > LOG_FROM * np.median(told))
    y = quantity("iter_ms", "ms a step, log scale" if logarithmic else "ms a step", zero=False)
    return {**y, "scale": {"type": "log", "nice": False}} if logarithmic else y


def is_logarithmic(y: Spec) -> bool:
    return bool(y["scale"].get("type") == "log")
