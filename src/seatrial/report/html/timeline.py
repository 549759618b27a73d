"""The timeline chart: one run's spans, steps and telemetry on one axis of time."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from seatrial.core.text import KIB_PER_MIB
from seatrial.records.columns import Columns
from seatrial.report.html import vega
from seatrial.report.html.data import Chart, ChartData
from seatrial.report.html.run_charts import is_logarithmic, step_time_y
from seatrial.report.html.vega import Spec
from seatrial.report.text import plain_line


@dataclass(frozen=True, kw_only=True)
class Panel:
    """One or two metrics on one scale."""

    id: str
    title: str
    unit: str
    metrics: dict[str, str]
    """Metric → its name; the line of the second is dashed."""
    per_unit: int = 1
    """How many of the metric make one `unit`."""


KIB_PER_GIB = KIB_PER_MIB * 1024
RATES = {"KiB/s": 1, "MiB/s": KIB_PER_MIB, "GiB/s": KIB_PER_GIB}
PANELS = (
    Panel(id="power", title="Power", unit="W", metrics={"power_w": "power"}),
    Panel(id="clock", title="SM clock", unit="MHz", metrics={"sm_clock_mhz": "clock"}),
    Panel(id="temperature", title="Temperature", unit="°C", metrics={"temp_c": "temperature"}),
    Panel(id="busy", title="GPU busy", unit="%", metrics={"util_gpu_pct": "busy"}),
    Panel(id="frame", title="GPU memory", unit="GiB", metrics={"mem_used_mib": "used", "mem_free_mib": "free"}, per_unit=1024),
    Panel(id="pcie", title="PCIe", unit="KiB/s", metrics={"pcie_rx_kib_per_s": "received", "pcie_tx_kib_per_s": "sent"}),
    Panel(id="cpu", title="CPU", unit="%", metrics={"cpu_user_pct": "user", "cpu_system_pct": "system"}),
    Panel(id="rss", title="Memory of the run's processes", unit="GiB", metrics={"rss_kib": "resident"}, per_unit=KIB_PER_GIB),
    Panel(id="available", title="Memory available", unit="GiB", metrics={"mem_available_kib": "available"}, per_unit=KIB_PER_GIB),
    Panel(id="disk", title="Disk", unit="KiB/s", metrics={"disk_read_kib_per_s": "read", "disk_write_kib_per_s": "written"}),
    Panel(id="net", title="Network", unit="KiB/s", metrics={"net_rx_kib_per_s": "received", "net_tx_kib_per_s": "sent"}),
)


def in_fitting_unit(panel: Panel, largest: float) -> Panel:
    """The panel of a rate in the largest unit in which its peak is at least 1; other panels unchanged."""
    if panel.unit not in RATES:
        return panel
    unit = next((name for name, size in reversed(RATES.items()) if largest >= size), "KiB/s")
    return replace(panel, unit=unit, per_unit=RATES[unit])


WIDTH = 640
HEIGHT = 72
Y_EXTENT = 84
SINCE = vega.number_field("t_s", "s since launch")
ANSWERS = "at_"
"""Prefix of the names of layers that follow the pointer; the other named layers can be zoomed."""
DOT: Spec = {"type": "point", "filled": True, "size": 60, "opacity": 1, "clip": True}
TRAIN = "train"
"""The span of training, which pauses interrupt; all others of the run are outside its steps."""
OF_GPU = "substring(datum.source, 0, 3) === 'gpu'"


def panels(data: ChartData) -> list[Spec]:
    """The panels from top to bottom; the last one labels the time axis."""
    drawn = [*_span_strips(data), *_step_panel(data), *_telemetry_panels(data)]
    for at, panel in enumerate(drawn):
        for layer in panel["layer"]:
            if "field" in layer["encoding"].get("x", {}):
                layer["encoding"]["x"]["axis"] = _time_axis(is_last=at == len(drawn) - 1)
    return drawn


def _time_axis(*, is_last: bool) -> Spec:
    labels: Spec = {"title": "seconds since launch", "format": vega.NUMBER} if is_last else {"title": None, "labels": False, "ticks": False}
    return {"grid": True, "tickCount": vega.by_width(4, 10), **labels}


def _x() -> Spec:
    """The time axis; it starts at the launch, even where the first record is much later."""
    return {"field": "t_s", "type": "quantitative", "scale": {"domainMin": 0, "nice": False}}


def _panel(title: str, height: int | Spec, layers: list[Spec]) -> Spec:
    return {"title": {"text": title, "offset": 2}, "width": WIDTH, "height": height, "layer": [_shade(), *layers, _pointer()]}


def _shade() -> Spec:
    """The shade from the start of the first counted step to the end of the last; a row's time is the end of its steps."""
    ends = [{"op": "min", "field": "first_s", "as": "from_s"}, {"op": "max", "field": "t_s", "as": "to_s"}]
    begin = {"calculate": "isValid(datum.begin_s) ? datum.begin_s : datum.t_s", "as": "first_s"}
    return {
        "transform": [{"filter": "datum.kind === 'steps' && datum.counted"}, begin, {"aggregate": ends}],
        "mark": {"type": "rect", "color": vega.GRID, "opacity": 0.12, "clip": True, "tooltip": None},
        "encoding": {"x": {**_x(), "field": "from_s"}, "x2": {"field": "to_s"}},
    }


