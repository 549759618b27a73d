"""The agent as a program, without the harness's end: control lines, signals, and its words when it is called wrongly."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from seatrial.files import write_json
from seatrial.records.codec import to_json
from seatrial.records.command import AgentOrder, Command
from tests.waiting import wait_until

WAITS = "import time; print('up', flush=True); time.sleep(600)"


def _order(folder: Path, text: str) -> AgentOrder:
    return AgentOrder(command=Command(argv=(sys.executable, "-c", text), env={}, cwd=str(folder)), attempt_folder=str(folder), term_s=5.0)


def _agent(folder: Path, text: str) -> subprocess.Popen[str]:
    write_json(folder / "agent.json", to_json(_order(folder, text)))
    argv = [sys.executable, "-m", "seatrial.agent", str(folder / "agent.json")]
    return subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def _first_report(agent: subprocess.Popen[str]) -> dict[str, object]:
    assert agent.stdout is not None
    report: dict[str, object] = json.loads(agent.stdout.readline())
    return report


def _rest(agent: subprocess.Popen[str], told: str | None = None) -> tuple[list[dict[str, object]], str]:
    out, err = agent.communicate(told, timeout=60)
    return [json.loads(line) for line in out.splitlines()], err


def test_unknown_word_is_noted_and_the_end_of_the_pipe_kills(tmp_path: Path) -> None:
    agent = _agent(tmp_path, WAITS)
    assert _first_report(agent)["kind"] == "started"
    reports, err = _rest(agent, "pause\n")
    assert [(report["kind"], report["returncode"]) for report in reports] == [("exited", -9), ("gone", None)]
    assert "control line 'pause' is not known: expected stacks, stop or kill" in err
    assert "the control pipe was closed: killing everything" in err


def test_term_means_stop(tmp_path: Path) -> None:
    agent = _agent(tmp_path, WAITS)
    _first_report(agent)
    os.kill(agent.pid, signal.SIGTERM)
    assert agent.stdout is not None
    assert json.loads(agent.stdout.readline())["returncode"] == -15
    assert json.loads(agent.stdout.readline())["kind"] == "gone"
    _rest(agent)


def test_standard_input_that_is_no_pipe_starts_nothing_lasting(tmp_path: Path) -> None:
    _agent(tmp_path, WAITS).communicate(timeout=60)
    argv = [sys.executable, "-m", "seatrial.agent", str(tmp_path / "agent.json")]
    done = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60)
    assert [json.loads(line)["kind"] for line in done.stdout.splitlines()][-1] == "gone"


def test_a_harness_that_does_not_read_holds_up_nothing(tmp_path: Path) -> None:
    read_end, write_end = os.pipe()
    os.set_blocking(write_end, False)
    filled = 0
    with contextlib.suppress(BlockingIOError):
        while True:
            filled += os.write(write_end, b"\n" * 4096)
    write_json(tmp_path / "agent.json", to_json(_order(tmp_path, "open('done', 'w').close()")))
    argv = [sys.executable, "-m", "seatrial.agent", str(tmp_path / "agent.json")]
    agent = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=write_end, stderr=subprocess.DEVNULL)
    os.close(write_end)
    wait_until((tmp_path / "done").exists, "the run goes its way")
    wait_until(lambda: not psutil.Process(agent.pid).children(), "the run is over")
    with open(read_end, "rb") as reports:
        lines = reports.read()[filled:].splitlines()
    assert [json.loads(line)["kind"] for line in lines] == ["started", "exited", "gone"]
    agent.communicate()


def test_stacks_of_a_run_that_is_over_are_an_answer_too(tmp_path: Path) -> None:
    stubborn = "import os, signal, time\nif os.fork() == 0:\n    signal.signal(signal.SIGTERM, signal.SIG_IGN)\n    time.sleep(600)\n"
    agent = _agent(tmp_path, stubborn)
    assert agent.stdout is not None and agent.stdin is not None
    assert [_first_report(agent)["kind"] for _ in range(2)] == ["started", "exited"]
    agent.stdin.write("stacks\n")
    agent.stdin.flush()
    assert _first_report(agent)["detail"] == "the run was over already"
    _rest(agent, "kill\n")


@pytest.mark.parametrize("arguments", [(), ("a", "b"), ("/no/such/agent.json",)])
def test_wrong_call_says_what_was_expected(arguments: tuple[str, ...]) -> None:
    done = subprocess.run([sys.executable, "-m", "seatrial.agent", *arguments], capture_output=True, text=True, timeout=60)
    assert done.returncode == 1
    assert "expected one argument, the path of an attempt's agent.json" in done.stderr
