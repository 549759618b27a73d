"""What can be drawn of a run that is still running."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from seatrial.campaign.live_charts import charts_of_running, launched_t, with_live_charts
from seatrial.campaign.results import gather_results, remake
from seatrial.collect.attempts import read_campaign
from seatrial.paths import AttemptPaths, CampaignPaths
from seatrial.records.attempt import Attempt
from seatrial.records.charts import Detail
from tests.unit.analyse import factory
from tests.unit.campaign.made_campaign import write_campaign

DETAIL = Detail(steps=40, telemetry=8, eta=10)
RUN = "mb16_r1"


@pytest.fixture
def running(tmp_path: Path) -> tuple[CampaignPaths, Attempt]:
    """A campaign of which one run has no outcome yet, launched 3.5 s before its first samples."""
    paths = write_campaign(tmp_path / "out", nan_step=None)
    attempt = next(attempt for attempt in read_campaign(paths) if attempt.spec.run == RUN)
    assert attempt.outcome is not None
    at = AttemptPaths(Path(attempt.folder))
    os.utime(at.provenance, (0, attempt.outcome.started_t + 0.5))
    at.outcome.unlink()
    return paths, replace(attempt, outcome=None)


def test_it_is_drawn_from_its_launch_on(running: tuple[CampaignPaths, Attempt]) -> None:
    _, attempt = running
    tables = charts_of_running(attempt, DETAIL).tables
    assert {"steps", "step_times", "telemetry", "spans"} <= set(tables)
    assert tables["steps"]["t_s"][0] == pytest.approx(4.5)
    assert tables["telemetry"]["t_s"][0] == pytest.approx(1.5)


def test_results_get_it_beside_the_finished_ones(running: tuple[CampaignPaths, Attempt]) -> None:
    paths, _ = running
    results = gather_results(paths, charts=True)
    assert {run.attempt.spec.run for run in results.runs if run.attempt.current and run.charts is None} == {RUN}
    live = with_live_charts(results)
    assert all(run.charts is not None for run in live.runs if run.attempt.current)
    assert [replace(run, charts=None) for run in live.runs] == [replace(run, charts=None) for run in results.runs]


def test_an_attempt_that_has_written_nothing_has_nothing_to_draw(tmp_path: Path) -> None:
    attempt = factory.attempt(outcome=None, folder=str(tmp_path / "mb8_r1" / "attempt-1"))
    assert launched_t(attempt) is None
    assert charts_of_running(attempt, DETAIL).tables == {}


def test_a_report_writes_the_tables_and_other_readers_do_not_make_them(tmp_path: Path) -> None:
    paths = write_campaign(tmp_path / "out")
    assert all(run.charts is None for run in gather_results(paths).runs)
    remake(paths.folder)
    assert {"steps.csv", "step_times.csv", "phases.csv", "ranks.csv", "telemetry.csv", "spans.csv"} <= {
        path.name for path in paths.charts.iterdir()
    }
