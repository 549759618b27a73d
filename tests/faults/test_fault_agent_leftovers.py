"""Processes that try to outlive their run, by every means, are gone when it is over."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from seatrial.core.files import write_private_json
from seatrial.core.paths import AttemptPaths
from seatrial.launch.agents import AgentProcess
from seatrial.machine.orphans import kill_orphans
from seatrial.records.codec import to_json
from tests.processes import is_gone, own_children, pids_in
from tests.unit.agent.running import agent_on, attempt_of, hear, order_for
from tests.waiting import wait_until

GONE_WITHIN_S = 10.0

UP = """\
import os, signal, subprocess, sys, time
def up():
    with open("pids", "a") as pids:
        pids.write(f"{os.getpid()}\\n")
    print("up", flush=True)
def rest():
    up()
    while True:
        time.sleep(600)
"""
# Each leaves at least one process besides the script itself, which keeps running unless it ends by itself.
STAYERS = {
    "data worker": "if os.fork() == 0: rest()\nrest()",
    "double fork": "if os.fork() == 0:\n    if os.fork() == 0: rest()\n    os._exit(0)\nos.wait()\nrest()",
    "session of its own": "if os.fork() == 0:\n    os.setsid()\n    if os.fork() == 0: rest()\n    rest()\nrest()",
    "empty environment, no parent": (
        "if os.fork() == 0:\n    subprocess.Popen(['sleep', '600'], env={}, start_new_session=True)\n    os._exit(0)\nos.wait()\n"
        "if os.fork() == 0: rest()\nrest()"
    ),
    "no TERM": "if os.fork() == 0:\n    signal.signal(signal.SIGTERM, signal.SIG_IGN)\n    rest()\nrest()",
    "stops itself": "if os.fork() == 0:\n    up()\n    os.kill(os.getpid(), signal.SIGSTOP)\nrest()",
    "stops itself at TERM": (
        "if os.fork() == 0:\n    signal.signal(signal.SIGTERM, lambda *_: os.kill(os.getpid(), signal.SIGSTOP))\n    rest()\nrest()"
    ),
    "fork chain": (
        "if os.fork() == 0:\n    up()\n    os.setsid()\n    until = time.monotonic() + 30\n"
        "    while time.monotonic() < until:\n        if os.fork(): os._exit(0)\n    os._exit(0)\nrest()"
    ),
    "many fork chains": (
        "for _ in range(8):\n    if os.fork() == 0:\n        up()\n        until = time.monotonic() + 30\n"
        "        while time.monotonic() < until:\n            if os.fork(): os._exit(0)\n            time.sleep(0.002)\n"
        "        os._exit(0)\nrest()"
    ),
    "prints without end": "if os.fork() == 0:\n    up()\n    while True: os.write(1, b'y' * 65536)\nrest()",
}

HARNESS = """\
import pathlib, sys, time
from seatrial.launch.agents import AgentProcess
from seatrial.core.paths import AttemptPaths
with AgentProcess.start(AttemptPaths(pathlib.Path(sys.argv[1]))):
    time.sleep(600)
"""


def _left(attempt: AttemptPaths) -> list[str]:
    """Living processes whose working directory is the folder where the run was started."""
    found = []
    for process in psutil.process_iter(["pid", "status", "cwd", "cmdline"]):
        about = process.info
        if about["cwd"] == str(attempt.folder.parents[1]) and about["status"] != psutil.STATUS_ZOMBIE:
            found.append(f"{about['pid']} {about['cmdline']}")
    return found


def _assert_gone(attempt: AttemptPaths) -> None:
    wait_until(lambda: not _left(attempt), f"nothing of the run is left of {_left(attempt)}", GONE_WITHIN_S)
    # A chain of forks may be missed by one scan.
    time.sleep(0.2)
    assert _left(attempt) == []


def _up(folder: Path, count: int = 2) -> list[int]:
    wait_until(lambda: len(pids_in(folder / "pids")) >= count, "the processes are up")
    return pids_in(folder / "pids")


def _ends_well(text: str) -> str:
    """The same, but the script itself exits with 0 once its children are up."""
    head, _, tail = text.rpartition("rest()")
    return f"{head}up()\nwhile len(open('pids').read().split()) < 2: time.sleep(0.01)\n{tail}"


@pytest.mark.parametrize("stayer", STAYERS)
@pytest.mark.parametrize("way", ["ends by itself", "stop", "kill", "agent killed"])
def test_nothing_stays(tmp_path: Path, stayer: str, way: str) -> None:
    text = UP + (_ends_well(STAYERS[stayer]) if way == "ends by itself" else STAYERS[stayer])
    order = order_for(tmp_path, text, term_s=1.0)
    attempt_of(order).launcher_log.symlink_to("/dev/null")
    with agent_on(order) as agent:
        _up(tmp_path)
        _end(agent, way)
        last = hear(agent, "lost" if way == "agent killed" else "gone", GONE_WITHIN_S + 2.0)
        assert "survived SIGKILL" not in last.detail
        _assert_gone(attempt_of(order))
    assert own_children() == []


def _end(agent: AgentProcess, way: str) -> None:
    if way == "stop":
        agent.stop()
    elif way == "kill":
        agent.kill()
    elif way == "agent killed":
        agent.poll()
        os.kill(agent.pid, signal.SIGKILL)


@pytest.mark.parametrize("stayer", ["double fork", "empty environment, no parent", "no TERM", "stops itself", "many fork chains"])
def test_nothing_stays_when_the_harness_is_killed(tmp_path: Path, stayer: str) -> None:
    order = order_for(tmp_path, UP + STAYERS[stayer])
    write_private_json(attempt_of(order).agent_order, to_json(order))
    harness = subprocess.Popen([sys.executable, "-c", HARNESS, order.attempt_folder])
    try:
        _up(tmp_path)
    finally:
        harness.kill()
        harness.wait()
    _assert_gone(attempt_of(order))


def test_agent_and_harness_killed_together_and_a_later_harness_ends_the_rest(tmp_path: Path) -> None:
    order = order_for(tmp_path, UP + STAYERS["no TERM"])
    with agent_on(order) as agent:
        pids = _up(tmp_path)
        agent.poll()
        os.kill(agent.pid, signal.SIGKILL)
        wait_until(lambda: any(is_gone(pid) for pid in pids), "the parent-death signal ends the rank itself")
        assert not all(is_gone(pid) for pid in pids)
        assert len(kill_orphans(attempt_of(order).folder, {})) == 1
        assert all(is_gone(pid) for pid in pids)
