"""Telemetry sampled by the agent."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from seatrial.core.files import read_json, write_private_json
from seatrial.core.paths import AttemptPaths
from seatrial.records.codec import from_json, to_json
from seatrial.records.launch import AgentOrder, Command
from seatrial.records.plan import TelemetrySpec
from seatrial.records.telemetry import GPU_COLUMNS, HOST_COLUMNS, SamplerAccount, TelemetryAccount
from tests.csv_files import rows_of
from tests.stubs.nvml import environment, needs_compiler

# The run itself changes what the driver answers, so that each change falls between samples of its own.
WAITS_FOR_ROWS = """
import sys, time
from pathlib import Path
from tests.stubs.answers import answer
answers, table = Path(sys.argv[1]), Path("gpu_telemetry.csv")
def wait(rows):
    limit = time.monotonic() + 60
    while count_rows() < rows and time.monotonic() < limit:
        time.sleep(0.01)
def count_rows():
    return max(0, table.read_text().count("\\n") - 1) if table.exists() else 0
def wait_until_silent(intervals=20):
    # Until no row came for so long that several samples must have been lost.
    limit = time.monotonic() + 60
    before, since = count_rows(), time.monotonic()
    while time.monotonic() - since < intervals * 0.05 and time.monotonic() < limit:
        time.sleep(0.01)
        if count_rows() != before:
            before, since = count_rows(), time.monotonic()
"""
OFTEN = TelemetrySpec(gpu_s=0.05, host_s=0.05)


def _run(
    folder: Path, text: str, *arguments: str, telemetry: TelemetrySpec = OFTEN, env: dict[str, str] | None = None
) -> list[dict[str, Any]]:
    """The agent's reports."""
    command = Command(argv=(sys.executable, "-c", text, *arguments), env={"PYTHONPATH": str(Path.cwd())}, cwd=str(folder))
    write_private_json(folder / "agent.json", to_json(AgentOrder(command=command, attempt_folder=str(folder), telemetry=telemetry)))
    argv = [sys.executable, "-m", "seatrial.agent", str(folder / "agent.json")]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=env) as agent:
        assert agent.stdout is not None
        reports = [json.loads(line) for line in agent.stdout]
        agent.wait(timeout=60)
    assert agent.returncode == 0
    assert [report["kind"] for report in reports] == ["started", "exited", "gone"]
    return reports


def _account(folder: Path) -> TelemetryAccount:
    return from_json(TelemetryAccount, read_json(AttemptPaths(folder).telemetry))


def _gpu(folder: Path) -> SamplerAccount:
    account = _account(folder).gpu
    assert account is not None
    return account


@needs_compiler
def test_every_column_of_both_files(tmp_path: Path, answers: Path) -> None:
    _run(tmp_path, f"{WAITS_FOR_ROWS}\nwait(8)", str(answers), env=environment(answers))
    gpu, host = rows_of(tmp_path / "gpu_telemetry.csv"), rows_of(tmp_path / "host_telemetry.csv")
    assert tuple(gpu[0]) == GPU_COLUMNS and tuple(host[0]) == HOST_COLUMNS
    assert gpu[0]["gpu_name"] == "Stub  80 GiB" and gpu[0]["foreign_process_count"] == "0"
    assert host[0]["cpu_user_pct"] == "" and any(row["cpu_user_pct"] for row in host)
    account = _account(tmp_path)
    assert account.gpu is not None and account.host is not None
    assert (account.gpu.rows, account.gpu.missing, account.gpu.empty) == (len(gpu), (), False)
    assert account.host.rows == len(host) and account.host.cpu_s > 0
    busiest = max(host, key=lambda row: int(row["train_proc_count"]))
    assert busiest["train_proc_count"] == "1" and int(busiest["rss_kib"]) > 1000


