"""What a tracker is given of a run: the right numbers, not too many of them, and no secret."""

from __future__ import annotations

import dataclasses
import json
import math
import shutil
from pathlib import Path

import polars as pl
import pytest

from seatrial.campaign.results import gather_results, remake
from seatrial.campaign.tracked import MOST_STEP_POINTS, MOST_TELEMETRY_POINTS, key_of, thinned, tracked_campaign, tracked_run
from seatrial.collect.attempts import read_campaign
from seatrial.collect.steps import read_steps
from seatrial.paths import AttemptPaths, CampaignPaths
from seatrial.records.telemetry import GPU_COLUMNS
from seatrial.report.trackers.tracker import TrackedRun
from tests.unit.campaign.made_campaign import STEPS, TOKEN, write_campaign, write_samples


@pytest.fixture(scope="module")
def campaign(tmp_path_factory: pytest.TempPathFactory) -> CampaignPaths:
    return write_campaign(tmp_path_factory.mktemp("tracked") / "out")


@pytest.fixture(scope="module")
def run(campaign: CampaignPaths) -> TrackedRun:
    measured = next(run for run in gather_results(campaign).runs if run.attempt.spec.run == "mb8_r2")
    return tracked_run(measured, read_steps(measured.attempt))


def test_names_figures_and_tags(run: TrackedRun) -> None:
    assert (run.name, run.campaign, run.group, run.outcome, run.attempt) == ("mb8_r2", "factory", "mb8", "ok", 1)
    assert run.params["micro_batch"] == 8 and run.params["loader"] == "fork" and run.params["d_model"] == 64
    assert run.tags["hash"] == "hash-mb8-2" and run.tags["fingerprint"] == "f00d" and run.tags["gpu_name"] == "Example GPU"
    assert run.figures["samples_per_s"] > 0 and run.figures["wall_p50_ms"] > 0 and all(map(math.isfinite, run.figures.values()))


def test_nothing_secret_leaves(run: TrackedRun) -> None:
    told = repr(run)
    assert TOKEN not in told and "sesame-open" not in told
    assert run.params["api_key"] == "***" and run.params["args"] == "--lr 0.1 --hub-token ***"


def test_points_are_those_of_rank_0(run: TrackedRun) -> None:
    assert [point.step for point in run.steps] == list(range(STEPS))
    point = run.steps[30]
    assert point.values["wall_iter_ms"] == 40.0 and point.values["samples_per_s"] == pytest.approx(200.0)
    assert "bwd_ms" not in point.values and math.isnan(run.steps[5].values["loss"])


def test_telemetry_is_by_time_since_launch(run: TrackedRun) -> None:
    assert [point.step for point in run.telemetry] == [2, 2, 4, 4, 6]
    assert run.telemetry[-1].values == {"host/cpu_user_pct": 12.5, "host/rss_kib": 1024.0}
    assert {name for point in run.telemetry for name in point.values} >= {"gpu0/power_w", "gpu0/util_gpu_pct"}


@pytest.mark.parametrize("gpus", [1, 2, 8])
def test_no_gpu_is_thinned_away(campaign: CampaignPaths, tmp_path: Path, gpus: int) -> None:
    shutil.copytree(campaign.folder, tmp_path / "copy")
    measured = next(run for run in gather_results(CampaignPaths(tmp_path / "copy")).runs if run.attempt.spec.run == "mb8_r2")
    assert measured.attempt.outcome is not None
    started_t = measured.attempt.outcome.started_t
    rows = [
        {"epoch_sec": started_t + 2 * at, "gpu_index": gpu, "power_w": 100 * gpu + at % 7}
        for at in range(3 * MOST_TELEMETRY_POINTS)
        for gpu in range(gpus)
    ]
    write_samples(AttemptPaths(Path(measured.attempt.folder)).gpu_telemetry, GPU_COLUMNS, rows)
    points = tracked_run(measured, read_steps(measured.attempt)).telemetry
    for gpu in range(gpus):
        drawn = [point for point in points if f"gpu{gpu}/power_w" in point.values]
        assert MOST_TELEMETRY_POINTS / 2 < len(drawn) <= MOST_TELEMETRY_POINTS
        assert drawn[-1].t - drawn[0].t > 0.9 * (rows[-1]["epoch_sec"] - started_t)
        assert all(100 * gpu <= point.values[f"gpu{gpu}/power_w"] < 100 * gpu + 7 for point in drawn)


def test_thinning_keeps_the_extremes_the_order_and_the_ends() -> None:
    times = [10.0 + at % 3 for at in range(100_000)]
    times[31_417], times[77_777] = 5000.0, 0.5
    frame = pl.DataFrame({"step": range(100_000), "iter_ms": times})
    few = thinned(frame, "iter_ms", MOST_STEP_POINTS)
    assert MOST_STEP_POINTS / 2 < len(few) <= MOST_STEP_POINTS
    assert few["iter_ms"].max() == 5000.0 and few["iter_ms"].min() == 0.5
    assert few["step"].is_sorted() and few["step"].n_unique() == len(few)
    assert few["step"][0] == 0 and few["step"][-1] == 99_999


def test_thinning_steps_without_a_time() -> None:
    frame = pl.DataFrame({"step": range(10_000), "iter_ms": [None] * 10_000}, schema={"step": pl.Int64, "iter_ms": pl.Float64})
    few = thinned(frame, "iter_ms", 100)
    assert 40 < len(few) <= 100 and few["step"][-1] == 9_999


def test_a_key_is_of_one_attempt_wherever_its_folder_lies(campaign: CampaignPaths, tmp_path: Path) -> None:
    shutil.copytree(campaign.folder, tmp_path / "copy")
    here, there = read_campaign(campaign), read_campaign(CampaignPaths(tmp_path / "copy"))
    assert [key_of(attempt) for attempt in here] == [key_of(attempt) for attempt in there]
    assert len({key_of(attempt) for attempt in here}) == len(here)
    # The same settings another night are another run.
    ended = here[0].outcome
    assert ended is not None
    later = dataclasses.replace(here[0], outcome=dataclasses.replace(ended, started_t=ended.started_t + 86_400))
    assert key_of(later) != key_of(here[0])


def test_the_campaign_brings_its_report(tmp_path: Path) -> None:
    paths = write_campaign(tmp_path / "out", nan_step=None)
    remake(paths.folder)
    told = tracked_campaign(paths)
    assert told is not None and told.name == "factory"
    assert told.tags["winner"] == "mb8" and "mb8" in told.text
    assert told.tags["verdict"] == json.loads(paths.verdict.read_text())["verdict"]


def test_a_campaign_of_which_nothing_is_over_has_nothing_to_tell(tmp_path: Path) -> None:
    assert tracked_campaign(CampaignPaths(tmp_path)) is None