def _pointer() -> Spec:
    """The pointer's position in all panels, in pixels, so that it does not widen the scale."""
    at = "isValid(hover.t_s) ? scale('x', hover.t_s[0]) : 0"
    return {
        "data": {"values": [{}]},
        "mark": {"type": "rule", "opacity": {"expr": "isValid(hover.t_s) ? 0.5 : 0"}, "clip": True, "tooltip": None},
        "encoding": {"x": {"value": {"expr": at}}},
    }


def _span_strips(data: ChartData) -> Iterator[Spec]:
    """What the run did, and separately what throttled its GPUs."""
    sources = [str(source) for source in data.tables.get("spans", {}).get("source", [])]
    names = [str(name) for name in data.tables.get("spans", {}).get("span", [])]
    is_gpu = [source.startswith("gpu") for source in sources]
    done = dict.fromkeys(name for name, gpu in zip(names, is_gpu, strict=True) if not gpu)
    if done:
        yield _strip("What the run did", "span", f"!({OF_GPU})", len(done), vega.BLUE)
    throttled = dict.fromkeys(source for source, gpu in zip(sources, is_gpu, strict=True) if gpu)
    if throttled:
        yield _strip("Clocks held back", "source", OF_GPU, len(throttled), vega.RED)


def _strip(title: str, row: str, which: str, num_rows: int, shade: str) -> Spec:
    where = f"datum.kind === 'spans' && {which}"
    y = {
        "field": row,
        "type": "nominal",
        "title": None,
        "sort": {"field": "begin_s", "op": "min"},
        "axis": {"grid": False, "ticks": False, "labelFontSize": 11},
    }
    shown = [
        vega.text_field("source", "source"),
        vega.text_field("span", "span"),
        vega.number_field("begin_s", "begins, s"),
        vega.number_field("end_s", "ends, s"),
    ]
    # The outline keeps spans visible that are shorter than a pixel.
    mark = {"type": "bar", "color": shade, "stroke": shade, "strokeWidth": 1, "height": {"band": 0.6}, "clip": True}
    bar = {
        "name": f"spans_by_{row}",
        "transform": [{"filter": where}, vega.spelt_seconds("begin_s", "end_s"), {"calculate": "1", "as": "n"}],
        "mark": mark,
        "encoding": {"x": _x(), "x2": {"field": "end_s"}, "y": y, "tooltip": vega.tooltip(shown)},
    }
    return _panel(title, {"step": 16 if num_rows <= 8 else 11}, [bar])


def _step_panel(data: ChartData) -> Iterator[Spec]:
    if not any(vega.is_number(ms) for ms in data.tables.get("steps", {}).get("iter_ms", [])):
        return
    y = step_time_y(data)
    y["axis"] = {"title": None, "tickCount": 3, "format": vega.NUMBER}
    line = {"type": "line", "color": vega.BLUE, "clip": True, "invalid": "break-paths-show-path-domains"}
    kept: list[Spec] = [{"filter": "datum.kind === 'steps' && isValid(datum.iter_ms)"}, *vega.OF_ONE_STEP]
    shown = vega.tooltip([vega.text_field("step", "step"), vega.number_field("iter_ms", "ms"), SINCE])
    layers: list[Spec] = [
        _step_line({**line, "strokeWidth": 1, "opacity": 0.4}, y, "true"),
        _step_line({**line, "strokeWidth": 1.5}, y, "datum.counted"),
        {"transform": [*kept, *_alone("run")], "mark": {**DOT, "color": vega.BLUE}, "encoding": {"x": _x(), "y": y}},
        {"name": f"{ANSWERS}steps", "transform": [*kept, *vega.highest_in_view("t_s", "iter_ms", "run")], **_points(shown)},
    ]
    yield _panel("Step time, ms (log scale)" if is_logarithmic(y) else "Step time, ms", HEIGHT, layers)


