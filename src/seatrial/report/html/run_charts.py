"""Charts of runs: step times, loss, spread of step times, ranks, predicted end."""

from __future__ import annotations

import math

from seatrial.records.caution import Scalar
from seatrial.report.html import vega
from seatrial.report.html.data import Chart, ChartData
from seatrial.report.html.vega import Spec
from seatrial.report.text import plain_line
from seatrial.report.view.steps import EVEN_SHARE, LOG_FROM


def steps_chart(data: ChartData) -> Chart | None:
    """None where no step was timed."""
    if not any(vega.is_number(ms) for ms in data.tables.get("steps", {}).get("iter_ms", [])):
        return None
    y = step_time_y(data)
    scale = " The scale of times is logarithmic." if is_logarithmic(y) else ""
    return Chart(
        id="steps",
        section="steps",
        title="Step time",
        caption=f"Milliseconds a step; steps that count are solid, warm-up and steps with a pause are light.{scale} {vega.HOW_TO_ZOOM}",
        tables=("steps",),
        spec=vega.document(
            height=280,
            transform=[*vega.lookup_window(data, "steps"), *vega.OF_ONE_STEP],
            layer=vega.lines("iter_ms", y, vega.shown_step(vega.number_field("iter_ms", "ms"))),
        ),
        picks="runs",
        x_by=vega.X_BY,
    )


def step_time_y(data: ChartData) -> Spec:
    """The scale of step times, the same for all runs."""
    import numpy as np

    # A large campaign has several hundred thousand times: processed as one array.
    times_ms = np.array([math.nan if ms is None else ms for ms in data.tables["steps"]["iter_ms"]], dtype=np.float64)
    times_ms = times_ms[np.isfinite(times_ms)]
    logarithmic = bool(times_ms.min() > 0 and times_ms.max() > LOG_FROM * np.median(times_ms))
    y = vega.quantity("iter_ms", "ms a step, log scale" if logarithmic else "ms a step", zero=False)
    return {**y, "scale": {"type": "log", "nice": False}} if logarithmic else y


def is_logarithmic(y: Spec) -> bool:
    return bool(y["scale"].get("type") == "log")


FINITE: Spec = {"calculate": "isFinite(toNumber(datum.loss)) ? toNumber(datum.loss) : null", "as": "drawn_loss"}


def loss_chart(data: ChartData) -> Chart | None:
    """None where no loss was recorded."""
    if all(value is None for value in data.tables.get("steps", {}).get("loss", [])):
        return None
    return Chart(
        id="loss",
        section="steps",
        title="Loss",
        caption=f"Loss as the script reported it; a red mark at the top is a loss that is not finite. {vega.HOW_TO_ZOOM}",
        tables=("steps",),
        spec=vega.document(
            height=220,
            transform=[{"filter": "isValid(datum.loss)"}, *vega.lookup_window(data, "steps"), *vega.OF_ONE_STEP, FINITE],
            layer=[*vega.lines("drawn_loss", vega.quantity("drawn_loss", "loss", zero=False), _loss_tooltip()), _not_finite()],
        ),
        picks="runs",
        x_by=vega.X_BY,
    )


def _loss_tooltip() -> list[Spec]:
    return vega.shown_step(vega.text_field("loss", "loss"))


def _not_finite() -> Spec:
    return {
        "transform": [{"filter": "!isValid(datum.drawn_loss)"}],
        "mark": {"type": "point", "shape": "triangle-down", "filled": True, "size": 90, "color": vega.RED, "opacity": 1, "clip": True},
        "encoding": {"x": vega.x_axis(), "y": {"value": 6}, "tooltip": _loss_tooltip()},
    }


QUANTILE_TITLES = {
    "q0": "least, ms",
    "q5": "p5, ms",
    "q25": "p25, ms",
    "q50": "median, ms",
    "q75": "p75, ms",
    "q95": "p95, ms",
    "q100": "most, ms",
}


