from __future__ import annotations

import json
import stat
import sys
from pathlib import Path

import pytest

from seatrial.errors import LaunchError
from seatrial.files import read_json
from seatrial.launch.prepare import masked_spec, prepare
from seatrial.records.codec import from_json
from seatrial.records.command import AgentOrder
from seatrial.records.run_spec import RunSpec
from tests.unit.launch.factory import allocation_for, attempt_in, make_spec


def _mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_every_file_is_written_and_reads_back(tmp_path: Path) -> None:
    spec = make_spec(tmp_path, module="seatrial_workloads.dummy.train", settings={"steps": 5, "lr": 0.1}, term_s=3.0)
    attempt = attempt_in(tmp_path)
    order = prepare(spec, attempt, allocation_for(spec), {})
    assert from_json(RunSpec, read_json(attempt.spec)) == spec
    assert from_json(AgentOrder, read_json(attempt.agent_order)) == order
    assert read_json(attempt.settings) == {"steps": 5, "lr": 0.1}
    assert (order.attempt_folder, order.rank_logs, order.term_s) == (str(attempt.folder), None, 3.0)
    assert order.command.argv[0] == sys.executable
    assert not list(attempt.folder.glob(".*")), "nothing is left aside"


def test_users_script_has_no_settings_file(tmp_path: Path) -> None:
    spec, attempt = make_spec(tmp_path), attempt_in(tmp_path)
    prepare(spec, attempt, allocation_for(spec), {})
    assert not attempt.settings.exists()


def test_torchrun_order_names_the_rank_logs(tmp_path: Path) -> None:
    spec, attempt = make_spec(tmp_path, kind="torchrun", ranks=2), attempt_in(tmp_path)
    assert prepare(spec, attempt, allocation_for(spec), {}).rank_logs == str(attempt.rank_logs)


@pytest.mark.parametrize(
    ("caller", "devices", "shown", "replaced"),
    [({}, ("0", "1"), "0,1", None), ({}, (), "0,1", None), ({"CUDA_VISIBLE_DEVICES": "4,5,6"}, (), "4,5", "4,5,6")],
)
def test_what_deepspeed_shows_its_ranks_is_recorded(
    caller: dict[str, str], devices: tuple[str, ...], shown: str, replaced: str | None, tmp_path: Path
) -> None:
    spec, attempt = make_spec(tmp_path, kind="deepspeed", ranks=2, devices=devices), attempt_in(tmp_path)
    order = prepare(spec, attempt, allocation_for(spec), caller)
    recorded = {variable["name"]: variable for variable in read_json(attempt.environment)["variables"]}
    assert recorded["CUDA_VISIBLE_DEVICES"] == {
        "name": "CUDA_VISIBLE_DEVICES",
        "value": shown,
        "set_by": "launcher",
        "replaced": replaced,
    }
    assert "CUDA_VISIBLE_DEVICES" not in order.command.env
    assert order.rank_logs == str(attempt.rank_logs)


def test_secrets_are_where_they_must_be_and_nowhere_else(tmp_path: Path) -> None:
    spec = make_spec(tmp_path, env={"HF_TOKEN": "hf_plan_secret_0001"})
    attempt = attempt_in(tmp_path)
    prepare(spec, attempt, allocation_for(spec), {"HF_TOKEN": "hf_caller_secret_0002", "HF_HUB_KEY": "hunter2"})
    for path in (attempt.spec, attempt.environment):
        assert not any(secret in path.read_text() for secret in ("_secret_000", "hunter2")), path.name
    assert "hf_plan_secret_0001" in attempt.command.read_text()
    assert (_mode(attempt.command), _mode(attempt.agent_order)) == (0o700, 0o600)
    assert "hf_caller_secret_0002" not in attempt.command.read_text() + attempt.agent_order.read_text()


def test_secrets_among_the_words_are_masked_in_what_the_team_reads(tmp_path: Path) -> None:
    spec = make_spec(
        tmp_path,
        kind="command",
        program=("env", "HF_TOKEN=hunter1", "python"),
        launcher_args=("--api-key=hunter2", "-u"),
        args=("--hf_token", "hunter3", "--bs", "8", "--url", "http://me:hunter4@host"),
    )
    attempt = attempt_in(tmp_path)
    prepare(spec, attempt, allocation_for(spec), {})
    assert "hunter" not in attempt.spec.read_text()
    assert attempt.command.read_text().count("hunter") == 4
    shown = masked_spec(spec)
    assert shown.launcher.program == ("env", "HF_TOKEN=***", "python")
    assert shown.launcher.args == ("--api-key=***", "-u")
    assert shown.workload.args == ("--hf_token", "***", "--bs", "8", "--url", "http://me:***@host")


def test_secret_setting_of_a_bundled_workload_is_for_its_owner_alone(tmp_path: Path) -> None:
    settings = {"hub_token": "hunter1", "url": "http://me:hunter2@host", "pad_token": "<pad>", "steps": 5}
    spec = make_spec(tmp_path, module="seatrial_workloads.dummy.train", settings=settings)
    attempt = attempt_in(tmp_path)
    prepare(spec, attempt, allocation_for(spec), {})
    assert read_json(attempt.settings) == settings and _mode(attempt.settings) == 0o600
    assert masked_spec(spec).settings == {"hub_token": "***", "url": "http://me:***@host", "pad_token": "<pad>", "steps": 5}
    assert "hunter" not in attempt.spec.read_text()


def test_secrets_among_the_axes_are_masked_in_what_the_team_reads(tmp_path: Path) -> None:
    spec = make_spec(tmp_path, axes={"store": "s3://me:hunter1@host", "api_key": "hunter2", "micro_batch": 8, "compile": True})
    attempt = attempt_in(tmp_path)
    prepare(spec, attempt, allocation_for(spec), {})
    assert masked_spec(spec).axes == {"store": "s3://me:***@host", "api_key": "***", "micro_batch": 8, "compile": True}
    assert "hunter" not in attempt.spec.read_text()


def test_environment_says_who_set_what(tmp_path: Path) -> None:
    spec = make_spec(tmp_path, ranks=2, env={"NCCL_DEBUG": "WARN"})
    attempt = attempt_in(tmp_path)
    prepare(spec, attempt, allocation_for(spec), {"NCCL_DEBUG": "INFO", "MASTER_PORT": "1"})
    written = {entry["name"]: entry for entry in json.loads(attempt.environment.read_text())["variables"]}
    assert written["NCCL_DEBUG"] == {"name": "NCCL_DEBUG", "value": "WARN", "set_by": "plan", "replaced": "INFO"}
    assert written["MASTER_PORT"] == {"name": "MASTER_PORT", "value": "29650", "set_by": "launcher", "replaced": "1"}
    assert written["WORLD_SIZE"]["set_by"] == "launcher"
    assert "RANK" not in written


def test_missing_program_leaves_no_attempt_behind(tmp_path: Path) -> None:
    spec, attempt = make_spec(tmp_path, kind="command", program=("no-such-program",)), attempt_in(tmp_path)
    with pytest.raises(LaunchError, match="no-such-program"):
        prepare(spec, attempt, allocation_for(spec), {})
    assert not attempt.folder.exists()
