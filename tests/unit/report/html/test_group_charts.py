"""Charts of groups, drawn by Vega."""

from __future__ import annotations

import dataclasses
import json
import re
from typing import Any

import pytest
import vl_convert

from seatrial.core.text import join_names
from seatrial.report.html.compare import merged_ranking_chart
from seatrial.report.html.data import ChartData, Picks, drawn_spec
from seatrial.report.html.group_charts import (
    axes_by_effect,
    heat_chart,
    phases_chart,
    ranking_chart,
    startup_chart,
)
from seatrial.report.html.print import VEGALITE, standalone_spec
from tests.facts import states
from tests.unit.report.html.drawing import chart, layers_of, marks, parts, svg, told_by
from tests.unit.report.html.made_page import columns, made_charts, rows_of

pytest.importorskip("vl_convert")


def with_groups(data: ChartData, **changes: Any) -> ChartData:
    """The same page, every group changed."""
    rows = [{**row, **{name: make(row) for name, make in changes.items()}} for row in rows_of(data.tables["groups"])]
    return dataclasses.replace(data, tables={**data.tables, "groups": columns(rows)})


def test_the_best_forty_groups_are_drawn_and_the_caption_says_so() -> None:
    data = made_charts(groups=100, repeats=1, steps=25, gpus=0)
    made = chart(data, "ranking")
    assert "Only the best 40 of 100 groups are drawn." in made.caption
    picture = svg(data, "ranking")
    assert marks(picture, "rule mark") == 40
    assert ">g40<" in picture
    assert ">g41<" not in picture


@pytest.mark.parametrize("note", ["winner", "recommended", "tied", "no interval", "cannot win", "off lane", "", "recommended, debug on"])
def test_a_group_is_coloured_by_its_note(note: str) -> None:
    data = with_groups(made_charts(steps=25), note=lambda row: note)
    expected = {"recommended": "recommended, not proven", "recommended, debug on": "recommended, not proven", "": "behind"}.get(note, note)
    assert f"standing: {expected}" in svg(data, "ranking")


def test_a_group_without_interval_is_hollow_and_a_recommended_one_is_no_winner() -> None:
    notes = {1: "recommended", 2: "no interval"}
    data = with_groups(made_charts(steps=25), note=lambda row: notes.get(int(row["rank"] or 0), ""))
    picture = svg(data, "ranking")
    assert "standing: recommended, not proven" in picture
    assert "standing: no interval" in picture
    assert "winner" not in picture
    points = re.findall('<path[^>]*aria-roledescription="point"[^>]*>', picture)
    assert ["standing: no interval" in point for point in points] == ['fill="#' not in point for point in points]


def test_a_group_without_interval_or_ratio_is_drawn_and_says_none() -> None:
    data = with_groups(made_charts(steps=25), low=lambda row: None, high=lambda row: None, ratio=lambda row: None)
    picture = svg(data, "ranking")
    assert "95 % interval: none" in picture
    assert "of the best mean: not known" in picture


def test_groups_without_a_figure_give_no_ranking() -> None:
    data = with_groups(made_charts(steps=25), value=lambda row: None)
    assert ranking_chart(data) is None
    assert heat_chart(data) is None


def test_axes_come_by_what_they_change() -> None:
    data = made_charts(groups=4, steps=25, axes=("small", "large", "alike"))
    data = with_groups(
        data, axis_alike=lambda row: 1, value=lambda row: 100 + float(row["axis_small"] or 0) / 8 + 20 * float(row["axis_large"] or 0)
    )
    assert axes_by_effect(data) == ("large", "small")
    assert chart(data, "heat").axes == ("large", "small")


def test_of_groups_in_one_cell_the_best_is_shown() -> None:
    data = made_charts(groups=9, steps=25, axes=("a", "b", "c"))
    picks = Picks(x="c", y="c")
    best = {"eager": 0.0, "compiled": 0.0}
    for row in rows_of(data.tables["groups"]):
        best[str(row["axis_c"])] = max(best[str(row["axis_c"])], float(row["value"] or 0))
    picture = svg(data, "heat", picks)
    assert marks(picture, "rect mark") == 2
    for value in best.values():
        assert f">{value:.4g}<" in picture


def test_where_less_is_better_the_least_of_a_cell_is_shown() -> None:
    data = made_charts(groups=9, steps=25, axes=("a", "b", "c"))
    data = dataclasses.replace(data, higher_is_better=False)
    least = min(float(row["value"] or 0) for row in rows_of(data.tables["groups"]))
    assert f">{least:.4g}<" in svg(data, "heat", Picks(x="c", y="c"))
    assert "less is better" in chart(data, "heat").caption


