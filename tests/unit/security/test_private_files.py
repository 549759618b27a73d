"""What the harness writes: readable by whom, and without secrets; folders nobody else can take over."""

from __future__ import annotations

import json
import os
import shutil
import stat
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from seatrial.campaign.loop import save_plan
from seatrial.campaign.run_outcome import mask_outcome
from seatrial.cli.main import run_command
from seatrial.core import files
from seatrial.core.durable_writes import append_line_durably
from seatrial.core.paths import CampaignPaths
from seatrial.launch.prepare import prepare_local
from seatrial.records.outcome import Cause, Outcome, RunOutcome
from seatrial.records.plan import CampaignPlan, RunSpec
from seatrial.report.trackers import TensorBoard, TrackedRun
from seatrial_workloads.dummy.barrier import Barrier
from tests.original_campaign import sweep_run, write_original_campaign
from tests.unit.launch.factory import allocation_for, attempt_in, make_spec
from tests.unit.results.campaigns import write_campaign
from tests.unit.security.folders import contents
from tests.waiting import wait_until
from tests.workloads.ranks import run_ranks

SECRET = "private-hunter-0042"
# From the folder of a campaign, from a folder in it, and from anywhere.
WAYS_OUT = ("../../outside/victim", "../../../outside/victim", "{outside}/victim")


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    """Files that must not change: a text, JSON as services keep it, an attempt's folder."""
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
    """Replace every name in every file by a path out of the folder."""
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
    """Every command that reads a folder, whatever its result."""
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


@pytest.mark.parametrize("way", WAYS_OUT[::2])
def test_a_tracker_writes_into_the_campaigns_folder_only(campaign: CampaignPaths, outside: Path, tmp_path: Path, way: str) -> None:
    pytest.importorskip("tensorboard")
    lie_about_names(campaign, way.format(outside=outside))
    before = contents(outside)
    run_command(["report", str(campaign.folder), "--track", "tensorboard"])
    assert contents(outside) == before
    assert {path.name for path in tmp_path.iterdir()} == {"campaigns", "outside"}
    assert {path.name for path in (tmp_path / "campaigns").iterdir()} == {"out"}


@pytest.mark.parametrize("way", [WAYS_OUT[0], "..", "", "/"])
def test_a_run_of_that_name_is_sent_into_the_trackers_folder(campaign: CampaignPaths, outside: Path, tmp_path: Path, way: str) -> None:
    pytest.importorskip("tensorboard")
    before = contents(outside)
    name = way.format(outside=outside)
    empty = {"params": {}, "tags": {}, "steps": (), "telemetry": (), "figures": {}}
    one = TrackedRun(key="k", name=name, campaign="c", group="g", outcome="ok", attempt=1, started_t=1.0, ended_t=2.0, **empty)
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


