"""Charts of runs, drawn by Vega."""

from __future__ import annotations

import dataclasses
import json
import re
from typing import Any

import pytest
import vl_convert

from seatrial.report.html.data import ChartData, Picks, drawn_spec, page_data
from seatrial.report.html.print import VEGALITE
from seatrial.report.html.run_charts import loss_chart, step_time_y, steps_chart
from seatrial.report.html.timeline import timeline_chart
from seatrial.report.html.vega import RED
from tests.unit.report.html.drawing import chart, layers_of, marks, svg, told_by, vega
from tests.unit.report.html.made_page import columns, made_charts, made_results, rows_of

pytest.importorskip("vl_convert")


def changed(data: ChartData, table: str, **changes: Any) -> ChartData:
    rows = [{**row, **{name: make(row) for name, make in changes.items()}} for row in rows_of(data.tables[table])]
    return dataclasses.replace(data, tables={**data.tables, table: columns(rows)})


def without(data: ChartData, *tables: str) -> ChartData:
    return dataclasses.replace(data, tables={name: table for name, table in data.tables.items() if name not in tables})


def test_the_scale_is_logarithmic_only_where_the_spread_asks_for_it() -> None:
    data = made_charts(steps=60)
    assert step_time_y(data)["scale"] == {"zero": False}
    compiled = changed(data, "steps", iter_ms=lambda row: 60_000.0 if row["step"] == 0 else row["iter_ms"])
    assert step_time_y(compiled)["scale"]["type"] == "log"
    assert ">ms a step, log scale<" in svg(compiled, "steps")
    assert "logarithmic" in chart(compiled, "steps").caption
    assert "Step time, ms (log scale)" in svg(compiled, "timeline")
    assert "log" not in chart(data, "steps").caption + svg(data, "steps")
    assert vega(compiled, "steps")["marks"]


def test_steps_without_a_time_give_no_chart() -> None:
    data = changed(made_charts(steps=25), "steps", iter_ms=lambda row: None)
    assert steps_chart(data) is None
    assert vega(data, "timeline")["marks"]


def test_a_loss_that_is_no_number_is_a_red_mark_and_one_that_is_untold_is_nothing() -> None:
    data = made_charts(steps=95, nan_loss=True)
    broken = 95 - 91
    picks = Picks(runs=("g1_r1",))
    picture = svg(data, "loss", picks)
    assert len(re.findall(f'aria-roledescription="point"[^>]*fill="{RED}"', picture)) == broken
    untold = changed(data, "steps", loss=lambda row: None if row["step"] > 90 else row["loss"])
    assert len(re.findall(f'aria-roledescription="point"[^>]*fill="{RED}"', svg(untold, "loss", picks))) == 0


def test_without_losses_there_is_no_chart_of_them() -> None:
    assert loss_chart(changed(made_charts(steps=25), "steps", loss=lambda row: None)) is None


def test_the_spread_has_a_row_a_run_with_its_quantiles() -> None:
    picture = svg(made_charts(steps=40), "step_times")
    assert marks(picture, "tick") == 11
    assert "median, ms: 103;" in picture
    assert "window: steps 20–39; n: 20" in picture


def test_the_spread_of_many_runs_is_of_the_best_forty() -> None:
    data = made_charts(groups=50, repeats=1, steps=25, gpus=0)
    assert "Only the best 40 of 50 runs are drawn." in chart(data, "step_times").caption


def test_the_straggler_that_the_verdict_names_is_marked() -> None:
    data = made_charts(steps=25, ranks=4)
    assert ">straggler<" in svg(data, "ranks")
    unnamed = dataclasses.replace(data, stragglers={})
    assert ">longest own work<" in svg(unnamed, "ranks")


@pytest.mark.parametrize(("longest_ms", "is_marked"), [(64.0, False), (66.0, True)])
def test_ranks_that_are_alike_have_no_mark(longest_ms: float, is_marked: bool) -> None:
    data = dataclasses.replace(made_charts(steps=25, ranks=4), stragglers={})
    data = changed(data, "ranks", iter_p50_ms=lambda row: 100.0, work_p50_ms=lambda row: longest_ms if row["rank"] == 2 else 60.0)
    assert (">longest own work<" in svg(data, "ranks")) == is_marked


def test_ranks_whose_work_is_not_distinguished_are_drawn_whole() -> None:
    data = changed(made_charts(steps=25), "ranks", work_p50_ms=lambda row: None, wait_p50_ms=lambda row: None)
    picture = svg(data, "ranks")
    assert "part: whole step" in picture
    assert "own work" not in picture.replace("longest own work", "")


def test_many_ranks_are_a_strip() -> None:
    assert chart(made_charts(steps=25, ranks=64, repeats=1), "ranks").spec["height"] == 240
    assert chart(made_charts(steps=25, ranks=8, repeats=1), "ranks").spec["height"] == {"step": 24}


def test_of_predictions_three_runs_are_drawn() -> None:
    data = made_charts(steps=60)
    told = told_by(data, "point", ["run", "error"], Picks(runs=("g1_r1", "g1_r2", "g2_r1", "g2_r2", "g3_r1")), name="eta")
    assert {run for run, _ in told} == {"g1_r1", "g1_r2", "g2_r1"}
    assert all(float(error.replace("−", "-")) for _, error in told)