def step_times_chart(data: ChartData) -> Chart | None:
    """None where no run has quantiles."""
    runs, in_all = vega.first_of(data, "step_times", "run")
    if not runs:
        return None
    return Chart(
        id="step_times",
        section="distribution",
        title="Spread of step times",
        caption="Of the steps that count: least to most, p5 to p95, the middle half and the median."
        + vega.best_only_note(len(runs), in_all, "runs"),
        tables=("step_times",),
        spec=vega.document(
            height=vega.row_height(len(runs)),
            transform=[*vega.lookup_position("run", runs), *_by_quantile()],
            encoding={
                "y": vega.named_y("run"),
                "tooltip": vega.tooltip(
                    [vega.text_field("run", "run"), *(vega.number_field(q, title) for q, title in QUANTILE_TITLES.items())]
                ),
            },
            layer=_quantile_layers(),
        ),
    )


def _by_quantile() -> list[Spec]:
    """One row per run; field names must not contain a dot, so 0.05 is q5."""
    return [
        {"calculate": "'q' + round(datum.quantile * 100)", "as": "name"},
        vega.SPELT_WINDOW,
        {"pivot": "name", "value": "iter_ms", "op": "max", "groupby": ["run", "position", "window", "n"]},
    ]


def _quantile_layers() -> list[Spec]:
    def x(field: str) -> Spec:
        return vega.quantity(field, "ms a step", zero=False)

    return [
        {"mark": {"type": "rule", "strokeWidth": 1}, "encoding": {"x": x("q0"), "x2": {"field": "q100"}}},
        {"mark": {"type": "bar", "height": {"band": 0.3}, "color": vega.SKY}, "encoding": {"x": x("q5"), "x2": {"field": "q95"}}},
        {"mark": {"type": "bar", "height": {"band": 0.6}, "color": vega.BLUE}, "encoding": {"x": x("q25"), "x2": {"field": "q75"}}},
        {"mark": {"type": "tick", "thickness": 3, "color": vega.TEXT, "bandSize": 18}, "encoding": {"x": x("q50")}},
    ]


MANY_RANKS = 48
WHOLE = "whole step"
PARTS = {"own work": vega.BLUE, "waiting": vega.ORANGE, WHOLE: vega.GREY}

_OF_LOWEST: tuple[Spec, ...] = (
    {"calculate": f"isValid(datum.own) ? 'own work' : '{WHOLE}'", "as": "part"},
    {"calculate": "isValid(datum.own) ? datum.own : datum.whole", "as": "ms"},
)
"""Transforms: the mark is on the first part of its bar, with that part's tooltip."""


def ranks_chart(data: ChartData) -> Chart | None:
    """None where no run has two ranks."""
    table = data.tables.get("ranks")
    if not table:
        return None
    counts: dict[Scalar, int] = {}
    for run in table["run"]:
        counts[run] = counts.get(run, 0) + 1
    largest = max(counts.values())
    return Chart(
        id="ranks",
        section="ranks",
        title="Ranks",
        caption="Median milliseconds a step of each rank of the run chosen for the timeline, over the steps that count: its own work and "
        "its waiting for the others. Marked is the straggler that the verdict names; without one, the rank that works longest, if "
        f"by {100 * EVEN_SHARE:.0f} % of a step or more.",
        tables=("ranks",),
        spec=_ranks_spec(data, largest),
        picks="run",
    )


def _ranks_spec(data: ChartData, largest: int) -> Spec:
    is_strip = largest > MANY_RANKS
    bar, mark = _strip() if is_strip else _bars(largest)
    has_own_work = {vega.is_number(ms) for ms in data.tables["ranks"]["work_p50_ms"]}
    shown = {part: shade for part, shade in PARTS.items() if (part != WHOLE) in has_own_work}
    colour = {"field": "part", "type": "nominal", "scale": {"domain": list(shown), "range": list(shown.values())}, "legend": vega.legend()}
    parts: list[Spec] = [
        {"fold": ["own", "waits", "whole"], "as": ["name", "ms"]},
        {"filter": "isValid(datum.ms)"},
        {"calculate": f"datum.name === 'own' ? 'own work' : datum.name === 'waits' ? 'waiting' : '{WHOLE}'", "as": "part"},
        {"calculate": "indexof(['own', 'waits', 'whole'], datum.name)", "as": "at"},
    ]
    order = {"field": "at", "type": "quantitative"}
    return vega.document(
        **({"height": 240} if is_strip else {"height": {"step": 24 if largest <= 16 else 16}}),
        transform=[*_named(data), *_marked()],
        layer=[
            {
                "transform": parts,
                "mark": {"type": "bar"},
                "encoding": {**bar, "color": colour, "order": order, "tooltip": _ranks_tooltip()},
            },
            {"transform": [{"filter": "datum.marked !== ''"}, *_OF_LOWEST], **mark},
        ],
    )