def trap(outside: Path) -> Path:
    """A folder with files under every name that a campaign's folders have."""
    folder = outside / "trap"
    for name in ("steps.csv", "throughput.png", "telemetry.csv", "mb8_r1/attempt-1/events.out.x", "attempt-1/spec.json", "factory.json"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(SECRET)
    return folder


@pytest.mark.parametrize(
    ("linked", "verb"),
    [
        ("charts", ["report", "{out}"]),
        ("charts", ["report", "{out}", "--png"]),
        ("tensorboard", ["report", "{out}", "--track", "tensorboard"]),
        ("tensorboard/mb8_r1", ["report", "{out}", "--track", "tensorboard"]),
        ("tracking.log", ["report", "{out}", "--track", "tensorboard"]),
        ("mlruns", ["report", "{out}", "--track", "mlflow"]),
        ("mlruns/1", ["report", "{out}", "--track", "mlflow"]),
        ("wandb", ["report", "{out}", "--track", "wandb"]),
        ("plans", ["run", "plan.yaml", "--out", "{out}"]),
        ("charts", ["run", "plan.yaml", "--out", "{out}"]),
        (".owner.lock", ["run", "plan.yaml", "--out", "{out}"]),
        ("new_r1", ["run", "plan.yaml", "--out", "{out}"]),
        ("mb8_r1", ["run", "plan.yaml", "--out", "{out}"]),
        ("mb8_r1/attempt-1", ["run", "plan.yaml", "--out", "{out}"]),
    ],
)
def test_nothing_is_written_or_deleted_through_a_linked_folder(
    campaign: CampaignPaths,
    outside: Path,
    tmp_path: Path,
    linked: str,
    verb: list[str],
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    if "--track" in verb:
        pytest.importorskip(verb[-1])
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("WANDB_MODE", "offline")
    Path("plan.yaml").write_text("name: new\nworkload: dummy\nplace: {kind: local, ranks: 1}\nsettings: {steps: 2}\n")
    link, target = campaign.folder / linked, trap(outside)
    if link.exists():
        shutil.rmtree(link)
    link.parent.mkdir(exist_ok=True)
    link.symlink_to(target / "steps.csv" if link.suffix else target)
    before = contents(outside)
    code = run_command([word.format(out=campaign.folder) for word in verb])
    assert contents(outside) == before
    # The verb itself is refused; a tracker that is not usable costs only itself.
    printed = capfd.readouterr()
    assert files.LINK_REFUSED in printed.err + printed.out.replace("\n", " ")
    assert code == 1 or "--track" in verb
    assert link.is_symlink()


def test_a_campaign_that_is_itself_a_link_is_the_users_own_choice(campaign: CampaignPaths, tmp_path: Path) -> None:
    link = tmp_path / "mine"
    link.symlink_to(campaign.folder)
    assert run_command(["report", str(link)]) != 1
    assert campaign.summary_md.is_file()


@pytest.mark.parametrize("linked", ["seatrial", "seatrial/plans", "seatrial/.owner.lock"])
def test_a_translation_is_not_written_through_a_link(outside: Path, tmp_path: Path, linked: str) -> None:
    original = write_original_campaign(tmp_path / "bench", sweep_run(0, 128))
    link, target = original / linked, trap(outside)
    link.parent.mkdir(exist_ok=True)
    link.symlink_to(target / "steps.csv" if link.suffix else target)
    before = contents(outside)
    assert run_command(["report", str(original)]) == 1
    assert contents(outside) == before


def test_lines_are_not_appended_through_a_link(outside: Path, tmp_path: Path, fallback_folder: Path) -> None:
    link = tmp_path / "run_manifest.tsv"
    link.symlink_to(outside / "notes.txt")
    before = contents(outside)
    assert append_line_durably(link, "a line", sleep=lambda _: None), "kept in the fallback folder"
    assert contents(outside) == before


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


def test_watch_refuses_a_file_that_is_no_progress(campaign: CampaignPaths, outside: Path, capsys: pytest.CaptureFixture[str]) -> None:
    campaign.progress.symlink_to(outside / "config.json")
    assert run_command(["watch", str(campaign.folder), "--once"]) == 1
    said = capsys.readouterr()
    assert said.err.startswith("seatrial: ") and SECRET not in said.out + said.err


def test_a_claimed_owner_gets_a_file_and_never_a_signal(campaign: CampaignPaths, outside: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"]) as victim:
        (campaign.folder / ".owner.json").write_text(json.dumps({"pid": victim.pid, "host": "here", "token": "x", "since_t": 1.0}))
        before = contents(campaign.folder)
        run_command(["stop", str(campaign.folder)])
        assert victim.poll() is None
        victim.kill()
    assert set(contents(campaign.folder)) - set(before) <= {".stop.json", ".owner.lock"}


# Made up; no two alike, so that each can be found.
NAMED = {
    "HF_TOKEN": "hunter-token-01",
    "DB_PASSWORD": "hunter-word-02",
    "AWS_SECRET_ACCESS_KEY": "hunter-key-03",
    "SERVICE_CREDENTIALS": "hunter-cred-04",
    "WEBHOOK_KEY": "hunter-hook-05",
}
IN_ADDRESSES = {
    "TRACKING_URI": "postgresql://me:hunter-url-06@host/db",
    "HTTP_PROXY": "http://me:hunter-proxy-07@host:3128",
    "DATA_URL": "https://host/data?token=hunter-query-08&page=1",
}
SECRETS = [
    f"hunter-{word}" for word in ("token-01", "word-02", "key-03", "cred-04", "hook-05", "url-06", "proxy-07", "query-08", "option-09")
]
PRIVATE = {"agent.json", "command.sh"}


def spec(tmp_path: Path) -> RunSpec:
    (tmp_path / "train.py").write_text("")
    return make_spec(
        tmp_path,
        args=("--api-key", "hunter-option-09", "--url", IN_ADDRESSES["DATA_URL"]),
        env={**NAMED, **IN_ADDRESSES},
        axes={"bs": 8},
    )


@pytest.fixture
def open_umask() -> Iterator[None]:
    """Nothing is taken away by the user's own mask."""
    before = os.umask(0)
    yield
    os.umask(before)


def holders(folder: Path) -> set[str]:
    return {
        path.name
        for path in folder.rglob("*")
        if path.is_file() and any(secret in path.read_text(encoding="utf-8", errors="replace") for secret in SECRETS)
    }


def test_only_private_files_of_an_attempt_hold_secrets(tmp_path: Path, open_umask: None) -> None:
    attempt = attempt_in(tmp_path)
    caller = {"PATH": os.environ["PATH"], "NCCL_AUTH_TOKEN": "hunter-token-01", "HF_ENDPOINT": IN_ADDRESSES["DATA_URL"]}
    prepare_local(spec(tmp_path), attempt, allocation_for(spec(tmp_path)), caller)
    assert holders(attempt.folder) == PRIVATE
    for name in PRIVATE:
        assert stat.S_IMODE((attempt.folder / name).stat().st_mode) & 0o077 == 0, name
    assert "NCCL_AUTH_TOKEN" not in attempt.command.read_text()


def test_the_saved_plan_holds_none(tmp_path: Path) -> None:
    paths = CampaignPaths(tmp_path / "out")
    source = "seatrial sweep --env DB_PASSWORD=hunter-word-02 -- python train.py --api-key hunter-option-09"
    save_plan(CampaignPlan(name="p", output=str(paths.folder), source=source, runs=(spec(tmp_path),)), paths)
    assert holders(paths.folder) == set() and "***" in paths.plan.read_text()


def test_an_outcome_holds_none(tmp_path: Path) -> None:
    text = " ".join(SECRETS)
    ended = RunOutcome(
        run="mb8_r1", attempt=1, hash="h", outcome=Outcome.FAILED, cause=Cause.EXCEPTION, detail=text, log_tail=(text, f"at {text}")
    )
    addresses = {f"https://me:{secret}@host" for secret in SECRETS}
    assert not any(secret in str(mask_outcome(ended, spec(tmp_path), NAMED)) for secret in SECRETS[:5])
    masked = mask_outcome(RunOutcome(**{**vars(ended), "detail": " ".join(addresses), "log_tail": ()}), spec(tmp_path), {})
    assert not any(secret in masked.detail for secret in SECRETS)


@pytest.mark.parametrize(
    "axes", [{"env.HF_TOKEN": ["hunter-token-01", "hunter-token-02"]}, {"api_key": ["hunter-key-03"]}, {"password": ["hunter-word-02"]}]
)
def test_an_axis_with_a_secrets_name_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str], axes: dict[str, list[str]]) -> None:
    """Its values would be names of folders."""
    args = [f"{{{name}}}" for name in axes if not name.startswith("env.")]
    plan = {"name": "a", "workload": {"script": "train.py", "args": args}, "axes": axes}
    (tmp_path / "plan.yaml").write_text(yaml.safe_dump(plan))
    assert run_command(["plan", "show", str(tmp_path / "plan.yaml")]) == 1
    said = capsys.readouterr()
    assert "looks like a secret" in said.err
    assert "hunter" not in said.out + said.err


def test_the_plan_as_it_is_shown_holds_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text("")
    plan = {"name": "a", "workload": {"script": "train.py", "args": ["--api-key", "hunter-option-09"], "env": {**NAMED, **IN_ADDRESSES}}}
    (tmp_path / "plan.yaml").write_text(yaml.safe_dump(plan))
    assert run_command(["plan", "show", "plan.yaml"]) == 0
    said = capsys.readouterr().out
    assert "--api-key" in said
    assert [secret for secret in SECRETS if secret in said] == [], "the terminal is copied into messages"


def test_errors_in_a_plan_do_not_show_its_secrets(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for changes in ({"env": {"HF_TOKEN": ["hunter-token-01"]}}, {"env": {"DB_PASSWORD": True, "X": "hunter"}}, {"nmae": "hunter-word-02"}):
        (tmp_path / "plan.yaml").write_text(yaml.safe_dump({"name": "a", "workload": {"script": "t.py"}, **changes}))
        assert run_command(["plan", "show", str(tmp_path / "plan.yaml")]) == 1
        assert "hunter" not in capsys.readouterr().err


def test_the_barriers_secret_is_the_users_alone(tmp_path: Path, open_umask: None) -> None:
    barriers = [Barrier(tmp_path, rank=rank, world_size=2) for rank in (0, 1)]
    first = threading.Thread(target=barriers[0].join)
    first.start()
    wait_until((tmp_path / "barrier.json").exists, "rank 0 listens")
    assert stat.S_IMODE((tmp_path / "barrier.json").stat().st_mode) == 0o600
    barriers[1].join()
    first.join()
    for barrier in barriers:
        barrier.__exit__()


def test_a_workload_writes_nothing_for_all_to_change(tmp_path: Path, open_umask: None) -> None:
    """Whatever the user's mask: nobody else may write into what is read back."""
    assert run_ranks("dummy", tmp_path / "run", steps=2, step_ms=0).returncodes == [0]
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in (tmp_path / "run").iterdir() if path.is_file()}
    assert {name: mode & 0o022 for name, mode in modes.items()} == dict.fromkeys(modes, 0)
