"""A campaign's folder that somebody else made: reading it writes nothing outside it, and brings nothing in from outside."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from seatrial.cli.main import run_command
from seatrial.paths import CampaignPaths
from seatrial.report.trackers.to_tensorboard import TensorBoard
from seatrial.report.trackers.tracker import TrackedRun
from tests.unit.campaign.made_campaign import write_campaign
from tests.unit.security.folders import contents

SECRET = "private-hunter-0042"
# From the folder of a campaign, from a folder in it, and from anywhere.
WAYS_OUT = ("../../outside/victim", "../../../outside/victim", "{outside}/victim")


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    """What must stay as it is: a text, JSON as services keep it, an attempt's folder, a table."""
    folder = tmp_path / "outside"
    (folder / "victim" / "attempt-1").mkdir(parents=True)
    (folder / "victim" / "attempt-1" / "precious.txt").write_text(SECRET)
    (folder / "notes.txt").write_text(f"step 1 loss {SECRET}\n" * 3)
    (folder / "config.json").write_text(json.dumps({"auths": {"host": {"auth": SECRET}}, "password": SECRET}))
    return folder


@pytest.fixture
def campaign(tmp_path: Path, outside: Path) -> CampaignPaths:
    return write_campaign(tmp_path / "campaigns" / "out", steps=5)


def rewrite(path: Path, **changes: Any) -> None:
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


def lie_about_names(paths: CampaignPaths, way: str) -> None:
    """Every name in every file is a way out of the folder."""
    for run in paths.runs():
        for attempt in run.attempts():
            rewrite(attempt.spec, run=way, group=way, plan=way, cwd="/", labels={"micro_batch": way})
            rewrite(attempt.outcome, run=way)
            for events in attempt.all_events():
                events.write_text(events.read_text().replace(attempt.run, way))
    for path in (paths.plan, *paths.plans.glob("*.json")):
        plan = json.loads(path.read_text())
        runs = [{**run, "run": way, "group": way, "plan": way} for run in plan["runs"]]
        path.write_text(json.dumps({**plan, "name": way, "output": way, "runs": runs}))


def everything(paths: CampaignPaths, tables: Path) -> None:
    """All that reads a folder, whatever it says of it."""
    run_command(["report", str(paths.folder), "--json"])
    run_command(["export", str(paths.folder), "all", "-o", str(tables)])
    runs = [str(run.folder) for run in paths.runs()]
    run_command(["logs", runs[0]])
    run_command(["diff", runs[0], runs[-1], "--json"])
    run_command(["stop", str(paths.folder)])


@pytest.mark.parametrize("way", WAYS_OUT)
def test_names_in_files_are_no_paths(campaign: CampaignPaths, outside: Path, tmp_path: Path, way: str) -> None:
    lie_about_names(campaign, way.format(outside=outside))
    before = contents(outside)
    everything(campaign, tmp_path / "campaigns" / "tables")
    assert contents(outside) == before
    assert {path.name for path in tmp_path.iterdir()} == {"campaigns", "outside"}
    assert {path.name for path in (tmp_path / "campaigns").iterdir()} == {"out", "tables"}


@pytest.mark.parametrize("way", WAYS_OUT)
def test_a_tracker_writes_into_the_campaigns_folder_only(campaign: CampaignPaths, outside: Path, tmp_path: Path, way: str) -> None:
    pytest.importorskip("tensorboard")
    lie_about_names(campaign, way.format(outside=outside))
    before = contents(outside)
    run_command(["report", str(campaign.folder), "--track", "tensorboard"])
    assert contents(outside) == before
    assert {path.name for path in tmp_path.iterdir()} == {"campaigns", "outside"}
    assert {path.name for path in (tmp_path / "campaigns").iterdir()} == {"out"}


@pytest.mark.parametrize("way", [*WAYS_OUT, "..", ".", "", "/"])
def test_a_run_of_that_name_is_sent_into_the_trackers_folder(campaign: CampaignPaths, outside: Path, tmp_path: Path, way: str) -> None:
    pytest.importorskip("tensorboard")
    before = contents(outside)
    name = way.format(outside=outside)
    told = {"params": {}, "tags": {}, "steps": (), "telemetry": (), "figures": {}}
    one = TrackedRun(key="k", name=name, campaign="c", group="g", outcome="ok", attempt=1, started_t=1.0, ended_t=2.0, **told)
    TensorBoard(campaign.tensorboard).send_run(one)
    assert contents(outside) == before
    (written,) = tmp_path.rglob("events.out.*")
    assert written.parent.name == "attempt-1" and written.parents[2] == campaign.tensorboard


def test_links_out_of_the_folder_are_replaced_and_never_written_through(campaign: CampaignPaths, outside: Path) -> None:
    targets = (campaign.summary_md, campaign.summary_json, campaign.verdict, campaign.manifest, campaign.timing_points, campaign.eta_points)
    more = (campaign.per_run_metrics, campaign.group_summary, campaign.ranked_groups, campaign.skipped_runs, campaign.best_config_env)
    for path in (*targets, *more, campaign.best_config_json, campaign.best_overrides):
        path.unlink(missing_ok=True)
        path.symlink_to(outside / "notes.txt")
    before = contents(outside)
    run_command(["report", str(campaign.folder)])
    assert contents(outside) == before
    assert campaign.summary_md.is_file() and not campaign.summary_md.is_symlink()


def put_links(paths: CampaignPaths, outside: Path) -> None:
    """In the place of what a run wrote, links to private files."""
    for number, run in enumerate(paths.runs()):
        for attempt in run.attempts():
            attempt.launcher_log.symlink_to(outside / "notes.txt")
            attempt.alarms.symlink_to(outside / "config.json")
            attempt.environment.symlink_to(outside / "config.json")
            for name in (attempt.provenance, attempt.outcome, attempt.events(0), attempt.host_telemetry)[number:]:
                name.unlink(missing_ok=True)
                name.symlink_to(outside / ("notes.txt" if name.suffix == ".csv" else "config.json"))
    for name in ("preflight.json", "recovered.json"):
        (paths.folder / name).symlink_to(outside / "config.json")


def test_what_a_link_points_at_does_not_come_into_what_is_written(campaign: CampaignPaths, outside: Path, tmp_path: Path) -> None:
    put_links(campaign, outside)
    before = contents(outside)
    tables = tmp_path / "campaigns" / "tables"
    everything(campaign, tables)
    assert contents(outside) == before
    written = [path for path in (*campaign.folder.iterdir(), *tables.iterdir()) if path.is_file() and not path.is_symlink()]
    assert len(written) > 10
    for path in written:
        assert SECRET not in path.read_text(encoding="utf-8", errors="replace"), path


def test_watch_of_a_file_that_is_no_progress_is_told(campaign: CampaignPaths, outside: Path, capsys: pytest.CaptureFixture[str]) -> None:
    campaign.progress.symlink_to(outside / "config.json")
    assert run_command(["watch", str(campaign.folder), "--once"]) == 1
    said = capsys.readouterr()
    assert said.err.startswith("seatrial: ") and SECRET not in said.out + said.err


def test_a_claimed_owner_is_asked_by_a_file_and_never_by_a_signal(campaign: CampaignPaths, outside: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"]) as victim:
        (campaign.folder / ".owner.json").write_text(json.dumps({"pid": victim.pid, "host": "here", "token": "x", "since_t": 1.0}))
        before = contents(campaign.folder)
        run_command(["stop", str(campaign.folder)])
        assert victim.poll() is None
        victim.kill()
    assert set(contents(campaign.folder)) - set(before) <= {".stop.json", ".owner.lock"}
