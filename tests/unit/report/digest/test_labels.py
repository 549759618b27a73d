"""Two plans in one folder that give one name to two configurations: no figure of one is shown as the other's."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from seatrial import files
from seatrial.analyse.groups import summarise
from seatrial.analyse.rank import rank
from seatrial.paths import CampaignPaths
from seatrial.records.charts import STEPS, RunCharts
from seatrial.records.outcome import Outcome
from seatrial.records.results import CampaignResults, MeasuredRun
from seatrial.report.chart_tables import write_chart_tables
from seatrial.report.digest.labels import labels_of
from seatrial.report.html.both_sides import both_sides
from seatrial.report.html.live_data import page_data_of
from seatrial.report.html.page_data import PageData, read_page_data
from seatrial.report.summary import summary_json
from tests.unit.analyse import factory as runs
from tests.unit.report import factory

FIRST, SECOND = "427b0000", "9c0d0000"


def run(key: str, value: float, *, group: str = "mb16", repeat: int = 1, outcome: Outcome = Outcome.OK) -> MeasuredRun:
    spec = runs.spec(group, repeat, group_key=key, hash=f"{key}-{repeat}")
    steps = {"rank": [0], "step": [7], "begin_s": [1.0], "t_s": [2.0], "iter_ms": [value], "loss": [None], "counted": [True]}
    made = runs.measured(spec, outcome=outcome, measure={"samples_per_s": value, "wall_p50_ms": 1000 / value})
    return replace(made, charts=RunCharts(tables={STEPS: steps}))


def campaign(*measured: MeasuredRun) -> CampaignResults:
    groups = summarise(measured, "")
    return replace(factory.empty_results(), runs=measured, groups=groups, ranking=rank(groups, "samples_per_s"))


@pytest.fixture
def results() -> CampaignResults:
    return campaign(run(FIRST, 100.0), run(SECOND, 200.0), run("5555aaaa", 50.0, group="mb8"))


def read(results: CampaignResults, folder: Path) -> PageData:
    paths = CampaignPaths(folder)
    files.write_json(paths.summary_json, summary_json(results))
    write_chart_tables(results, paths)
    return read_page_data(paths)


def test_every_run_has_its_own_figures_under_one_name_in_every_table(results: CampaignResults, tmp_path: Path) -> None:
    data = read(results, tmp_path)
    told, steps = data.tables["runs"], data.tables[STEPS]
    named = {"mb16_r1~427b": ("mb16~427b", 100.0), "mb16_r1~9c0d": ("mb16~9c0d", 200.0), "mb8_r1": ("mb8", 50.0)}
    assert {run: (group, value) for run, group, value in zip(told["run"], told["group"], told["value"], strict=True)} == named
    assert {run: (group, value) for run, group, value in zip(steps["run"], steps["group"], steps["iter_ms"], strict=True)} == named
    assert {row["run"]: row["group"] for row in data.summary["runs"]} == {run: group for run, (group, _) in named.items()}
    assert set(data.tables["groups"]["group"]) == {group for group, _ in named.values()}
    assert set(data.summary["windows"]) == set(data.summary["eta_quality"]["runs"]) == set(named)
    assert [row["folder"] for row in data.summary["current_runs"]] == ["mb16_r1", "mb16_r1", "mb8_r1"]
    assert page_data_of(results).tables == data.tables


def test_both_sides_keep_them_apart(results: CampaignResults, tmp_path: Path) -> None:
    data = read(results, tmp_path)
    assert both_sides(data, data).data.tables[STEPS]["run"] == [
        f"{side} {run}" for side in "AB" for run in ("mb16_r1~427b", "mb16_r1~9c0d", "mb8_r1")
    ]


def test_a_failed_run_is_told_apart_too() -> None:
    told = summary_json(campaign(run(FIRST, 100.0), run(SECOND, 200.0, outcome=Outcome.FAILED)))
    assert [(row["run"], row["group"]) for row in told["skipped_runs"]] == [("mb16_r1~9c0d", "mb16~9c0d")]


def test_a_name_that_one_configuration_carries_stays_as_it_is() -> None:
    # The second plan asks for another repeat of its mb16: the runs' names differ, the groups' do not.
    results = campaign(run(FIRST, 100.0), run(SECOND, 200.0, repeat=2))
    labels = labels_of(results)
    assert [labels.whose(one.attempt.spec) for one in results.runs] == [("mb16_r1", "mb16~427b", 1), ("mb16_r2", "mb16~9c0d", 2)]


def test_groups_of_unlike_names_whose_runs_are_called_alike() -> None:
    one, other = run(FIRST, 100.0), run(SECOND, 200.0, group="mb8")
    other = replace(other, attempt=replace(other.attempt, spec=replace(other.attempt.spec, run="mb16_r1")))
    results = campaign(one, other)
    labels = labels_of(results)
    assert [labels.run(each.attempt.spec) for each in results.runs] == ["mb16_r1~427b", "mb16_r1~9c0d"]


def test_a_summary_of_an_earlier_version_tells_runs_apart_by_their_group(results: CampaignResults, tmp_path: Path) -> None:
    told = summary_json(results)
    for table in ("runs", "current_runs"):
        told[table] = [{**row, "run": row["run"].partition("~")[0]} for row in told[table]]
    paths = CampaignPaths(tmp_path)
    files.write_json(paths.summary_json, told)
    assert read_page_data(paths).tables["runs"]["value"] == [100.0, 200.0, 50.0]
