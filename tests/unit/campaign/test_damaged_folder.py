"""A report of a folder in which something is damaged: a selection; tests/faults does all of it to a real campaign."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from seatrial.campaign.export import Exporter
from seatrial.paths import CampaignPaths
from tests.faults import damage
from tests.faults.damage import Told
from tests.unit.campaign.made_campaign import write_campaign

RUN = "mb16_r1"
ATTEMPT = f"{RUN}/attempt-1"


@pytest.fixture(scope="module")
def campaign(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = write_campaign(tmp_path_factory.mktemp("damaged") / "out").folder
    damage.told(folder)
    return folder


@pytest.fixture(scope="module")
def whole(campaign: Path, tmp_path_factory: pytest.TempPathFactory) -> Told:
    return damage.report_of(campaign, tmp_path_factory.mktemp("whole") / "out")


FILES = {
    "plan.json": ("a third", "a pipe", "a negative number"),
    "plans/factory.json": ("random bytes", "a folder", "NaN"),
    f"{ATTEMPT}/spec.json": ("missing", "a block of NUL", "a number of 5000 digits"),
    f"{ATTEMPT}/outcome.json": ("empty", "a loop of links", "an infinite number"),
    f"{ATTEMPT}/provenance.json": ("a third", "a dead link"),
    f"{ATTEMPT}/events_rank0.jsonl": ("nearly whole", "random bytes", "a pipe", "every line twice", "lines backwards", "1e400"),
    f"{ATTEMPT}/host_telemetry.csv": ("a third", "a pipe", "every line twice", "a number of 400 digits", "a negative number"),
    "run_manifest.tsv": ("a folder", "a pipe", "random bytes"),
}


@pytest.mark.parametrize(("file", "what"), [(file, what) for file, names in FILES.items() for what in names])
def test_the_rest_is_reported_and_the_damage_is_named(campaign: Path, whole: Told, tmp_path: Path, file: str, what: str) -> None:
    found = damage.report_of(campaign, tmp_path / "out", file, damage.damages_for(file)[what])
    assert {run: row for run, row in found.runs.items() if run != RUN} == {run: row for run, row in whole.runs.items() if run != RUN}
    if found.runs != whole.runs:
        assert found.names(file)
    for name in ("wall_samples_per_sec", "wall_iter_p50_ms"):
        now, true = found.runs.get(RUN, {}).get(name, ""), float(whole.runs[RUN][name])
        assert not now or float(now) == pytest.approx(true, rel=0.1)


def test_a_spec_that_is_gone_is_taken_from_the_plan_of_the_same_hash(campaign: Path, whole: Told, tmp_path: Path) -> None:
    found = damage.report_of(campaign, tmp_path / "out", f"{ATTEMPT}/spec.json", damage.missing)
    assert found.runs == whole.runs
    (told,) = [caution.text for caution in found.cautions if caution.kind == "unreadable_file"]
    assert told.endswith(
        "spec.json cannot be used (it is missing) and was passed over; the plan's own for the same hash was taken instead."
    )


def test_a_run_whose_provenance_was_lost_does_not_set_the_others_aside(campaign: Path, whole: Told, tmp_path: Path) -> None:
    """Though it is the newest of its group."""
    newest = "mb8_r2/attempt-1/provenance.json"
    found = damage.report_of(campaign, tmp_path / "out", newest, damage.empty)
    assert found.runs["mb8_r1"] == whole.runs["mb8_r1"] and "mb8_r2" not in found.runs
    assert found.names(newest)


def test_files_that_only_later_attempts_lack_are_told(campaign: Path, tmp_path: Path) -> None:
    """An attempt whose outcome is damaged is not current, so that the older one counts: why must be said all the same."""
    found = damage.report_of(campaign, tmp_path / "out", "mb8_r1/attempt-2/outcome.json", damage.empty)
    assert found.outcomes["mb8_r1"] == "unfinished" and found.names("outcome.json")


def test_every_table_of_a_damaged_folder_can_be_exported(campaign: Path, tmp_path: Path) -> None:
    damage.report_of(campaign, tmp_path / "out", f"{ATTEMPT}/events_rank1.jsonl", damage.random_bytes)
    damage.a_pipe(tmp_path / "out" / ATTEMPT / "heartbeat_rank0.jsonl")
    damage.random_bytes(tmp_path / "out" / ATTEMPT / "heartbeat_rank1.jsonl")
    exporter = Exporter(CampaignPaths(tmp_path / "out"))
    assert sum(len(frame) for frame in exporter.table("steps").frames) > 0
    assert {row for frame in exporter.table("heartbeats").frames for row in frame["run"].to_list()} == {"mb8_r1", "mb8_r2", "mb16_r2"}
    assert exporter.left_out == []


def test_heartbeats_with_numbers_that_cannot_be_are_exported_as_empty(campaign: Path, tmp_path: Path) -> None:
    beat = {"ts": 10**400, "pid": 2**70, "rank": 0, "step": 1e300, "host": ["x"], "msg": 7}
    lines = json.dumps(beat) + "\n" + '{"ts": NaN, "step": -Infinity, "rank": 1e999}\n'
    damage.report_of(campaign, tmp_path / "out", f"{ATTEMPT}/heartbeat_rank0.jsonl", lambda path: path.write_text(lines) and None)
    exporter = Exporter(CampaignPaths(tmp_path / "out"))
    assert sum(len(frame) for frame in exporter.table("heartbeats").frames) == 9
    assert exporter.left_out == []