def _step_line(mark: Spec, y: Spec, which: str) -> Spec:
    """The line of the steps that `which` selects. A row without a time in every pause interrupts it: a line would suggest that steps went
    on."""
    is_pause = f"datum.kind === 'spans' && !({OF_GPU}) && datum.span !== '{TRAIN}'"
    rows: list[Spec] = [
        {"filter": f"datum.kind === 'steps' ? isValid(datum.iter_ms) : {is_pause}"},
        {"calculate": f"datum.kind === 'steps' && {which} ? datum.iter_ms : null", "as": "drawn_ms"},
        {"calculate": "datum.kind === 'steps' ? datum.t_s : (datum.begin_s + datum.end_s) / 2", "as": "t_s"},
    ]
    return {"transform": rows, "mark": mark, "encoding": {"x": _x(), "y": {**y, "field": "drawn_ms"}}}


def _alone(*by: str) -> list[Spec]:
    """Transforms that keep single rows, for which no line is drawn."""
    return [{"joinaggregate": [_op("count", "t_s", "samples")], "groupby": list(by)}, {"filter": "datum.samples === 1"}]


def _points(shown: list[Spec]) -> Spec:
    """Invisible marks that carry the tooltip, selected by time alone."""
    return {"mark": {"type": "rule", "opacity": 0, "clip": True}, "encoding": {"x": _x(), "tooltip": vega.nearest_tooltip(shown)}}


def _telemetry_panels(data: ChartData) -> Iterator[Spec]:
    largest = _largest(data.tables.get("telemetry", {}))
    explained: set[tuple[str, ...]] = set()
    for panel in PANELS:
        own = [(source, most) for (metric, source), most in largest.items() if metric in panel.metrics]
        sources = tuple(sorted({source for source, _ in own}, key=_in_order))
        if sources:
            drawn = in_fitting_unit(panel, max(most for _, most in own))
            yield _telemetry_panel(drawn, sources, has_legend=len(sources) > 1 and sources not in explained)
            explained.add(sources)


def _largest(table: Columns) -> dict[tuple[str, str], float]:
    """The largest value of each metric and source."""
    found: dict[tuple[str, str], float] = {}
    for metric, source, value in zip(*(table.get(name, []) for name in ("metric", "source", "value")), strict=True):
        if isinstance(value, int | float) and vega.is_number(value):
            key = str(metric), str(source)
            found[key] = max(found.get(key, value), value)
    return {(metric, plain_line(source)): most for (metric, source), most in found.items()}


def _in_order(source: str) -> tuple[str, int]:
    """gpu 10 comes after gpu 9."""
    name, _, index = source.rpartition(" ")
    return (name, int(index)) if index.isdecimal() else (source, 0)


def _telemetry_panel(panel: Panel, sources: tuple[str, ...], *, has_legend: bool) -> Spec:
    names = list(panel.metrics.values())
    named = f"{panel.title}, {panel.unit}" + (f" ({names[0]} ——, {names[1]} - - -)" if len(names) > 1 else "")
    kept: list[Spec] = [
        {"filter": {"and": ["datum.kind === 'telemetry'", {"field": "metric", "oneOf": list(panel.metrics)}]}},
        {"calculate": f"datum.value / {panel.per_unit}", "as": "amount"},
    ]
    y = {"field": "amount", "type": "quantitative", "axis": {"title": None, "tickCount": 3, "format": vega.NUMBER}, "scale": {"zero": True}}
    explained = {"title": None, "orient": "top", "columns": vega.by_width(4, 8), "offset": 2} if has_legend else None
    shade = {
        "field": "source",
        "type": "nominal",
        "scale": {"domain": list(sources), "range": [vega.series_colour(at) for at in range(len(sources))]},
        "legend": explained,
    }
    dashes = {"domain": list(panel.metrics), "range": list(vega.DASHES[: len(panel.metrics)])}
    stroke = {"field": "metric", "type": "nominal", "scale": dashes, "legend": None}
    mark = {"type": "line", "strokeWidth": 1.5, "clip": True}
    return _panel(
        named,
        HEIGHT,
        [
            {"transform": kept, "mark": mark, "encoding": {"x": _x(), "y": y, "color": shade, "strokeDash": stroke}},
            {"transform": [*kept, *_alone("source", "metric")], "mark": DOT, "encoding": {"x": _x(), "y": y, "color": shade}},
            {"name": f"{ANSWERS}{panel.id}", "transform": [*kept, *_by_time(panel, sources)], **_points(_shown_sources(panel, sources))},
        ],
    )


