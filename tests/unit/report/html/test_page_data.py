"""What the page is drawn from, read from a folder that may be whole, old or damaged."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from seatrial import files
from seatrial.paths import CampaignPaths
from seatrial.records.charts import CHART_TABLES, STEPS, WHOSE
from seatrial.report.html.page_data import PageData, read_page_data
from seatrial.report.html.summary_tables import GROUP_COLUMNS, RUN_COLUMNS, groups_table
from seatrial.report.summary import summary_json
from tests.unit.report import factory

HEADER = ",".join((*WHOSE, *CHART_TABLES[STEPS]))


@pytest.fixture
def paths(tmp_path: Path) -> CampaignPaths:
    found = CampaignPaths(tmp_path)
    files.write_json(found.summary_json, summary_json(factory.results()))
    return found


def write_steps(paths: CampaignPaths, *lines: str) -> None:
    files.write_text(paths.chart_table(STEPS), "\n".join((HEADER, *lines)) + "\n")


def test_groups_and_runs_are_made_of_the_summary(paths: CampaignPaths) -> None:
    tables = read_page_data(paths).tables
    groups, runs = tables["groups"], tables["runs"]
    assert list(groups) == [*GROUP_COLUMNS, "axis_micro_batch", "axis_loader"]
    assert list(runs) == list(RUN_COLUMNS)
    assert groups["group"][0] == "mb16_nw2" and groups["note"][0] == "leads"
    assert groups["unit"][0] == "samples/s" and groups["window"][0] == "steps 20–199"
    assert groups["lane"][-1] is False and groups["group"][-1] == factory.ODD
    at = runs["run"].index("mb8_nw2_r2")
    assert (runs["outcome"][at], runs["value"][at], runs["window"][at]) == ("failed", None, "")
    assert {len(values) for values in runs.values()} == {len(runs["run"])}


def test_cells_are_what_their_column_holds(paths: CampaignPaths) -> None:
    write_steps(paths, "mb16_nw2_r1,mb16_nw2,1,0,5,1.0,1.25,16.5,2.5,true", "7,8,2,0,6.0,1.25,1.5,17,,false")
    steps = read_page_data(paths).tables[STEPS]
    assert steps["run"] == ["mb16_nw2_r1", "7"] and steps["group"] == ["mb16_nw2", "8"]
    assert steps["step"] == [5, 6] and steps["iter_ms"] == [16.5, 17.0]
    assert steps["loss"] == [2.5, None] and steps["counted"] == [True, False]


def test_a_loss_that_is_no_number_is_told_and_other_numbers_are_not(paths: CampaignPaths) -> None:
    write_steps(paths, "a_r1,a,1,0,5,0.5,1.0,NaN,NaN,true", "a_r1,a,1,0,6,0.5,1.0,inf,-inf,true")
    steps = read_page_data(paths).tables[STEPS]
    losses = steps["loss"]
    assert isinstance(losses[0], float) and math.isnan(losses[0]) and losses[1] == -math.inf
    assert steps["iter_ms"] == [None, None]


@pytest.mark.parametrize(
    "text",
    [
        "",
        HEADER + "\n",
        "run,group\na,b\n",
        "\x00\x00\x00",
        '"' + HEADER,
        HEADER + "\n,,,,,,,,,\n",
    ],
)
def test_a_damaged_table_is_an_absent_one(paths: CampaignPaths, text: str) -> None:
    files.write_text(paths.chart_table(STEPS), text)
    assert STEPS not in read_page_data(paths).tables


def test_a_damaged_cell_is_an_empty_one(paths: CampaignPaths) -> None:
    write_steps(paths, "a_r1,a,x,0,five,0.5,1.0,16.5,2.5,maybe", "a_r1,a,1,0,6,0.5,1.0,16.5,2.5,true,and,more", "a_r1,a,1")
    steps = read_page_data(paths).tables[STEPS]
    assert steps["step"] == [None, 6, None] and steps["counted"] == [False, True, False]


def test_a_folder_under_the_name_of_a_table_is_no_table(paths: CampaignPaths) -> None:
    paths.chart_table(STEPS).mkdir(parents=True)
    assert STEPS not in read_page_data(paths).tables


@pytest.mark.parametrize("text", ["", "{", "[1, 2]", "null", '{"groups": 7, "runs": {"a": 1}, "ranking": [], "standings": "x"}'])
def test_a_summary_that_cannot_be_read_gives_an_empty_page(tmp_path: Path, text: str) -> None:
    paths = CampaignPaths(tmp_path)
    files.write_text(paths.summary_json, text)
    assert read_page_data(paths).tables == {}


def test_an_old_summary_has_its_groups_and_runs(paths: CampaignPaths) -> None:
    told = summary_json(factory.results())
    for key in ("standings", "current_runs", "axis_labels", "machines", "sentences"):
        del told[key]
    files.write_json(paths.summary_json, told)
    tables = read_page_data(paths).tables
    assert tables["groups"]["group"][0] == "mb16_nw2" and tables["groups"]["value"][0] == pytest.approx(1266, rel=0.01)
    assert {"mb16_nw2_r1", "mb8_nw2_r2"} <= set(tables["runs"]["run"])


@pytest.mark.parametrize(("decided", "pending", "note"), [(True, [], "winner"), (False, [], "leads"), (True, ["mb8_nw2_r2"], "leads")])
def test_the_first_of_an_old_summary_has_won_only_where_that_is_decided(decided: bool, pending: list[str], note: str) -> None:
    told = summary_json(factory.results())
    del told["standings"]
    groups = groups_table({**told, "ranking": {**told["ranking"], "decided": decided}, "pending": pending})
    assert groups["note"][0] == note


def test_nothing_on_disk_is_an_empty_page(tmp_path: Path) -> None:
    assert read_page_data(CampaignPaths(tmp_path / "none")) == PageData(summary={}, tables={})