def test_a_run_that_never_ended_has_predictions_and_no_end() -> None:
    data = changed(made_charts(steps=60), "eta", actual_s=lambda row: None)
    assert {tuple(row) for row in told_by(data, "point", ["ended", "error"], Picks(runs=("g1_r1",)), name="eta")} == {
        ("not known", "not known")
    }


def test_a_prediction_is_of_the_steps_up_to_its_own() -> None:
    told = told_by(made_charts(steps=60), "point", ["step", "window", "n"], Picks(runs=("g1_r1",)), name="eta")
    assert told == [[f"{step}", f"steps 0–{step}", f"{step + 1}"] for step in range(10, 60, 10)]
    later = changed(made_charts(steps=60), "steps", step=lambda row: int(row["step"] or 0) + 8)
    assert told_by(later, "point", ["window", "n"], Picks(runs=("g1_r1",)), name="eta")[0] == ["steps 8–10", "3"]


def test_the_true_end_is_one_of_the_whole_run() -> None:
    picks = Picks(runs=("g1_r1", "g1_r2"))
    assert told_by(made_charts(steps=60), "rule", ["run", "window", "n"], picks, name="eta") == [
        ["g1_r1", "whole run", "1"],
        ["g1_r2", "whole run", "1"],
    ]


@pytest.mark.parametrize("ranks", [4, 64])
def test_the_word_on_a_rank_tells_what_its_bar_tells(ranks: int) -> None:
    data = made_charts(steps=25, ranks=ranks, repeats=1)
    bar, mark = layers_of(data, "ranks")
    assert mark["encoding"]["tooltip"] == bar["encoding"]["tooltip"]
    kind = mark["mark"]["type"]
    ((rank, part, ms),) = told_by(data, kind, ["rank", "part", "ms"], PICKS, name="ranks")
    assert [rank, part, ms] in told_by(data, "bar", ["rank", "part", "ms"], PICKS, name="ranks")
    assert part == "own work"


def panel_titles(data: ChartData) -> list[str]:
    made = timeline_chart(data)
    return [panel["title"]["text"].partition(",")[0] for panel in made.spec["vconcat"]] if made else []


def test_the_timeline_has_a_panel_for_all_that_is_there() -> None:
    assert panel_titles(made_charts(steps=25)) == [
        "What the run did", "Clocks held back", "Step time", "Power", "SM clock", "Temperature", "GPU busy", "GPU memory", "PCIe", "CPU",
        "Memory of the run's processes", "Memory available", "Disk", "Network",
    ]  # fmt: skip
    assert panel_titles(made_charts(steps=25, telemetry=False)) == ["What the run did", "Step time"]
    assert panel_titles(without(made_charts(steps=25, gpus=0), "steps", "spans"))[:1] == ["CPU"]
    assert timeline_chart(without(made_charts(steps=25), "steps", "spans", "telemetry")) is None


def test_the_panels_share_their_time_and_the_pointer() -> None:
    made = vega(made_charts(steps=25), "timeline")
    scales = [scale["name"] for scale in made["scales"]]
    assert scales.count("x") == 1
    signals = {signal["name"] for signal in made["signals"]}
    assert {"hover", "zoom"} <= signals
    assert "hover" not in str(next(scale for scale in made["scales"] if scale["name"] == "x"))
    assert made["width"] == 640


PICKS = Picks(timeline="g1_r1")


def test_a_sample_tells_the_seconds_and_the_samples_it_is_of() -> None:
    few = [row for row in rows_of(made_charts(steps=25).tables["telemetry"]) if row["run"] == "g1_r1" and row["metric"] == "power_w"]
    # Two samples in what is one place for a pointer, and one at the end.
    rows = [{**row, "t_s": t_s, "value": value} for row, t_s, value in zip(few, (10.0, 10.25, 100.0), (50.0, 700.0, 90.0), strict=False)]
    data = made_charts(steps=25)
    data = dataclasses.replace(data, tables={**data.tables, "telemetry": columns(rows)})
    assert told_by(data, "at_power", ["s0m0", "window", "n"], PICKS) == [
        ["50 to 700", "10 to 10.25 s since launch", "2"],
        ["90", "100 s since launch", "1"],
    ]


def test_a_span_tells_its_own_seconds() -> None:
    told = told_by(made_charts(steps=25), "spans_by_span", ["span", "window", "n"], PICKS)
    assert ["load", "1.1 to 12 s since launch", "1"] in told


def test_a_step_is_one_in_its_window() -> None:
    data = made_charts(steps=40)
    told = dict(tuple(row) for row in told_by(data, "at_steps", ["step", "n"], PICKS))
    assert told["5"] == "1, outside a window of 20"
    assert told["30"] == "1, in a window of 20"
    every_50 = changed(data, "steps", begin_s=lambda row: float(row["t_s"] or 0) - 50 * float(row["iter_ms"] or 0) / 1000)
    assert dict(tuple(row) for row in told_by(every_50, "at_steps", ["step", "n"], PICKS))["30"] == "≈ 50, in a window of 20"