def _by_time(panel: Panel, sources: tuple[str, ...]) -> list[Spec]:
    """One row per bin of the visible time, with a field for each source and metric: `s0m1` is the second metric of the first source. It
    shows the lowest and the highest sample; thinning keeps both."""
    keys = [{"source": source, "key": f"s{at}"} for at, source in enumerate(sources)]
    order = ", ".join(f"'{metric}'" for metric in panel.metrics)
    return [
        {"lookup": "source", "from": {"data": {"values": keys}, "key": "source", "fields": ["key"]}},
        {"calculate": f"datum.key + 'm' + indexof([{order}], datum.metric)", "as": "key"},
        *vega.binned("t_s"),
        {"joinaggregate": [_op("min", "amount", "least"), _op("max", "amount", "most")], "groupby": ["bin", "key"]},
        {"joinaggregate": [_op("min", "t_s", "begin"), _op("max", "t_s", "end"), _op("distinct", "t_s", "n")], "groupby": ["bin"]},
        {"calculate": _figure_text("least", panel), "as": "least_text"},
        {"calculate": _figure_text("most", panel), "as": "most_text"},
        {"calculate": "datum.least_text + (datum.least_text === datum.most_text ? '' : ' to ' + datum.most_text)", "as": "range_text"},
        vega.spelt_seconds("begin", "end"),
        {"calculate": f"datum.from_x + (datum.bin + 0.5) / {vega.BINS} * (datum.to_x - datum.from_x)", "as": "t_s"},
        # All rows of a key have the same text, so any of them will do.
        {"pivot": "key", "value": "range_text", "op": "max", "groupby": ["t_s", "window", "n"]},
    ]


def _op(op: str, field: str, name: str) -> Spec:
    return {"op": op, "field": field, "as": name}


def _figure_text(field: str, panel: Panel) -> str:
    """A figure as text; a rate in its own unit, as the panel's is that of the largest of all runs."""
    if panel.unit not in RATES:
        return f"format(datum.{field}, '{vega.NUMBER}')"
    amount = f"datum.{field} * {panel.per_unit}"
    fitted = [(f"{amount} >= {size}", f"format({amount} / {size}, '{vega.NUMBER}') + ' {unit}'") for unit, size in reversed(RATES.items())]
    *larger, (_, least) = fitted
    return "".join(f"{test} ? {text} : " for test, text in larger) + least


def _shown_sources(panel: Panel, sources: tuple[str, ...]) -> list[Spec]:
    unit = "" if panel.unit in RATES else f" {panel.unit}"
    figures = [
        vega.text_field(f"s{at}m{which}", f"{source}, {name}{unit}")
        for at, source in enumerate(sources)
        for which, name in enumerate(panel.metrics.values())
    ]
    return vega.tooltip(figures)


DRAWN_TABLES = ("telemetry", "spans", "steps")


def timeline_chart(data: ChartData) -> Chart | None:
    """None where no run has anything to be drawn over time."""
    drawn = panels(data)
    if not drawn:
        return None
    return Chart(
        id="timeline",
        section="timeline",
        title="Timeline",
        caption=f"One run, seconds since its launch; the steps that count are shaded. {vega.HOW_TO_ZOOM}{data.timeline_note}",
        tables=DRAWN_TABLES,
        spec=_timeline_spec(data, drawn),
        picks="run",
    )


def _timeline_spec(data: ChartData, drawn: list[Spec]) -> Spec:
    views = [layer["name"] for panel in drawn for layer in panel["layer"] if "name" in layer]
    answering = [name for name in views if name.startswith(ANSWERS)]
    axis_y = {"minExtent": Y_EXTENT, "maxExtent": Y_EXTENT, "labelLimit": Y_EXTENT - 2}
    return {
        "$schema": vega.SCHEMA,
        "data": {"name": "rows"},
        "transform": [{"calculate": "datum.kind === 'spans' ? datum.begin_s : datum.t_s", "as": "t_s"}, *vega.lookup_window(data, "steps")],
        "params": [vega.nearest(["t_s"], views=answering), vega.zoom(views=views)],
        "vconcat": drawn,
        "spacing": 8,
        "resolve": {"scale": {"x": "shared", "color": "independent", "strokeDash": "independent"}},
        "config": {**vega.CONFIG, "axisY": axis_y, "concat": {"spacing": 8}},
    }
