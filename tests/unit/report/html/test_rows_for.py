from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from seatrial.report.html.chart import Chart
from seatrial.report.html.rows_for import drawn_spec, rows_for, tables_for
from seatrial.report.html.specs.all_charts import all_charts
from tests.unit.report.html.made_page import HOSTILE, columns, made_page, rows_of

DATA = made_page(steps=30, nan_loss=True)
PICKS = {"runs": ["g1_r1", "g2_r2"], "timeline": "g3_r1"}


def chart(name: str, data: Any = DATA) -> Chart:
    return next(one for one in all_charts(data) if one.id == name)


def test_rows_are_of_whom_the_chart_asks() -> None:
    assert {row["run"] for row in rows_for(chart("steps"), DATA, PICKS)} == {"g1_r1", "g2_r2"}
    assert {row["run"] for row in rows_for(chart("ranks"), DATA, PICKS)} == {"g3_r1"}
    assert len(rows_for(chart("ranking"), DATA, PICKS)) == 4


def test_the_timeline_has_the_rows_of_three_tables_each_with_its_kind() -> None:
    rows = rows_for(chart("timeline"), DATA, PICKS)
    assert list(dict.fromkeys(row["kind"] for row in rows)) == ["telemetry", "span", "step"]
    assert {row["run"] for row in rows} == {"g3_r1"}
    assert sum(row["kind"] == "step" for row in rows) == 30


@pytest.mark.parametrize(("by", "column", "title"), [("step", "step", "step"), ("time", "t_s", "seconds since launch")])
def test_x_of_a_series_is_what_the_reader_chose(by: str, column: str, title: str) -> None:
    picks = {**PICKS, "by": by}
    rows = rows_for(chart("steps"), DATA, picks)
    assert all(row["x"] == row[column] for row in rows)
    assert f"'title': '{title}'" in str(drawn_spec(chart("steps"), DATA, picks))


def test_x_and_y_of_the_heat_map_are_the_chosen_axes() -> None:
    made = chart("heat")
    usual = rows_for(made, DATA, {})
    assert [row["x"] for row in usual] == [row[f"axis_{made.axes[0]}"] for row in usual]
    turned = rows_for(made, DATA, {"x": made.axes[1], "y": made.axes[0]})
    assert [row["y"] for row in turned] == [row["x"] for row in usual]
    titles = str(drawn_spec(made, DATA, {}))
    assert "{x}" not in titles
    assert "'title': 'micro_batch'" in titles


def test_a_level_that_is_no_number_or_text_is_a_word() -> None:
    levels = [None, True, False, 8]
    groups = [{**row, "axis_micro_batch": level} for row, level in zip(rows_of(DATA.tables["groups"]), levels, strict=True)]
    data = dataclasses.replace(DATA, tables={**DATA.tables, "groups": columns(groups)})
    assert [row["x"] for row in rows_for(chart("heat", data), data, {"x": "micro_batch"})] == ["none", "true", "false", "8"]


def test_numbers_that_are_not_finite_are_words() -> None:
    steps = [
        {**row, "loss": value}
        for row, value in zip(rows_of(DATA.tables["steps"]), (float("nan"), float("inf"), -float("inf")), strict=False)
    ]
    data = dataclasses.replace(DATA, tables={**DATA.tables, "steps": columns(steps)})
    assert [row["loss"] for row in rows_for(chart("loss", data), data, PICKS)] == ["NaN", "Infinity", "-Infinity"]


def test_a_name_is_the_same_in_rows_and_in_the_document() -> None:
    data = made_page(steps=25, name=HOSTILE)
    made = chart("ranking", data)
    named = {row["group"] for row in rows_for(made, data, {})}
    placed = {row["group"] for row in made.spec["transform"][0]["from"]["data"]["values"]}
    assert named == placed
    # A run that is called like the place of a title keeps its name.
    assert all("{x}" in str(name) for name in placed)


def test_start_up_is_a_table_of_its_own() -> None:
    assert "startup" in tables_for(DATA)
    assert len(rows_for(chart("startup"), DATA, {})) == len(tables_for(DATA)["startup"]["run"])
    assert "startup" not in tables_for(dataclasses.replace(DATA, summary={}))