def test_the_shade_begins_with_the_first_step_that_counts() -> None:
    data = changed(made_charts(steps=40), "steps", begin_s=lambda row: float(row["t_s"] or 0) - 5)
    rows = [row for row in rows_of(data.tables["steps"]) if row["run"] == "g1_r1" and row["counted"]]
    begin, end = rows[0]["begin_s"], rows[-1]["t_s"]
    assert told_by(data, "rect", ["from_s", "to_s"], PICKS) == [[f"{begin:g}", f"{end:g}"]]


def test_the_line_of_steps_is_broken_where_the_run_paused() -> None:
    data = made_charts(steps=60)
    assert len(step_paths(without(data, "spans"))) == 1
    # An evaluation from 25 to 26 s lies among the steps, the save after the last.
    assert len(step_paths(data)) == 2


def step_paths(data: ChartData) -> list[str]:
    """The parts of the light line of all steps."""
    spec = drawn_spec(chart(data, "timeline"), dataclasses.replace(data, picks=PICKS))
    panel = next(one for one in spec["vconcat"] if one["title"]["text"].startswith("Step time"))
    alone = {**panel, "layer": [one for one in panel["layer"] if one["mark"].get("opacity") == 0.4]}
    picture = vl_convert.vegalite_to_svg(json.dumps({**spec, "params": [], "vconcat": [alone]}), vl_version=VEGALITE)
    line = re.search(
        r'aria-roledescription="line mark"[^>]* d="([^"]*)"|<path[^>]* d="([^"]*)"[^>]*aria-roledescription="line mark"', picture
    )
    assert line is not None
    return [part for part in (line[1] or line[2]).split("M") if "L" in part]


def test_a_small_rate_is_reported_in_its_own_unit() -> None:
    of_disk = {"disk_read_kib_per_s": 24.0, "disk_write_kib_per_s": 1536.0}
    peak = {"g2_r1": 3.0 * 1024 * 1024}
    data = changed(
        made_charts(steps=25), "telemetry", value=lambda row: peak.get(row["run"], of_disk.get(str(row["metric"]), row["value"]))
    )
    assert any(panel["title"]["text"].startswith("Disk, GiB/s") for panel in chart(data, "timeline").spec["vconcat"])
    assert {tuple(row) for row in told_by(data, "at_disk", ["s0m0", "s0m1"], PICKS)} == {("24 KiB/s", "1.5 MiB/s")}
    assert {tuple(row) for row in told_by(data, "at_disk", ["s0m0", "s0m1"], Picks(timeline="g2_r1"))} == {("3 GiB/s", "3 GiB/s")}


def died_early() -> ChartData:
    """A run of which there is one sample of each metric, 40 s after its launch, and no step."""
    data = without(made_charts(steps=25, groups=1, repeats=1), "steps", "spans")
    once = {(row["source"], row["metric"]): {**row, "t_s": 40.0} for row in rows_of(data.tables["telemetry"])}
    return dataclasses.replace(data, tables={**data.tables, "telemetry": columns(list(once.values()))})


def test_the_time_begins_at_the_launch() -> None:
    scale = next(one for one in vega(died_early(), "timeline", PICKS)["scales"] if one["name"] == "x")
    assert scale["domainMin"] == 0


def test_one_sample_is_a_point() -> None:
    data = died_early()
    assert marks(svg(data, "timeline", PICKS), "point") >= len(data.tables["telemetry"]["run"])
    assert marks(svg(without(made_charts(steps=25), "steps", "spans"), "timeline", PICKS), "point") == 0


def test_the_caption_says_how_many_gpus_are_drawn() -> None:
    results = made_results(groups=1, repeats=2, steps=25)
    assert "GPUs drawn" not in chart(page_data(results).drawn, "timeline").caption
    first, second = (
        dataclasses.replace(run, charts=dataclasses.replace(run.charts, gpus=8, gpus_drawn=3)) for run in results.runs if run.charts
    )
    every = page_data(dataclasses.replace(results, runs=(first, second))).drawn
    assert chart(every, "timeline").caption.endswith(" 3 of 8 GPUs drawn.")
    one = page_data(dataclasses.replace(results, runs=(first, results.runs[1]))).drawn
    assert chart(one, "timeline").caption.endswith(" 3 of 8 GPUs drawn in g1_r1.")


@pytest.mark.parametrize("name", ["steps", "loss"])
def test_a_run_of_one_step_is_a_point(name: str) -> None:
    data, picks = made_charts(steps=25, nan_loss=False), Picks(runs=("g1_r1", "g1_r2"))
    rows = [row for row in rows_of(data.tables["steps"]) if row["run"] != "g1_r1" or row["step"] == 7]
    layer = layers_of(data, name)[2]
    assert layer["mark"]["opacity"] == 1
    before = marks(svg(data, name, picks), "point")
    after = marks(svg(dataclasses.replace(data, tables={**data.tables, "steps": columns(rows)}), name, picks), "point")
    # Of the run's 25 places that answer the pointer one is left, and one is seen.
    assert after == before - 24 + 1
