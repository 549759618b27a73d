"""Files of an attempt before it starts: spec, settings, environment, order and command.sh."""

from __future__ import annotations

import json
import os
import signal
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from seatrial.collect.logs.diagnosis import diagnose
from seatrial.collect.original.runs import read_blocks
from seatrial.core.errors import LaunchError
from seatrial.core.files import read_json
from seatrial.core.paths import AttemptPaths
from seatrial.launch.launchers.commands import command_for
from seatrial.launch.prepare import command_script, masked_spec, prepare_local, resolve_program, write_log_header
from seatrial.records.attempt import Provenance
from seatrial.records.codec import from_json
from seatrial.records.columns import META_KEYS
from seatrial.records.launch import AgentOrder, Command
from seatrial.records.outcome import Cause
from seatrial.records.plan import RunSpec, SiteSpec
from tests.unit.launch.factory import allocation_for, attempt_in, make_spec
from tests.waiting import wait_until


def _mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_every_file_is_written_and_reads_back(tmp_path: Path) -> None:
    spec = make_spec(tmp_path, module="seatrial_workloads.dummy.train", settings={"steps": 5, "lr": 0.1}, term_s=3.0)
    attempt = attempt_in(tmp_path)
    order = prepare_local(spec, attempt, allocation_for(spec), {})
    assert from_json(RunSpec, read_json(attempt.spec)) == spec
    assert from_json(AgentOrder, read_json(attempt.agent_order)) == order
    assert read_json(attempt.settings) == {"steps": 5, "lr": 0.1}
    assert (order.attempt_folder, order.rank_logs, order.term_s) == (str(attempt.folder), None, 3.0)
    assert order.command.argv[0] == sys.executable
    assert not list(attempt.folder.glob(".*")), "nothing is left aside"


def test_users_script_has_no_settings_file(tmp_path: Path) -> None:
    spec, attempt = make_spec(tmp_path), attempt_in(tmp_path)
    prepare_local(spec, attempt, allocation_for(spec), {})
    assert not attempt.settings.exists()


def run_activated(tmp_path: Path, *lines: str) -> tuple[AttemptPaths, subprocess.CompletedProcess[str]]:
    """A script that shows its variables, started as the agent would, at a site with these lines."""
    (tmp_path / "train.py").write_text("import os\nprint(os.environ.get('FROM_SITE'), os.environ['PLANNED'], os.environ['RANK'])\n")
    site = SiteSpec(name="lab", source="site.yaml", activate=lines)
    spec, attempt = make_spec(tmp_path, ranks=2, env={"PLANNED": "by the plan"}, site=site), attempt_in(tmp_path)
    order = prepare_local(spec, attempt, allocation_for(spec), dict(os.environ))
    assert not any("planted" in argument for argument in order.command.argv), "whoever lists processes would read it"
    env = {**os.environ, **order.command.env, **order.command.ranks[1]}
    return attempt, subprocess.run(order.command.argv, env=env, cwd=tmp_path, capture_output=True, text=True, check=False)


