"""The agent of a node where others were before it: what an earlier attempt left is ended, its port is had, and nobody else is touched."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from seatrial.agent import on_node
from seatrial.files import read_json
from seatrial.line.awake_clock import AwakeClock
from seatrial.paths import BY_HAND
from seatrial.records.codec import from_json, to_json
from seatrial.records.line import NodeCall
from tests.processes import is_gone, pids_in
from tests.unit.agent.families import FAMILY, family, impatient
from tests.unit.agent.nodes import NAME, Node, environment, line_between
from tests.unit.agent.runs import order_for
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


def test_what_an_earlier_attempt_left_is_ended_and_nothing_else(tmp_path: Path) -> None:
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


def test_an_earlier_agent_that_was_suspended_is_ended(tmp_path: Path) -> None:
    with Node(tmp_path) as old:
        old.go(old.order(FAMILY, ranks=1))
        pids = family(tmp_path, 2)
        os.kill(old.agent.pid, signal.SIGSTOP)
        with Node(tmp_path, attempt=2) as node:
            node.hear("hello")
            wait_until(lambda: all(is_gone(pid) for pid in pids), "the ranks are ended")
            assert old.wait() == -9


def test_an_agent_that_comes_late_ends_nothing_of_a_later_run(tmp_path: Path) -> None:
    """Its attempt was given up, and nobody is there whom it could call."""
    node = Node(tmp_path)
    with sleeping(tmp_path / "later" / "attempt-1") as rank, socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        done = impatient("seatrial.line.caller.PATIENCE_S", node.write_call(closed.getsockname()[1]))
        assert done.returncode == 3
        assert rank.poll() is None
    node.board.close()
    assert "killed" not in node.log()


def test_an_agent_that_is_given_up_as_it_comes_ends_nothing(tmp_path: Path) -> None:
    """The harness has said welcome and closed the line before the agent got to it."""
    node = Node(tmp_path)
    with sleeping(tmp_path / "later" / "attempt-1") as rank:
        line, other = line_between()
        other.close()
        on_node._end_leftovers(from_json(NodeCall, read_json(node.write_call(1))), line, AwakeClock())
        assert rank.poll() is None
        line.close()
    node.board.close()


def test_the_port_is_held_and_told(tmp_path: Path) -> None:
    with Node(tmp_path, holds_port=True, port_base=29850) as node:
        port = node.hear("hello")["port"]
        assert port >= 29850
        with socket.socket() as second, pytest.raises(OSError, match="in use"):
            second.bind(("0.0.0.0", port))
        with socket.socket() as rendezvous:
            rendezvous.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            rendezvous.bind(("0.0.0.0", port))


def test_a_port_that_cannot_be_had_is_told(tmp_path: Path) -> None:
    with socket.create_server(("0.0.0.0", 0)) as taken:
        port = taken.getsockname()[1]
        with Node(tmp_path, holds_port=True, rendezvous_port=port) as node:
            hello = node.hear("hello")
    assert hello["port"] is None
    assert hello["trouble"].startswith(f"on {NAME}: port {port} is in use")


LISTENS = """\
import socket, sys, time
server = socket.create_server(("0.0.0.0", 0))
open(sys.argv[1], "w").write(f"{server.getsockname()[1]}\\n")
time.sleep(600)
"""


def test_a_port_that_a_leftover_has_is_had_once_that_is_ended(tmp_path: Path) -> None:
    env = environment(SEATRIAL_RUN_DIR=str(tmp_path / "other" / "attempt-1"))
    leftover = subprocess.Popen([sys.executable, "-c", LISTENS, str(tmp_path / "port")], env=env)
    try:
        wait_until(lambda: len(pids_in(tmp_path / "port")) == 1, "the leftover listens")
        (port,) = pids_in(tmp_path / "port")
        with Node(tmp_path, holds_port=True, rendezvous_port=port) as node:
            assert node.hear("hello")["port"] == port
            order = node.order("import os, time\nwhile not os.path.exists('end'): time.sleep(0.01)")
            node.board.send(NAME, {"kind": "go", "order": to_json(order), "env": None})
            node.report("started")
            assert leftover.wait() == -9
            with socket.socket() as second, pytest.raises(OSError, match="in use"):
                second.bind(("0.0.0.0", port))
            (tmp_path / "end").touch()
            assert node.report("exited").returncode == 0
    finally:
        leftover.kill()
        leftover.wait()


def test_a_port_that_a_leftover_did_not_have_is_told_and_nothing_starts(tmp_path: Path) -> None:
    with sleeping(tmp_path / "other" / "attempt-1"), socket.create_server(("0.0.0.0", 0)) as taken:
        port = taken.getsockname()[1]
        with Node(tmp_path, holds_port=True, rendezvous_port=port) as node:
            node.go(node.order("open('up', 'w').close()"))
            assert f"its agent failed: on {NAME}: port {port} is in use" in node.report("lost").detail
            assert node.wait() == 1
    assert not (tmp_path / "up").exists()
