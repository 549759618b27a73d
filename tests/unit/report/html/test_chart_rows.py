"""Which rows a chart draws."""

from __future__ import annotations

import dataclasses
from functools import cache

import pytest

from seatrial.report.html.data import Chart, ChartData, Picks, drawn_spec, rows_for
from seatrial.report.html.page import all_charts
from tests.unit.report.html.made_page import HOSTILE, columns, made_charts, rows_of

PICKS = Picks(runs=("g1_r1", "g2_r2"), timeline="g3_r1")


@cache
def usual_data() -> ChartData:
    """Not at import: mutation testing forks after collection, and polars hangs in the child of a process that used it."""
    return dataclasses.replace(made_charts(steps=30, nan_loss=True), picks=PICKS)


def chart(name: str, data: ChartData | None = None) -> Chart:
    return next(one for one in all_charts(data or usual_data()) if one.id == name)


def picked(data: ChartData | None = None, **picks: str) -> ChartData:
    data = data or usual_data()
    return dataclasses.replace(data, picks=dataclasses.replace(data.picks, **picks))


def test_rows_are_of_the_runs_that_the_chart_asks_for() -> None:
    assert {row["run"] for row in rows_for(chart("steps"), usual_data())} == {"g1_r1", "g2_r2"}
    assert {row["run"] for row in rows_for(chart("ranks"), usual_data())} == {"g3_r1"}
    assert len(rows_for(chart("ranking"), usual_data())) == 4


def test_the_timeline_has_the_rows_of_three_tables_each_with_its_kind() -> None:
    rows = rows_for(chart("timeline"), usual_data())
    assert list(dict.fromkeys(row["kind"] for row in rows)) == ["telemetry", "spans", "steps"]
    assert {row["run"] for row in rows} == {"g3_r1"}
    assert sum(row["kind"] == "steps" for row in rows) == 30


@pytest.mark.parametrize(("by", "column", "title"), [("step", "step", "step"), ("time", "t_s", "seconds since launch")])
def test_x_of_a_series_is_what_the_reader_chose(by: str, column: str, title: str) -> None:
    data = picked(by=by)
    rows = rows_for(chart("steps"), data)
    assert all(row["x"] == row[column] for row in rows)
    assert f"'title': '{title}'" in str(drawn_spec(chart("steps"), data))


def test_x_and_y_of_the_heat_map_are_the_chosen_axes() -> None:
    made = chart("heat")
    usual = rows_for(made, usual_data())
    assert [row["x"] for row in usual] == [row[f"axis_{made.axes[0]}"] for row in usual]
    turned = rows_for(made, picked(x=made.axes[1], y=made.axes[0]))
    assert [row["y"] for row in turned] == [row["x"] for row in usual]
    titles = str(drawn_spec(made, usual_data()))
    assert "{x}" not in titles
    assert "'title': 'micro_batch'" in titles


def test_a_level_that_is_no_number_or_text_is_a_word() -> None:
    levels = [None, True, False, 8]
    groups = [{**row, "axis_micro_batch": level} for row, level in zip(rows_of(usual_data().tables["groups"]), levels, strict=True)]
    data = dataclasses.replace(usual_data(), tables={**usual_data().tables, "groups": columns(groups)})
    assert [row["x"] for row in rows_for(chart("heat", data), picked(data, x="micro_batch"))] == ["none", "true", "false", "8"]


def test_a_name_is_the_same_in_rows_and_in_the_document() -> None:
    data = made_charts(steps=25, name=HOSTILE)
    made = chart("ranking", data)
    named = {row["group"] for row in rows_for(made, data)}
    placed = {row["group"] for row in made.spec["transform"][0]["from"]["data"]["values"]}
    assert named == placed
    # A run that is called like the place of a title keeps its name.
    assert all("{x}" in str(name) for name in placed)