def test_one_axis_is_dots_with_intervals() -> None:
    data = made_charts(groups=4, steps=25, axes=("micro_batch",))
    assert chart(data, "heat").axes == ("micro_batch",)
    picture = svg(data, "heat")
    assert ">micro_batch<" in picture
    *_, dots = layers_of(data, "heat")
    assert '"95 % interval"' in dots["encoding"]["tooltip"]["value"]["expr"]
    # Of all that lies near a dot the dot tells, so that the line has no tooltip of its first row alone.
    assert dots["params"][0]["select"]["nearest"] is True
    assert "tooltip" not in chart(data, "heat").spec["encoding"]


def test_phases_are_means_over_the_runs_in_the_order_of_a_step() -> None:
    data = made_charts(steps=25)
    doubled = [{**row, "mean_ms": 30.0 if row["repeat"] == 1 else 60.0, "phase": "fwd"} for row in rows_of(data.tables["phases"])]
    doubled = [row for row in doubled if row["repeat"] in (1, 2)]
    data = dataclasses.replace(data, tables={**data.tables, "phases": columns(doubled)})
    assert "ms a step: 45; share: 100.0%; those steps, ms: 45; the median step, ms: 104; runs: 2" in svg(data, "phases")


def test_phases_say_on_how_many_steps_they_were_taken_and_how_those_compare() -> None:
    data = made_charts(steps=60)
    slow = [{**row, "mean_ms": 2 * float(row["mean_ms"] or 0), "n": 4} for row in rows_of(data.tables["phases"])]
    data = dataclasses.replace(data, tables={**data.tables, "phases": columns(slow)})
    assert states(chart(data, "phases").caption, "g1", "12 steps", "208.0 ms", "104.0 ms")
    picture = svg(data, "phases")
    assert "those steps, ms: 208; the median step, ms: 104; runs: 3; window: steps 20–59; n: 12" in picture
    assert "those steps, ms: 216; the median step, ms: 108;" in picture


def test_phases_of_runs_whose_usual_step_is_not_known() -> None:
    data = made_charts(steps=25)
    unknown = [{**row, "p50_ms": None} for row in rows_of(data.tables["runs"])]
    data = dataclasses.replace(data, tables={**data.tables, "runs": columns(unknown)})
    assert "which took 104.0 ms." in chart(data, "phases").caption
    assert "the median step, ms: not known" in svg(data, "phases")


def test_an_unknown_phase_has_its_place_before_other() -> None:
    data = made_charts(steps=25)
    named = [{**row, "phase": {"step": "opt.step"}.get(str(row["phase"]), row["phase"])} for row in rows_of(data.tables["phases"])]
    made = phases_chart(dataclasses.replace(data, tables={**data.tables, "phases": columns(named)}))
    assert made is not None
    domain = next(part["domain"] for part in parts(made.spec) if "domain" in part and isinstance(part["domain"], list))
    assert domain == ["data_wait", "preprocess", "fwd", "bwd", "opt.step", "other"]


def test_startup_has_the_parts_that_runs_recorded() -> None:
    data = made_charts(steps=25)
    assert "compile" not in data.tables["startup"]["part"]
    picture = svg(data, "startup")
    assert "part: model" in picture
    assert "window: launch to the end of the first step; n: 3" in picture
    assert startup_chart(dataclasses.replace(data, tables={})) is None


def test_a_stack_tells_all_windows_of_its_runs() -> None:
    data = made_charts(steps=120, groups=1, repeats=3)
    begins = {"g1_r1": 5, "g1_r2": 10, "g1_r3": 20}
    rows = [{**row, "first_step": begins[str(row["run"])], "last_step": 99} for row in rows_of(data.tables["phases"])]
    told = told_by(dataclasses.replace(data, tables={**data.tables, "phases": columns(rows)}), "bar", ["window", "runs"], name="phases")
    assert told
    assert {window for window, _ in told} == {f"steps {join_names(['5–99', '10–99', '20–99'])}"}
    assert {runs for _, runs in told} == {"3"}


def test_of_two_campaigns_a_recommended_group_is_reported_as_not_proven() -> None:
    data = with_groups(made_charts(steps=25), note=lambda row: "recommended" if row["rank"] == 1 else "", campaign=lambda row: "A")
    made = merged_ranking_chart(data)
    assert made is not None
    assert [one["field"] for one in made.spec["encoding"]["tooltip"] if one["title"] == "note"] == ["note"]
    picture = vl_convert.vegalite_to_svg(json.dumps(standalone_spec(drawn_spec(made, data), "")), vl_version=VEGALITE)
    assert picture.count("note: recommended, not proven") == 2
    assert "note: recommended;" not in picture