@needs_compiler
def test_a_driver_that_hangs_costs_gpu_rows_only(tmp_path: Path, answers: Path) -> None:
    script = f"{WAITS_FOR_ROWS}\nwait(2); answer(answers, ('hang', 1)); wait_until_silent()"
    reports = _run(tmp_path, script, str(answers), env=environment(answers))
    assert reports[1]["returncode"] == 0
    account = _account(tmp_path)
    assert account.gpu is not None and account.host is not None
    assert account.gpu.stopped_t is not None and account.gpu.rows == len(rows_of(tmp_path / "gpu_telemetry.csv")) >= 2
    assert f", {account.gpu.rows} rows before" in account.gpu.note
    assert account.host.stopped_t is None and account.host.rows > account.gpu.rows


BREAKS = """
import sys
from seatrial.agent import __main__, supervise
from seatrial.machine.run_telemetry import Telemetry
def broken(self, *_):
    raise RuntimeError("dictionary changed size during iteration")
{what} = broken
raise SystemExit(__main__.main(sys.argv))
"""


def _run_failing(folder: Path, what: str, script: str, env: dict[str, str]) -> tuple[int, list[str], str]:
    """Exit code, kinds of reports and standard error of an agent in which `what` fails."""
    command = Command(argv=(sys.executable, "-c", script), env={"PYTHONPATH": str(Path.cwd())}, cwd=str(folder))
    write_private_json(folder / "agent.json", to_json(AgentOrder(command=command, attempt_folder=str(folder), telemetry=OFTEN)))
    argv = [sys.executable, "-c", BREAKS.format(what=what), str(folder / "agent.json")]
    # The pipe stays open: its end would mean that the harness is gone.
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=env) as agent:
        assert agent.stdout is not None and agent.stderr is not None
        kinds = [json.loads(line)["kind"] for line in agent.stdout]
        errors = agent.stderr.read()
        agent.wait(timeout=60)
    return agent.returncode, kinds, errors


@pytest.mark.parametrize("what", ["Telemetry.finish", "Telemetry.__init__"])
def test_failing_telemetry_costs_no_report(tmp_path: Path, what: str) -> None:
    code, kinds, errors = _run_failing(tmp_path, what, "pass", dict(os.environ))
    assert (code, kinds) == (0, ["started", "exited", "gone"])
    assert "RuntimeError: dictionary changed size during iteration" in errors


@needs_compiler
def test_an_agent_that_fails_while_the_driver_hangs_still_ends(tmp_path: Path, answers: Path) -> None:
    script = f"{WAITS_FOR_ROWS.replace('sys.argv[1]', repr(str(answers)))}\nwait(2); answer(answers, ('hang', 1)); wait_until_silent()"
    code, kinds, errors = _run_failing(tmp_path, "supervise.Supervisor._launcher_over", script, environment(answers))
    assert (code, kinds) == (1, ["started"])
    assert errors.rstrip().endswith("RuntimeError: dictionary changed size during iteration")


def test_without_a_gpu_there_is_no_file(tmp_path: Path) -> None:
    env = {name: value for name, value in os.environ.items() if name != "LD_LIBRARY_PATH"}
    _run(tmp_path, "import time; time.sleep(0.3)", env={**env, "CUDA_VISIBLE_DEVICES": ""})
    assert not (tmp_path / "gpu_telemetry.csv").exists()
    account = _gpu(tmp_path)
    assert (account.rows, account.empty, account.expected, account.note) == (0, True, True, "no GPU")


def test_a_command_that_cannot_be_started_has_no_telemetry(tmp_path: Path) -> None:
    command = Command(argv=("/no/such/program",), env={}, cwd=str(tmp_path))
    write_private_json(tmp_path / "agent.json", to_json(AgentOrder(command=command, attempt_folder=str(tmp_path))))
    argv = [sys.executable, "-m", "seatrial.agent", str(tmp_path / "agent.json")]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as agent:
        assert agent.stdout is not None
        assert [json.loads(line)["kind"] for line in agent.stdout] == ["exited", "gone"]
    assert not (tmp_path / "telemetry.json").exists()
