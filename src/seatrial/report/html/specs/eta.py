"""How good the predictions of the end were: the predicted end with its band against the time they were made, and the true end as a rule.

A prediction that was right lies on the rule. Three runs are drawn: more bands than that hide one another. A prediction tells the steps it
was made of, those up to its own; the nearest one answers the pointer, also over the line and the band.
"""

from __future__ import annotations

from seatrial.report.html import loose
from seatrial.report.html.chart import Chart
from seatrial.report.html.page_data import PageData
from seatrial.report.html.specs.palette import COLOURS, DASHES
from seatrial.report.html.specs.placed import is_number, rows_of
from seatrial.report.html.specs.series import nearest
from seatrial.report.html.specs.theme import Spec, document, legend, quantity
from seatrial.report.html.specs.tooltip import interval_text, nearest_tooltip, number, number_text, tooltip, word

MOST_RUNS = 3
SHAPES = ["circle", "square", "triangle-up"]
_OF_WHOLE_RUN: tuple[Spec, ...] = ({"calculate": "'whole run'", "as": "window"}, {"calculate": "1", "as": "n"})


def eta(data: PageData) -> Chart | None:
    """None where no run predicted its end."""
    table = data.tables.get("eta", {})
    both = zip(table.get("elapsed_s", []), table.get("eta_s", []), strict=True)
    if not any(is_number(elapsed) and is_number(left) for elapsed, left in both):
        return None
    return Chart(
        id="eta",
        section="eta",
        title="Predicted end",
        caption="When the run was predicted to end, with the band of the prediction, against the time it was made; the dashed rule is when "
        f"it ended. The first {MOST_RUNS} of the picked runs.",
        table="eta",
        spec=_document(data),
        picks="runs",
    )


def _document(data: PageData) -> Spec:
    x = quantity("elapsed_s", "seconds since launch", zero=False)
    y = quantity("end_s", "predicted end, s", zero=False)
    colour = {"field": "run", "type": "nominal", "scale": {"range": list(COLOURS[:MOST_RUNS])}, "legend": legend()}
    shape = {"field": "run", "type": "nominal", "scale": {"range": SHAPES}, "legend": None}
    last: list[Spec] = [{"aggregate": [{"op": "mean", "field": "true_end_s", "as": "true_end_s"}], "groupby": ["run"]}, *_OF_WHOLE_RUN]
    high = {"field": "high_end_s"}
    true_end = tooltip([word("run", "run"), number("true_end_s", "ended at, s")])
    return document(
        height=260,
        transform=[*_ends(), *_steps_seen(data)],
        encoding={"color": colour},
        layer=[
            {
                "mark": {"type": "area", "opacity": 0.18},
                "encoding": {"x": x, "y": {**y, "field": "low_end_s"}, "y2": high},
            },
            {"mark": {"type": "line", "strokeWidth": 1.5}, "encoding": {"x": x, "y": y}},
            {
                "params": [nearest(["run", "step"])],
                "mark": {"type": "point", "filled": True, "size": 45, "opacity": 1},
                "encoding": {"x": x, "y": y, "shape": shape, "tooltip": nearest_tooltip(_shown())},
            },
            # Above the points, whose nearest one answers everywhere else.
            {
                "transform": last,
                "mark": {"type": "rule", "strokeDash": DASHES[1], "strokeWidth": 1.5},
                "encoding": {"y": {**y, "field": "true_end_s"}, "tooltip": true_end},
            },
        ],
    )


def _ends() -> list[Spec]:
    return [
        {"filter": "isValid(datum.elapsed_s) && isValid(datum.eta_s)"},
        {"window": [{"op": "dense_rank", "as": "run_number"}], "sort": [{"field": "run"}]},
        {"filter": f"datum.run_number <= {MOST_RUNS}"},
        {"calculate": "datum.elapsed_s + datum.eta_s", "as": "end_s"},
        *(_end(name) for name in ("low", "high")),
        {"calculate": "isValid(datum.actual_s) ? datum.elapsed_s + datum.actual_s : null", "as": "true_end_s"},
        {"calculate": "isValid(datum.actual_s) ? datum.eta_s - datum.actual_s : null", "as": "error_s"},
        interval_text("low_end_s", "high_end_s", "band"),
        number_text("error_s", "error"),
        number_text("true_end_s", "ended"),
    ]


def _steps_seen(data: PageData) -> list[Spec]:
    """Window and n of a prediction: the steps from the run's first to that at whose end it was made."""
    first: dict[str, int] = {}
    for row in rows_of(data.tables.get("steps")):
        if (step := loose.whole(row.get("step"))) is not None:
            first[str(row["run"])] = min(first.get(str(row["run"]), step), step)
    predicted = dict.fromkeys(str(row["run"]) for row in rows_of(data.tables["eta"]))
    values = [{"run": run, "first_step": first.get(run, 0)} for run in predicted]
    return [
        {"lookup": "run", "from": {"data": {"values": values}, "key": "run", "fields": ["first_step"]}},
        {"calculate": "datum.step - datum.first_step + 1", "as": "n"},
        {"calculate": "'steps ' + datum.first_step + '–' + datum.step", "as": "window"},
    ]


def _end(name: str) -> Spec:
    """A bound of the band; the prediction itself where there is none."""
    return {"calculate": f"datum.elapsed_s + (isValid(datum.{name}_s) ? datum.{name}_s : datum.eta_s)", "as": f"{name}_end_s"}


def _shown() -> list[Spec]:
    return tooltip(
        [
            word("run", "run"),
            word("step", "step"),
            number("elapsed_s", "predicted at, s"),
            number("end_s", "predicted end, s"),
            word("band", "its band, s"),
            word("ended", "ended at, s"),
            word("error", "off by, s"),
        ]
    )
