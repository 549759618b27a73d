"""Nothing outlives a run: descendants, orphans and shared memory."""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from seatrial.agent import processes, supervise
from seatrial.agent.__main__ import main
from seatrial.agent.node import clear_host
from seatrial.agent.supervise import remove_abandoned_segments
from seatrial.core import linux
from seatrial.core.files import read_json
from seatrial.core.paths import BY_HAND
from seatrial.core.timeouts import SuspendAwareClock
from seatrial.records.codec import from_json, to_json
from seatrial.records.launch import AgentEndpoint, AgentReport
from tests.facts import states
from tests.processes import is_gone, pids_in
from tests.unit.agent.running import (
    FAMILY,
    NAME,
    Node,
    agent_without_timeout,
    connection_pair,
    environment,
    family,
    order_for,
    run_in_child,
)
from tests.waiting import wait_until


@contextlib.contextmanager
def sleeping(run_dir: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A process of another attempt."""
    process = subprocess.Popen(["sleep", "600"], env=environment(SEATRIAL_RUN_DIR=str(run_dir)))
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def test_what_an_earlier_attempt_left_is_killed_and_nothing_else(tmp_path: Path) -> None:
    campaign, other = tmp_path / "one", tmp_path / "other"
    mine = {"earlier": campaign / "run" / "attempt-1", "sibling": campaign / "another" / "attempt-3"}
    not_mine = {
        "this": campaign / "run" / "attempt-2",
        "foreign": other / "run" / "attempt-1",
        "within": campaign / "in" / "r" / "attempt-1",
        "by hand": campaign / "run" / "attempt-1" / BY_HAND,
    }
    started = {
        name: subprocess.Popen(["sleep", "600"], env=environment(SEATRIAL_RUN_DIR=str(folder)))
        for name, folder in {**mine, **not_mine}.items()
    }
    try:
        with Node(campaign, attempt=2) as node:
            node.go(order_for(campaign, "print('well')", attempt_folder=str(node.attempt.folder), own_folder=str(node.own.folder)))
            node.report("started")
            assert [name for name, process in started.items() if process.poll() is not None] == list(mine), "before any rank starts"
        assert f"killed what earlier attempts had left here: {', '.join(str(started[name].pid) for name in mine)}" in node.log()
    finally:
        for process in started.values():
            process.kill()
            process.wait()


def test_a_suspended_agent_of_an_earlier_attempt_is_killed(tmp_path: Path) -> None:
    with Node(tmp_path) as old:
        old.go(old.order(FAMILY, ranks=1))
        pids = family(tmp_path, 2)
        os.kill(old.agent.pid, signal.SIGSTOP)
        with Node(tmp_path, attempt=2) as node:
            node.hear("hello")
            wait_until(lambda: all(is_gone(pid) for pid in pids), "the ranks are ended")
            assert old.wait() == -9


def test_a_late_agent_kills_nothing_of_a_later_run(tmp_path: Path) -> None:
    """Its attempt was given up, and no harness listens any more."""
    node = Node(tmp_path)
    with sleeping(tmp_path / "later" / "attempt-1") as rank, socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        done = agent_without_timeout(
            "seatrial.core.control_connection.protocol.CONNECT_TIMEOUT_S", node.write_call(closed.getsockname()[1])
        )
        assert done.returncode == 3
        assert rank.poll() is None
    node.server.close()
    assert "killed" not in node.log()


def test_an_agent_that_is_given_up_as_it_connects_kills_nothing(tmp_path: Path) -> None:
    """The harness closed the connection right after its welcome."""
    node = Node(tmp_path)
    with sleeping(tmp_path / "later" / "attempt-1") as rank:
        line, other = connection_pair()
        other.close()
        clear_host(from_json(AgentEndpoint, read_json(node.write_call(1))), line, SuspendAwareClock())
        assert rank.poll() is None
        line.close()
    node.server.close()


LISTENS = """\
import socket, sys, time
server = socket.create_server(("0.0.0.0", 0))
open(sys.argv[1], "w").write(f"{server.getsockname()[1]}\\n")
time.sleep(600)
"""


def test_a_port_that_a_leftover_holds_is_reserved_once_it_is_killed(tmp_path: Path) -> None:
    env = environment(SEATRIAL_RUN_DIR=str(tmp_path / "other" / "attempt-1"))
    leftover = subprocess.Popen([sys.executable, "-c", LISTENS, str(tmp_path / "port")], env=env)
    try:
        wait_until(lambda: len(pids_in(tmp_path / "port")) == 1, "the leftover listens")
        (port,) = pids_in(tmp_path / "port")
        with Node(tmp_path, holds_port=True, rendezvous_port=port) as node:
            assert node.hear("hello")["port"] == port
            order = node.order("import os, time\nwhile not os.path.exists('end'): time.sleep(0.01)")
            node.server.send(NAME, {"kind": "go", "order": to_json(order), "env": None})
            node.report("started")
            assert leftover.wait() == -9
            with socket.socket() as second, pytest.raises(OSError, match="in use"):
                second.bind(("0.0.0.0", port))
            (tmp_path / "end").touch()
            assert node.report("exited").returncode == 0
    finally:
        leftover.kill()
        leftover.wait()


def test_a_port_held_by_somebody_else_is_reported_and_nothing_starts(tmp_path: Path) -> None:
    with sleeping(tmp_path / "other" / "attempt-1"), socket.create_server(("0.0.0.0", 0)) as taken:
        port = taken.getsockname()[1]
        with Node(tmp_path, holds_port=True, rendezvous_port=port) as node:
            node.go(node.order("open('up', 'w').close()"))
            assert f"its agent failed: on {NAME}: port {port} is in use" in node.report("lost").detail
            assert node.wait() == 1
    assert not (tmp_path / "up").exists()


def _left(monkeypatch: pytest.MonkeyPatch, *paths: Path) -> None:
    monkeypatch.setattr(supervise, "find_abandoned_segments", lambda before: list(paths))


def test_abandoned_segments_are_removed_and_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    segments = [tmp_path / "torch_1_a", tmp_path / "torch_1_gone", tmp_path / "nccl-b"]
    for segment in segments[::2]:
        segment.touch()
    _left(monkeypatch, *segments)
    remove_abandoned_segments(order_for(tmp_path, ""))
    assert not any(segment.exists() for segment in segments)
    notes = capfd.readouterr().err
    assert notes.count("removed /") == 2 and states(notes, segments[1], "could not be removed")


def test_no_segment_is_removed_when_it_is_unknown_what_was_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    segment = tmp_path / "torch_1_a"
    segment.touch()
    _left(monkeypatch, segment)
    remove_abandoned_segments(replace(order_for(tmp_path, ""), shared_memory=None))
    assert segment.exists()


PR_GET_PDEATHSIG = 2
# Starts a child in its own session, prints its pid, and waits.
PARENT = """
import os, subprocess, sys
child = subprocess.Popen(["sleep", "600"], start_new_session=True)
print(child.pid, flush=True)
sys.stdin.read() if sys.argv[1:] == ["stay"] else None
"""


def _family(*stays: str) -> tuple[subprocess.Popen[bytes], int]:
    parent = subprocess.Popen([sys.executable, "-S", "-c", PARENT, *stays], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert parent.stdout is not None
    return parent, int(parent.stdout.readline())


def _collected() -> dict[int, int]:
    """Exit codes of all children, waited for."""
    codes: dict[int, int] = {}
    while True:
        try:
            pid, status = os.waitpid(-1, 0)
        except ChildProcessError:
            return codes
        codes[pid] = os.waitstatus_to_exitcode(status)


def test_a_child_gets_term_when_its_parent_ends() -> None:
    def act() -> Any:
        processes.set_up_child()
        number = ctypes.c_int()
        ctypes.CDLL(None).prctl(PR_GET_PDEATHSIG, ctypes.byref(number))
        return number.value

    assert run_in_child(act) == signal.SIGTERM


def test_descendants_are_signalled_whatever_session_they_are_in() -> None:
    def act() -> Any:
        processes.become_subreaper()
        parent, child = _family("stay")
        found = {process.pid for process in processes.list_descendants()}
        reached = processes.send_signal(processes.list_descendants(), signal.SIGKILL)
        codes = _collected()
        return [found == reached == {parent.pid, child}, codes == {parent.pid: -9, child: -9}, processes.list_descendants()]

    assert run_in_child(act) == [True, True, []]
    assert processes.send_signal([], signal.SIGTERM) == set()


def test_orphans_are_adopted_and_reaped() -> None:
    def act() -> Any:
        processes.become_subreaper()
        parent, child = _family()
        os.waitpid(parent.pid, 0)
        alone = processes.reap()
        killed = processes.kill_children()
        os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT)
        return [alone == ({}, True), killed == {child}, processes.reap() == ({child: -9}, False), processes.reap() == ({}, False)]

    assert run_in_child(act) == [True] * 4


def test_a_stopped_process_is_resumed() -> None:
    def act() -> Any:
        child = subprocess.Popen(["sleep", "600"])
        os.kill(child.pid, signal.SIGSTOP)
        os.waitpid(child.pid, os.WUNTRACED)
        before = processes.is_stopped(child.pid)
        processes.resume_stopped(processes.list_descendants())
        os.waitpid(child.pid, os.WCONTINUED)
        after = processes.is_stopped(child.pid)
        child.kill()
        return [before, after]

    assert run_in_child(act) == [True, False]
    assert not processes.is_stopped(2**22 + 1), "one that is gone is not stopped"


def test_kill_all_reaps_everything() -> None:
    def act() -> Any:
        processes.become_subreaper()
        _family("stay")
        processes.kill_all(lambda s: None)
        return processes.reap()[1]

    assert run_in_child(act) is False


def test_a_kernel_without_subreapers_is_noted(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(linux, "set_subreaper", lambda: False)
    processes.become_subreaper()
    assert "no child subreaper" in capfd.readouterr().err


def _end(folder: Path) -> int:
    """How many processes `--end` reports as killed."""
    argv = [sys.executable, "-P", "-m", "seatrial.agent", "--end", str(folder)]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    report = from_json(AgentReport, json.loads(done.stdout))
    assert report.kind == "gone"
    return report.killed


def test_a_hung_agent_is_killed_with_all_it_started(tmp_path: Path) -> None:
    with Node(tmp_path) as node:
        node.go(node.order(FAMILY, ranks=2))
        pids = family(tmp_path)
        os.kill(node.agent.pid, signal.SIGSTOP)
        assert _end(node.attempt.folder) == 5
        assert node.wait() == -signal.SIGKILL and all(is_gone(pid) for pid in pids)
        assert _end(node.attempt.folder) == 0


def test_other_attempts_and_campaigns_are_left_alone(tmp_path: Path) -> None:
    mine = tmp_path / "one" / "run" / "attempt-1"
    others = [mine.with_name("attempt-11"), mine.parent / "more" / "attempt-1", tmp_path / "two" / "run" / "attempt-1"]
    started = [subprocess.Popen(["sleep", "600"], env=environment(SEATRIAL_RUN_DIR=str(folder))) for folder in (mine, *others)]
    try:
        assert _end(mine) == 1
        assert [process.poll() for process in started] == [-signal.SIGKILL, None, None, None]
    finally:
        for process in started:
            process.kill()
            process.wait()


@pytest.mark.parametrize("folder", ["/", "attempt-1", "/out/run/attempt-1/nodes"])
def test_a_folder_that_is_no_attempt_is_refused(folder: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["seatrial.agent", "--end", folder]) == 1
    assert "is not an attempt's folder" in capsys.readouterr().err
