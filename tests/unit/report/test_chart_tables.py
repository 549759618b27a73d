"""charts/*.csv as they are written: columns, order, removal, and text of users that stays text."""

from __future__ import annotations

import csv
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from seatrial.paths import CampaignPaths
from seatrial.records.charts import CHART_TABLES, SPANS, STEPS, WHOSE, RunCharts
from seatrial.records.results import CampaignResults, MeasuredRun
from seatrial.report.chart_tables import chart_frames, write_chart_tables
from tests.unit.analyse import factory as runs
from tests.unit.report import factory

STEP_COLUMNS: dict[str, list[Any]] = {
    "rank": [0, 0, 0],
    "step": [0, 1, 2],
    "begin_s": [4.0, None, 6.5],
    "t_s": [5.12345678, None, 7.0],
    "iter_ms": [1234.56789, 0.0000123456789, None],
    "loss": [math.nan, -math.inf, None],
    "counted": [False, True, True],
}


@pytest.fixture
def empty() -> CampaignResults:
    return replace(factory.results(), runs=())


def run(group: str, tables: dict[str, Any], **changes: Any) -> MeasuredRun:
    return replace(runs.measured(runs.spec(group), **changes), charts=RunCharts(tables=tables))


def written(paths: CampaignPaths, name: str) -> list[dict[str, str]]:
    with paths.chart_table(name).open(newline="", encoding="utf-8") as source:
        return list(csv.DictReader(source))


def test_all_current_attempts_in_their_order(tmp_path: Path, empty: CampaignResults) -> None:
    paths = CampaignPaths(tmp_path)
    old = run("b", {STEPS: STEP_COLUMNS}, current=False)
    results = replace(empty, runs=(run("b", {STEPS: STEP_COLUMNS}), old, run("a", {}), run("a", {STEPS: STEP_COLUMNS}), runs.measured()))
    write_chart_tables(results, paths)
    rows = written(paths, STEPS)
    assert tuple(rows[0]) == (*WHOSE, *CHART_TABLES[STEPS])
    assert [(row["run"], row["group"], row["repeat"], row["step"]) for row in rows] == [
        (f"{group}_r1", group, "1", step) for group in "ba" for step in "012"
    ]
    assert [path.name for path in paths.charts.iterdir()] == ["steps.csv"]


def test_cells_are_short_and_tell_a_broken_loss_from_none(tmp_path: Path, empty: CampaignResults) -> None:
    paths = CampaignPaths(tmp_path)
    write_chart_tables(replace(empty, runs=(run("a", {STEPS: STEP_COLUMNS}),)), paths)
    cells = [(row["t_s"], row["iter_ms"], row["loss"], row["counted"]) for row in written(paths, STEPS)]
    assert cells == [("5.123", "1234.57", "NaN", "false"), ("", "0.0000123457", "-inf", "true"), ("7", "", "", "true")]


def test_what_users_name_stays_one_line_of_text(tmp_path: Path, empty: CampaignResults) -> None:
    paths = CampaignPaths(tmp_path)
    hostile = ["</script><script>alert(1)</script>", 'a "quote", a comma', "line\nbreak\u2028here", "\x1b[31mred\u202e", "torn \udcff", ""]
    spans = {"source": ["rank 0"] * 6, "span": hostile, "begin_s": [0.0] * 6, "end_s": [1.0] * 6}
    write_chart_tables(replace(empty, runs=(run("<b>", {SPANS: spans}),)), paths)
    assert paths.chart_table(SPANS).read_bytes().count(b"\n") == 7
    assert [row["span"] for row in written(paths, SPANS)] == [
        hostile[0],
        hostile[1],
        "line break\u2028here",
        hostile[3],
        "torn \\udcff",
        "",
    ]


def test_a_table_without_rows_is_removed_and_an_empty_folder_too(tmp_path: Path, empty: CampaignResults) -> None:
    paths = CampaignPaths(tmp_path)
    write_chart_tables(replace(empty, runs=(run("a", {STEPS: STEP_COLUMNS}),)), paths)
    write_chart_tables(replace(empty, runs=(run("a", {}),)), paths)
    assert not paths.charts.exists()
    write_chart_tables(replace(empty, runs=(run("a", {STEPS: STEP_COLUMNS}),)), paths)
    picture = paths.charts / "steps.png"
    picture.write_bytes(b"")
    write_chart_tables(empty, paths)
    assert list(paths.charts.iterdir()) == [picture]


def test_frames_hold_what_is_written(empty: CampaignResults) -> None:
    frames = dict(chart_frames(replace(empty, runs=(run("a", {STEPS: STEP_COLUMNS}),))))
    assert set(frames) == {STEPS}
    assert frames[STEPS]["t_s"].to_list() == [5.123, None, 7.0]


def test_every_table_and_column_is_described() -> None:
    page = (Path(__file__).parents[3] / "docs" / "files.md").read_text(encoding="utf-8")
    for name, columns in CHART_TABLES.items():
        assert f"`charts/{name}.csv`" in page
        assert [column for column in columns if f"`{column}`" not in page] == []
