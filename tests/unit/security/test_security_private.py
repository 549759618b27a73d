"""Secrets where none of the other tests look, and the modes of files that must hold them."""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from seatrial.campaign.masking import masked_outcome
from seatrial.campaign.save_plan import save_plan
from seatrial.cli.main import run_command
from seatrial.launch.prepare import prepare
from seatrial.paths import CampaignPaths
from seatrial.records.campaign_plan import CampaignPlan
from seatrial.records.outcome import Cause, Outcome, RunOutcome
from seatrial.records.run_spec import RunSpec
from seatrial_workloads.dummy.barrier import Barrier
from tests.unit.launch.factory import allocation_for, attempt_in, make_spec
from tests.workloads.ranks import run_ranks

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
    prepare(spec(tmp_path), attempt, allocation_for(spec(tmp_path)), caller)
    assert holders(attempt.folder) == PRIVATE
    for name in PRIVATE:
        assert stat.S_IMODE((attempt.folder / name).stat().st_mode) & 0o077 == 0, name
    assert "NCCL_AUTH_TOKEN" not in attempt.command.read_text()


def test_the_kept_plan_holds_none(tmp_path: Path) -> None:
    out = tmp_path / "out"
    paths = CampaignPaths(out)
    source = "seatrial sweep --env DB_PASSWORD=hunter-word-02 -- python train.py --api-key hunter-option-09"
    save_plan(CampaignPlan(name="p", output=str(out), source=source, runs=(spec(tmp_path),)), paths)
    assert holders(out) == set()
    assert "***" in paths.plan.read_text()


def test_where_a_rank_stood_and_what_it_said_hold_none(tmp_path: Path) -> None:
    told = " ".join(SECRETS)
    ended = RunOutcome(
        run="mb8_r1", attempt=1, hash="h", outcome=Outcome.FAILED, cause=Cause.EXCEPTION, detail=told, log_tail=(told, f"at {told}")
    )
    addresses = {f"https://me:{secret}@host" for secret in SECRETS}
    assert not any(secret in str(masked_outcome(ended, spec(tmp_path), NAMED)) for secret in SECRETS[:5])
    masked = masked_outcome(RunOutcome(**{**vars(ended), "detail": " ".join(addresses), "log_tail": ()}), spec(tmp_path), {})
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


def test_problems_of_a_plan_are_told_without_its_secrets(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for changes in ({"env": {"HF_TOKEN": ["hunter-token-01"]}}, {"env": {"DB_PASSWORD": True, "X": "hunter"}}, {"nmae": "hunter-word-02"}):
        (tmp_path / "plan.yaml").write_text(yaml.safe_dump({"name": "a", "workload": {"script": "t.py"}, **changes}))
        assert run_command(["plan", "show", str(tmp_path / "plan.yaml")]) == 1
        assert "hunter" not in capsys.readouterr().err


def test_the_barriers_secret_is_the_users_alone(tmp_path: Path, open_umask: None) -> None:
    barrier = Barrier(tmp_path, rank=0, world_size=2)
    barrier._publish("127.0.0.1", 4242, b"s" * 16)
    assert stat.S_IMODE((tmp_path / "barrier.json").stat().st_mode) == 0o600
    assert json.loads((tmp_path / "barrier.json").read_text())["port"] == 4242


def test_a_workload_writes_nothing_for_all_to_change(tmp_path: Path, open_umask: None) -> None:
    """Whatever the user's mask: nobody else may write into what is read back."""
    assert run_ranks("dummy", tmp_path / "run", steps=2, step_ms=0).returncodes == [0]
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in (tmp_path / "run").iterdir() if path.is_file()}
    assert {name: mode & 0o022 for name, mode in modes.items()} == dict.fromkeys(modes, 0)