def _named(data: ChartData) -> list[Spec]:
    """`straggler`: the rank that the verdict names in this run."""
    values = [{"run": plain_line(run), "straggler": rank} for run, rank in data.stragglers.items()]
    if not values:
        return [{"calculate": "null", "as": "straggler"}]
    return [{"lookup": "run", "from": {"data": {"values": values}, "key": "run", "fields": ["straggler"]}}]


def _marked() -> list[Spec]:
    is_uneven = f"datum.longest > datum.shortest && datum.longest - datum.shortest >= {EVEN_SHARE} * datum.iter_p50_ms"
    longest = f"datum.work_p50_ms === datum.longest && {is_uneven} ? 'longest own work' : ''"
    return [
        vega.SPELT_WINDOW,
        {"joinaggregate": [{"op": op, "field": "work_p50_ms", "as": name} for op, name in (("max", "longest"), ("min", "shortest"))]},
        {"calculate": f"isValid(datum.straggler) ? (datum.rank === datum.straggler ? 'straggler' : '') : {longest}", "as": "marked"},
        {"calculate": "isValid(datum.work_p50_ms) ? datum.work_p50_ms : null", "as": "own"},
        {"calculate": "isValid(datum.work_p50_ms) ? datum.wait_p50_ms : null", "as": "waits"},
        {"calculate": "isValid(datum.work_p50_ms) ? null : datum.iter_p50_ms", "as": "whole"},
    ]


def _ranks_tooltip() -> list[Spec]:
    return vega.tooltip(
        [
            vega.text_field("rank", "rank"),
            vega.text_field("host", "host"),
            vega.text_field("gpu", "GPU"),
            vega.text_field("part", "part"),
            vega.number_field("ms", "ms"),
            vega.text_field("marked", "remark"),
        ]
    )


def _bars(largest: int) -> tuple[Spec, Spec]:
    axis = {"title": "rank", "grid": False, "ticks": False, "domain": False, "labelOverlap": True}
    y = {"field": "rank", "type": "ordinal", "axis": axis}
    text = {"type": "text", "align": "left", "dx": 6, "color": "white", "fontWeight": "bold", "fontSize": 12 if largest <= 16 else 10}
    return (
        {"y": y, "x": vega.quantity("ms", "ms a step (median)")},
        # On its own bar, which is long by definition: beside it there may be no room.
        {
            "mark": text,
            "encoding": {"y": y, "x": {"value": 0}, "text": {"field": "marked", "type": "nominal"}, "tooltip": _ranks_tooltip()},
        },
    )


def _strip() -> tuple[Spec, Spec]:
    axis = {"title": "rank", "tickCount": vega.by_width(4, 10), "format": "d", "grid": False, "tickMinStep": 1}
    x = {"field": "rank", "type": "quantitative", "scale": {"nice": False, "zero": False, "padding": 6}, "axis": axis}
    pointed = {"type": "point", "shape": "triangle-down", "filled": True, "size": 90, "color": vega.RED, "opacity": 1}
    return (
        {"x": x, "y": {**vega.quantity("ms", "ms a step (median)"), "stack": "zero"}},
        {"mark": pointed, "encoding": {"x": x, "y": {"value": 6}, "tooltip": _ranks_tooltip()}},
    )


MAX_RUNS = 3
SHAPES = ["circle", "square", "triangle-up"]
_OF_WHOLE_RUN: tuple[Spec, ...] = ({"calculate": "'whole run'", "as": "window"}, {"calculate": "1", "as": "n"})


def eta_chart(data: ChartData) -> Chart | None:
    """None where no run predicted its end."""
    table = data.tables.get("eta", {})
    both = zip(table.get("elapsed_s", []), table.get("eta_s", []), strict=True)
    if not any(vega.is_number(elapsed) and vega.is_number(left) for elapsed, left in both):
        return None
    return Chart(
        id="eta",
        section="eta",
        title="Predicted end",
        caption="When the run was predicted to end, with the band of the prediction, against the time of the prediction; dashed is the "
        f"true end. The first {MAX_RUNS} of the selected runs.",
        tables=("eta",),
        spec=_eta_spec(data),
        picks="runs",
    )