def test_ranks_are_started_after_the_sites_lines_and_the_plan_counts_first(tmp_path: Path) -> None:
    attempt, done = run_activated(
        tmp_path, "if true; then", "export FROM_SITE=yes$NOT_SET", "fi", "export PLANNED=site RANK=7", "export HF_TOKEN=planted"
    )
    assert (done.stdout, done.returncode) == ("yes by the plan 1\n", 0), done.stderr
    assert _mode(attempt.activation) == 0o700 and "planted" not in attempt.environment.read_text()
    assert read_json(attempt.environment)["activated"][0] == "if true; then"
    checked = subprocess.run(["shellcheck", str(attempt.activation)], capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stdout


@pytest.mark.parametrize(("line", "code"), [("source /nowhere/bin/activate", 1), ("exit 7", 7), ("exit 0", 1), ("false | true", 1)])
def test_a_line_of_the_site_that_fails_starts_no_rank_and_is_named(tmp_path: Path, line: str, code: int) -> None:
    _, done = run_activated(tmp_path, "export FROM_SITE=yes", line)
    assert (done.stdout, done.returncode) == ("", code)
    said = done.stderr.splitlines()
    assert said[-1].startswith("seatrial: item 2 of activate in site.yaml failed with exit code")
    found = diagnose(done.returncode, said)
    assert (found.signature, found.cause) == (
        "activate_failed",
        Cause.PROGRAM_MISSING,
    ) and "item 2 of activate in site.yaml" in found.detail


@pytest.mark.parametrize(
    ("caller", "devices", "shown", "replaced"),
    [({}, ("0", "1"), "0,1", None), ({}, (), "0,1", None), ({"CUDA_VISIBLE_DEVICES": "4,5,6"}, (), "4,5", "4,5,6")],
)
def test_what_deepspeed_shows_its_ranks_is_recorded(
    caller: dict[str, str], devices: tuple[str, ...], shown: str, replaced: str | None, tmp_path: Path
) -> None:
    spec, attempt = make_spec(tmp_path, kind="deepspeed", ranks=2, devices=devices), attempt_in(tmp_path)
    order = prepare_local(spec, attempt, allocation_for(spec), caller)
    recorded = {variable["name"]: variable for variable in read_json(attempt.environment)["variables"]}
    assert recorded["CUDA_VISIBLE_DEVICES"] == {
        "name": "CUDA_VISIBLE_DEVICES",
        "value": shown,
        "set_by": "launcher",
        "replaced": replaced,
    }
    assert "CUDA_VISIBLE_DEVICES" not in order.command.env
    assert order.rank_logs == str(attempt.rank_logs)


def test_secrets_in_arguments_are_masked_in_what_the_team_reads(tmp_path: Path) -> None:
    spec = make_spec(
        tmp_path,
        kind="command",
        program=("env", "HF_TOKEN=hunter1", "python"),
        launcher_args=("--api-key=hunter2", "-u"),
        args=("--hf_token", "hunter3", "--bs", "8", "--url", "http://me:hunter4@host"),
    )
    attempt = attempt_in(tmp_path)
    prepare_local(spec, attempt, allocation_for(spec), {})
    assert "hunter" not in attempt.spec.read_text()
    assert attempt.command.read_text().count("hunter") == 4
    shown = masked_spec(spec)
    assert shown.launcher.program == ("env", "HF_TOKEN=***", "python")
    assert shown.launcher.args == ("--api-key=***", "-u")
    assert shown.workload.args == ("--hf_token", "***", "--bs", "8", "--url", "http://me:***@host")


STAGE1 = {"speech_model": "data/w2v", "text_model": "data/bert", "attn_impl": "auto", "speech_attn_impl": "sdpa", "fixed_slice_s": None}


def test_the_log_of_a_stage_1_run_begins_with_what_was_started_and_no_secret(tmp_path: Path) -> None:
    url = "http://me:hunter2@host/data"
    spec = make_spec(
        tmp_path,
        kind="deepspeed",
        ranks=2,
        args=(f"++dataset.root_dir={url}",),
        settings={**STAGE1, "torch_compile": False, "torch_compile_mode": url, "tf32": True, "length_buckets": False},
        axes={"zero_stage": 1, "micro_batch": 8},
    )
    attempt, allocation = attempt_in(tmp_path), allocation_for(spec)
    order = prepare_local(spec, attempt, allocation, {})
    write_log_header(spec, attempt, allocation, order, Provenance(gpu_name="A\nB", git_commit_hash="0123456789abcdef"))
    (block,) = read_blocks(attempt.launcher_log.read_text().splitlines())
    keys = [line.partition("=")[0] for line in block.head[1:-2]]
    assert keys == list(META_KEYS) and len(keys) == 49
    assert block.output == () and block.command[-1] == "++dataset.root_dir=http://me:***@host/data"
    wanted = {"zero_stage": "1", "world_size": "2", "global_batch": "16", "gpu_name": "A B", "git_commit_short": "0123456789ab"}
    wanted |= {"speech_attn_impl_req": "sdpa", "text_attn_impl_req": "auto", "enable_length_fixed_slice": "false"}
    wanted |= {"tf32_enabled": "true (requested)", "torch_compile_enabled": "false", "attn_impl_req": "auto"}
    assert {name: block.meta[name] for name in wanted} == wanted
    assert "precision_mode_effective" not in block.meta and "hunter2" not in attempt.launcher_log.read_text()


@pytest.mark.parametrize(
    ("speech", "text", "common"), [("flash_attention_2", "flash_attention_2", "flash_attention_2"), ("sdpa", "eager", "split")]
)
def test_attention_that_was_requested_of_each_tower_is_in_the_head(tmp_path: Path, speech: str, text: str, common: str) -> None:
    """As the driver passes ATTN_IMPL."""
    towers = {"speech_model": "w", "text_model": "b", "speech_attn_impl": speech, "text_attn_impl": text}
    spec = make_spec(tmp_path, kind="deepspeed", ranks=1, settings=towers, axes={"zero_stage": 0})
    attempt, allocation = attempt_in(tmp_path), allocation_for(spec)
    write_log_header(spec, attempt, allocation, prepare_local(spec, attempt, allocation, {}), Provenance())
    (block,) = read_blocks(attempt.launcher_log.read_text().splitlines())
    assert [block.meta[f"{name}attn_impl_req"] for name in ("", "speech_", "text_")] == [common, speech, text]


def test_other_runs_have_no_head_in_their_log(tmp_path: Path) -> None:
    spec, attempt = make_spec(tmp_path, settings={"micro_batch": 8}), attempt_in(tmp_path)
    write_log_header(spec, attempt, allocation_for(spec), prepare_local(spec, attempt, allocation_for(spec), {}), Provenance())
    assert not attempt.launcher_log.exists()


def test_secret_setting_of_a_bundled_workload_is_for_its_owner_alone(tmp_path: Path) -> None:
    settings = {"hub_token": "hunter1", "url": "http://me:hunter2@host", "pad_token": "<pad>", "steps": 5}
    axes = {"store": "s3://me:hunter3@host", "api_key": "hunter4", "micro_batch": 8}
    spec = make_spec(tmp_path, module="seatrial_workloads.dummy.train", settings=settings, axes=axes)
    attempt = attempt_in(tmp_path)
    prepare_local(spec, attempt, allocation_for(spec), {})
    assert read_json(attempt.settings) == settings and _mode(attempt.settings) == 0o600
    assert (_mode(attempt.command), _mode(attempt.agent_order)) == (0o700, 0o600)
    assert masked_spec(spec).axes == {"store": "s3://me:***@host", "api_key": "***", "micro_batch": 8}
    assert masked_spec(spec).settings == {"hub_token": "***", "url": "http://me:***@host", "pad_token": "<pad>", "steps": 5}
    assert "hunter" not in attempt.spec.read_text()


def test_environment_records_who_set_what(tmp_path: Path) -> None:
    spec = make_spec(tmp_path, ranks=2, env={"NCCL_DEBUG": "WARN"})
    attempt = attempt_in(tmp_path)
    prepare_local(spec, attempt, allocation_for(spec), {"NCCL_DEBUG": "INFO", "MASTER_PORT": "1"})
    written = {entry["name"]: entry for entry in json.loads(attempt.environment.read_text())["variables"]}
    assert written["NCCL_DEBUG"] == {"name": "NCCL_DEBUG", "value": "WARN", "set_by": "plan", "replaced": "INFO"}
    assert written["MASTER_PORT"] == {"name": "MASTER_PORT", "value": "29650", "set_by": "launcher", "replaced": "1"}
    assert written["WORLD_SIZE"]["set_by"] == "launcher"
    assert "RANK" not in written


def test_missing_program_leaves_no_attempt_behind(tmp_path: Path) -> None:
    spec, attempt = make_spec(tmp_path, kind="command", program=("no-such-program",)), attempt_in(tmp_path)
    with pytest.raises(LaunchError, match="no-such-program"):
        prepare_local(spec, attempt, allocation_for(spec), {})
    assert not attempt.folder.exists()


ATTEMPT = AttemptPaths(Path("/out/mb8_r1/attempt-1"))
WRITES_A_FILE = """\
import os, pathlib, sys
folder = pathlib.Path(os.environ["SEATRIAL_RUN_DIR"])
rank = os.environ.get("RANK", "0")
(folder / f"events_rank{rank}.jsonl").write_text(os.environ["EXTRA"] + " " + " ".join(sys.argv[1:]))
"""

ONE_PROCESS = """\
#!/usr/bin/env bash
# mb8_r1, attempt 1, as the harness started it. Its output goes to by-hand/ beside this file.
set -euo pipefail
mkdir -p /out/mb8_r1/attempt-1/by-hand
cd '/my code'
export EXTRA='two words'
export PYTHONFAULTHANDLER=1
export PYTHONUNBUFFERED=1
export SEATRIAL_ATTEMPT=1
export SEATRIAL_ETA_MIN_SAMPLES=10
export SEATRIAL_ETA_MODE=rank0
export SEATRIAL_PHASE_EVERY=10
export SEATRIAL_RANK_SCOPE=all
export SEATRIAL_RUN=mb8_r1
export SEATRIAL_RUN_DIR=/out/mb8_r1/attempt-1/by-hand
export SEATRIAL_STACK_SIGNAL=USR2
export SEATRIAL_SYNC_TIMING=0
export SEATRIAL_TIMING_WINDOW=100
echo 'each rank writes its output below /out/mb8_r1/attempt-1/by-hand/ranks' >&2
exec torchrun --nnodes 1 --nproc-per-node 1 --master-addr 127.0.0.1 --master-port 29650 \
--log-dir /out/mb8_r1/attempt-1/by-hand/ranks --redirects 3 train.py --name 'it'"'"'s $HOME'
"""

TWO_RANKS = """\
#!/usr/bin/env bash
# mb8_r1, attempt 1, as the harness started it. Its output goes to by-hand/ beside this file.
set -euo pipefail
mkdir -p /out/mb8_r1/attempt-1/by-hand
cd /w
export A=1
pids=()
stop() {
  trap - TERM INT
  kill -TERM "${pids[@]}" 2>/dev/null || true
  wait || true
  exit "$1"
}
trap 'stop 143' TERM
trap 'stop 130' INT
env RANK=0 python train.py &
pids+=($!)
env RANK=1 python train.py &
pids+=($!)
for _ in "${pids[@]}"; do wait -n || stop "$?"; done
"""


def test_one_process_whole_text() -> None:
    spec = make_spec("/my code", kind="torchrun", program=("torchrun",), args=("--name", "it's $HOME"), env={"EXTRA": "two words"})
    assert command_script(command_for(spec, allocation_for(spec), ATTEMPT), ATTEMPT) == ONE_PROCESS


def test_two_ranks_whole_text() -> None:
    command = Command(argv=("python", "train.py"), env={"A": "1"}, cwd="/w", ranks=({"RANK": "0"}, {"RANK": "1"}))
    assert command_script(command, ATTEMPT) == TWO_RANKS


def test_what_the_caller_had_set_is_a_default_in_it(tmp_path: Path) -> None:
    command = Command(argv=("printenv", "NCCL_ALGO"), env={}, cwd=str(tmp_path))
    attempt = AttemptPaths(tmp_path / "attempt-1")
    script = tmp_path / "command.sh"
    script.write_text(command_script(command, attempt, {"NCCL_ALGO": "Tree of 'two'"}))
    bare = {"PATH": os.environ["PATH"]}
    assert subprocess.run(["bash", script], env=bare, capture_output=True, text=True, check=True).stdout == "Tree of 'two'\n"
    assert (
        subprocess.run(["bash", script], env={**bare, "NCCL_ALGO": "Ring"}, capture_output=True, text=True, check=True).stdout == "Ring\n"
    )


def _prepared(tmp_path: Path, text: str, ranks: int) -> AttemptPaths:
    (tmp_path / "train.py").write_text(text)
    spec = make_spec(tmp_path, ranks=ranks, args=("a b",), env={"EXTRA": "it's"})
    attempt = attempt_in(tmp_path)
    prepare_local(spec, attempt, allocation_for(spec), os.environ)
    return attempt


def test_by_hand_writes_the_same_files_and_leaves_the_record_alone(tmp_path: Path) -> None:
    attempt = _prepared(tmp_path, WRITES_A_FILE, ranks=2)
    subprocess.run(["bash", str(attempt.command)], check=True, timeout=60)
    by_hand = AttemptPaths(attempt.folder / "by-hand")
    assert [path.read_text() for path in by_hand.all_events()] == ["it's a b", "it's a b"]
    assert attempt.all_events() == []


def test_by_hand_the_exit_code_passes_and_one_failed_rank_ends_the_others(tmp_path: Path) -> None:
    text = "import os, sys, time\nif os.environ['RANK'] == '1': sys.exit(7)\ntime.sleep(600)\n"
    attempt = _prepared(tmp_path, text, ranks=2)
    assert subprocess.run([str(attempt.command)], timeout=60).returncode == 7


def test_by_hand_interrupt_ends_every_rank(tmp_path: Path) -> None:
    text = "import os, pathlib, time\npathlib.Path('up' + os.environ['RANK']).touch()\ntime.sleep(600)\n"
    attempt = _prepared(tmp_path, text, ranks=2)
    # Tests that run in the background have INT ignored, and a shell that is started so can never catch it.
    command = ["env", "--default-signal=INT", "bash", str(attempt.command)]
    script = subprocess.Popen(command, stdout=subprocess.PIPE, start_new_session=True)
    wait_until(lambda: (tmp_path / "up0").exists() and (tmp_path / "up1").exists(), "both ranks are up")
    script.send_signal(signal.SIGINT)
    # The pipe is at its end only when every rank that held it is gone.
    script.communicate(timeout=60)
    assert script.returncode == 130


def _program_of(name: str, cwd: Path, search_path: str, env: dict[str, str] | None = None) -> str:
    command = Command(argv=(name, "x"), env=env or {}, cwd=str(cwd))
    return resolve_program(command, {"PATH": search_path}).argv[0]


def _program(path: Path, mode: int = 0o755) -> Path:
    path.write_text("#!/bin/sh\n")
    path.chmod(mode)
    return path


def test_a_name_on_path_becomes_its_path(tmp_path: Path) -> None:
    starter = _program(tmp_path / "starter")
    assert _program_of("starter", Path("/"), str(tmp_path)) == str(starter)
    assert _program_of("starter", Path("/"), "", {"PATH": str(tmp_path)}) == str(starter)


def test_relative_path_counts_from_the_runs_folder(tmp_path: Path) -> None:
    _program(tmp_path / "run.sh")
    assert _program_of("./run.sh", tmp_path, "") == "./run.sh"


@pytest.mark.parametrize(
    ("name", "advice"),
    [
        ("no-such-program", "install it, or activate the environment it is in"),
        ("./missing.sh", "does not exist"),
        ("./plain.sh", "chmod"),
        ("plain.sh", "type './plain.sh'"),
    ],
)
def test_a_program_that_cannot_be_started_is_refused_with_advice(tmp_path: Path, name: str, advice: str) -> None:
    _program(tmp_path / "plain.sh", mode=0o644)
    with pytest.raises(LaunchError, match=advice) as caught:
        _program_of(name, tmp_path, "/nowhere")
    assert f"'{name}'" in str(caught.value)
