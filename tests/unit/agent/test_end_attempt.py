"""`python -m seatrial.agent --end ATTEMPT`: all of that attempt on this host, and nothing else."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from seatrial.agent.end_attempt import end_attempt
from seatrial.records.codec import from_json
from seatrial.records.command import AgentReport
from tests.processes import is_gone
from tests.unit.agent.families import FAMILY, family
from tests.unit.agent.nodes import Node, environment


def _end(folder: str) -> subprocess.CompletedProcess[str]:
    argv = [sys.executable, "-P", "-m", "seatrial.agent", "--end", folder]
    return subprocess.run(argv, capture_output=True, text=True, timeout=60)


def _killed(done: subprocess.CompletedProcess[str]) -> int:
    assert done.returncode == 0, done.stderr
    report = from_json(AgentReport, json.loads(done.stdout))
    assert report.kind == "gone"
    return report.killed


def test_an_agent_that_hangs_is_ended_with_all_it_started(tmp_path: Path) -> None:
    with Node(tmp_path) as node:
        node.go(node.order(FAMILY, ranks=2))
        pids = family(tmp_path)
        os.kill(node.agent.pid, signal.SIGSTOP)
        assert _killed(_end(str(node.attempt.folder))) == 5
        assert node.wait() == -signal.SIGKILL and all(is_gone(pid) for pid in pids)
        assert _killed(_end(str(node.attempt.folder))) == 0


def test_other_attempts_and_campaigns_are_let_alone(tmp_path: Path) -> None:
    mine = tmp_path / "one" / "run" / "attempt-1"
    others = [mine.with_name("attempt-11"), mine.parent / "more" / "attempt-1", tmp_path / "two" / "run" / "attempt-1"]
    started = [subprocess.Popen(["sleep", "600"], env=environment(SEATRIAL_RUN_DIR=str(folder))) for folder in (mine, *others)]
    try:
        assert _killed(_end(str(mine))) == 1
        assert [process.poll() for process in started] == [-signal.SIGKILL, None, None, None]
    finally:
        for process in started:
            process.kill()
            process.wait()


@pytest.mark.parametrize("folder", ["/", "", "attempt-1", "/out/run", "/out/run/attempt-1/nodes"])
def test_what_is_no_attempt_is_refused(folder: str) -> None:
    done = _end(folder)
    assert (done.returncode, done.stdout) == (1, "") and "is no attempt's folder" in done.stderr


def test_an_attempt_that_runs_nothing_here_is_reported_with_none_killed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert end_attempt(tmp_path / "run" / "attempt-1") == 0, "this host need not even see the folder"
    report = from_json(AgentReport, json.loads(capsys.readouterr().out))
    assert (report.kind, report.killed) == ("gone", 0) and report.host and report.t > 1e9
