"""Supervising one attempt: orders from the harness, exit codes, OOM kills, and errors of the agent itself."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest

from seatrial.agent import supervise as module
from seatrial.agent.__main__ import main
from seatrial.agent.supervise import GIVE_UP_S, Supervisor, run_order
from seatrial.core.control_connection.protocol import LEASE_S
from seatrial.core.files import write_private_json
from seatrial.launch.transports import AGENT_EXIT_TIMEOUT_S
from seatrial.records.codec import to_json
from seatrial.records.launch import AgentOrder, AgentReport, Command
from tests.unit.agent.running import FakeHarness, attempt_of, order_for, run_in_child
from tests.waiting import wait_until


@pytest.mark.parametrize("arguments", [(), ("/no/such/agent.json",)])
def test_wrong_arguments_are_refused_with_the_right_ones(arguments: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["seatrial.agent", *arguments]) == 1
    assert capsys.readouterr().err.startswith("seatrial.agent: expected PATH/agent.json, ")


def _order(folder: Path, *scripts: str) -> AgentOrder:
    """One process for each text of a shell."""
    order = order_for(folder, "", ranks=len(scripts))
    overlays = tuple({"RANK": str(rank), "TEXT": text} for rank, text in enumerate(scripts))
    return replace(order, command=replace(order.command, argv=("sh", "-c", 'eval "$TEXT"'), ranks=overlays))


def _reports(order: AgentOrder, *commands: str, ended: str = "") -> list[AgentReport]:
    def act() -> Any:
        harness = FakeHarness(*commands, ended=ended)
        Supervisor(order, os.environ, harness=harness).run()
        return [vars(report) for report in harness.sent]

    return [AgentReport(**report) for report in run_in_child(act)]


def test_a_run_that_ends_well(tmp_path: Path) -> None:
    order = _order(tmp_path, "echo one", "echo two")
    started, also, exited, gone = _reports(order)
    assert [report.kind for report in (started, also, exited, gone)] == ["started", "started", "exited", "gone"]
    assert started.pid and also.pid and started.pid != also.pid
    assert exited.returncode == 0 and gone.killed == 0 and gone.detail == ""
    assert sorted(attempt_of(order).launcher_log.read_text().splitlines()) == ["[rank0]: one", "[rank1]: two"]


@pytest.mark.parametrize(("first", "second", "code"), [("exit 3", "exit 3", 3), ("exit 1", "kill -9 $$", -9), ("true", "exit 1", 1)])
def test_the_most_informative_exit_code_is_the_runs(tmp_path: Path, first: str, second: str, code: int) -> None:
    exited = next(report for report in _reports(_order(tmp_path, first, second)) if report.kind == "exited")
    assert exited.returncode == code


@pytest.mark.parametrize(("commands", "ended"), [(("kill",), ""), ((), "the harness ended")])
def test_kill_or_a_lost_harness_kills_everything(tmp_path: Path, commands: tuple[str, ...], ended: str) -> None:
    reports = _reports(_order(tmp_path, "trap '' TERM; sleep 600"), *commands, ended=ended)
    assert [report.kind for report in reports] == ["started", "exited", "gone"]
    assert reports[1].returncode == -9 and reports[2].killed >= 1


def test_the_harness_waits_longer_than_the_agent() -> None:
    assert AGENT_EXIT_TIMEOUT_S > GIVE_UP_S and AGENT_EXIT_TIMEOUT_S > LEASE_S


WAITS = "import time; print('up', flush=True); time.sleep(600)"


def _plain_order(folder: Path, text: str) -> AgentOrder:
    return AgentOrder(command=Command(argv=(sys.executable, "-c", text), env={}, cwd=str(folder)), attempt_folder=str(folder), term_s=5.0)


def _agent(folder: Path, text: str) -> subprocess.Popen[str]:
    write_private_json(folder / "agent.json", to_json(_plain_order(folder, text)))
    argv = [sys.executable, "-m", "seatrial.agent", str(folder / "agent.json")]
    return subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def _first_report(agent: subprocess.Popen[str]) -> dict[str, object]:
    assert agent.stdout is not None
    report: dict[str, object] = json.loads(agent.stdout.readline())
    return report


def _rest(agent: subprocess.Popen[str], commands: str | None = None) -> tuple[list[dict[str, object]], str]:
    out, err = agent.communicate(commands, timeout=60)
    return [json.loads(line) for line in out.splitlines()], err


def test_an_unknown_command_is_noted_and_the_end_of_the_pipe_kills(tmp_path: Path) -> None:
    agent = _agent(tmp_path, WAITS)
    assert _first_report(agent)["kind"] == "started"
    reports, err = _rest(agent, "pause\n")
    assert [(report["kind"], report["returncode"]) for report in reports] == [("exited", -9), ("gone", None)]
    assert "unknown command 'pause': expected stacks, stop or kill" in err
    assert "the control pipe was closed: killing everything" in err


def test_term_means_stop(tmp_path: Path) -> None:
    agent = _agent(tmp_path, WAITS)
    _first_report(agent)
    os.kill(agent.pid, signal.SIGTERM)
    assert _first_report(agent)["returncode"] == -15
    assert _first_report(agent)["kind"] == "gone"
    _rest(agent)


def test_standard_input_that_is_no_pipe_starts_nothing_lasting(tmp_path: Path) -> None:
    _agent(tmp_path, WAITS).communicate(timeout=60)
    argv = [sys.executable, "-m", "seatrial.agent", str(tmp_path / "agent.json")]
    done = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60)
    assert [json.loads(line)["kind"] for line in done.stdout.splitlines()][-1] == "gone"


def test_a_harness_that_does_not_read_blocks_nothing(tmp_path: Path) -> None:
    read_end, write_end = os.pipe()
    os.set_blocking(write_end, False)
    filled = 0
    with contextlib.suppress(BlockingIOError):
        while True:
            filled += os.write(write_end, b"\n" * 4096)
    write_private_json(tmp_path / "agent.json", to_json(_plain_order(tmp_path, "open('done', 'w').close()")))
    argv = [sys.executable, "-m", "seatrial.agent", str(tmp_path / "agent.json")]
    agent = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=write_end, stderr=subprocess.DEVNULL)
    os.close(write_end)
    wait_until((tmp_path / "done").exists, "the run goes its way")
    wait_until(lambda: not psutil.Process(agent.pid).children(), "the run is over")
    with open(read_end, "rb") as reports:
        lines = reports.read()[filled:].splitlines()
    assert [json.loads(line)["kind"] for line in lines] == ["started", "exited", "gone"]
    agent.communicate()


def test_a_request_for_stacks_after_the_run_is_answered(tmp_path: Path) -> None:
    stubborn = "import os, signal, time\nif os.fork() == 0:\n    signal.signal(signal.SIGTERM, signal.SIG_IGN)\n    time.sleep(600)\n"
    agent = _agent(tmp_path, stubborn)
    assert agent.stdout is not None and agent.stdin is not None
    assert [_first_report(agent)["kind"] for _ in range(2)] == ["started", "exited"]
    agent.stdin.write("stacks\n")
    agent.stdin.flush()
    assert _first_report(agent)["detail"] == "the run had already ended"
    _rest(agent, "kill\n")


AGENT = """
import sys
from pathlib import Path
from seatrial.agent.supervise import Supervisor
from seatrial.core.files import read_json
from seatrial.machine.processes import OomKillCounter
from seatrial.records.codec import from_json
from seatrial.records.launch import AgentOrder
folder = Path(sys.argv[2])
Supervisor(from_json(AgentOrder, read_json(Path(sys.argv[1]))), oom_kills=OomKillCounter(folder, folder)).run()
"""
KILLED = "import os, pathlib; pathlib.Path({path!r}).write_text('oom_kill 4'); os.kill(os.getpid(), 9)"


def test_an_oom_kill_is_reported(tmp_path: Path) -> None:
    vmstat = tmp_path / "vmstat"
    vmstat.write_text("oom_kill 3")
    order = order_for(tmp_path, KILLED.format(path=str(vmstat)))
    paths = attempt_of(order)
    write_private_json(paths.agent_order, to_json(order))
    argv = [sys.executable, "-c", AGENT, str(paths.agent_order), str(tmp_path)]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as agent:
        assert agent.stdout is not None
        reports = [json.loads(line) for line in agent.stdout]
    [exited] = [report for report in reports if report["kind"] == "exited"]
    assert (exited["returncode"], exited["oom_kills"]) == (-9, "oom_kill 3 → 4 on this host")


def _supervisor(monkeypatch: pytest.MonkeyPatch, run: Any, stuck: bool = False) -> None:
    monkeypatch.setattr(module, "Supervisor", lambda *given, **named: SimpleNamespace(run=run, stuck=stuck))


def _broken() -> None:
    raise RuntimeError("odd")


def test_an_error_of_the_agent_is_printed_and_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    _supervisor(monkeypatch, _broken)
    harness = FakeHarness()
    assert run_order(order_for(tmp_path, ""), {}, harness) == 1
    assert harness.failures == ["RuntimeError: odd"] and harness.is_closed and "RuntimeError: odd" in capsys.readouterr().err


@pytest.mark.parametrize(("run", "code"), [(lambda: None, 0), (_broken, 1)])
def test_a_hung_thread_does_not_block_the_exit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run: Any, code: int) -> None:
    left: list[int] = []
    monkeypatch.setattr(os, "_exit", left.append)
    _supervisor(monkeypatch, run, stuck=True)
    assert run_order(order_for(tmp_path, ""), {}, FakeHarness()) == code
    assert left == [code]