def _eta_spec(data: ChartData) -> Spec:
    x = vega.quantity("elapsed_s", "seconds since launch", zero=False)
    y = vega.quantity("end_s", "predicted end, s", zero=False)
    colour = {"field": "run", "type": "nominal", "scale": {"range": list(vega.COLOURS[:MAX_RUNS])}, "legend": vega.legend()}
    shape = {"field": "run", "type": "nominal", "scale": {"range": SHAPES}, "legend": None}
    last: list[Spec] = [{"aggregate": [{"op": "mean", "field": "true_end_s", "as": "true_end_s"}], "groupby": ["run"]}, *_OF_WHOLE_RUN]
    high = {"field": "high_end_s"}
    true_end = vega.tooltip([vega.text_field("run", "run"), vega.number_field("true_end_s", "ended at, s")])
    return vega.document(
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
                "params": [vega.nearest(["run", "step"])],
                "mark": {"type": "point", "filled": True, "size": 45, "opacity": 1},
                "encoding": {"x": x, "y": y, "shape": shape, "tooltip": vega.nearest_tooltip(_eta_tooltip())},
            },
            # Above the points, the nearest of which responds everywhere else.
            {
                "transform": last,
                "mark": {"type": "rule", "strokeDash": vega.DASHES[1], "strokeWidth": 1.5},
                "encoding": {"y": {**y, "field": "true_end_s"}, "tooltip": true_end},
            },
        ],
    )


def _ends() -> list[Spec]:
    return [
        {"filter": "isValid(datum.elapsed_s) && isValid(datum.eta_s)"},
        {"window": [{"op": "dense_rank", "as": "run_number"}], "sort": [{"field": "run"}]},
        {"filter": f"datum.run_number <= {MAX_RUNS}"},
        {"calculate": "datum.elapsed_s + datum.eta_s", "as": "end_s"},
        *(_end(name) for name in ("low", "high")),
        {"calculate": "isValid(datum.actual_s) ? datum.elapsed_s + datum.actual_s : null", "as": "true_end_s"},
        {"calculate": "isValid(datum.actual_s) ? datum.eta_s - datum.actual_s : null", "as": "error_s"},
        vega.interval_text("low_end_s", "high_end_s", "band"),
        vega.number_text("error_s", "error"),
        vega.number_text("true_end_s", "ended"),
    ]


def _steps_seen(data: ChartData) -> list[Spec]:
    """Window and n of a prediction: the steps from the run's first to the one at whose end it was computed."""
    steps, first = data.tables.get("steps", {}), dict[Scalar, int]()
    # Column by column: the table has a row for every step of every run.
    for run, step in zip(steps.get("run", ()), steps.get("step", ()), strict=True):
        if isinstance(step, int) and step < first.get(run, step + 1):
            first[run] = step
    predicted = dict.fromkeys(data.tables["eta"]["run"])
    values = [{"run": plain_line(str(run)), "first_step": first.get(run, 0)} for run in predicted]
    return [
        {"lookup": "run", "from": {"data": {"values": values}, "key": "run", "fields": ["first_step"]}},
        {"calculate": "datum.step - datum.first_step + 1", "as": "n"},
        {"calculate": "'steps ' + datum.first_step + '–' + datum.step", "as": "window"},
    ]


def _end(name: str) -> Spec:
    """A bound of the band; without one, the prediction itself."""
    return {"calculate": f"datum.elapsed_s + (isValid(datum.{name}_s) ? datum.{name}_s : datum.eta_s)", "as": f"{name}_end_s"}


def _eta_tooltip() -> list[Spec]:
    return vega.tooltip(
        [
            vega.text_field("run", "run"),
            vega.text_field("step", "step"),
            vega.number_field("elapsed_s", "predicted at, s"),
            vega.number_field("end_s", "predicted end, s"),
            vega.text_field("band", "its band, s"),
            vega.text_field("ended", "ended at, s"),
            vega.text_field("error", "off by, s"),
        ]
    )
