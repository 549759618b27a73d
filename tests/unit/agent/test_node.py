"""The agent of one node of many: its call, its port, detaching from what started it."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import stat
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from seatrial.agent.harness import note
from seatrial.agent.node import RendezvousPort, StarterStreams
from seatrial.core.files import read_json
from seatrial.records.codec import to_json
from seatrial.records.launch import AgentEndpoint
from seatrial.records.plan import TelemetrySpec
from tests.facts import states
from tests.processes import is_gone
from tests.unit.agent.running import FAMILY, NAME, Node, agent_without_timeout, environment, family, run_in_child
from tests.waiting import wait_until

PRINTS = "import os; print('rank', os.environ['RANK'], os.environ.get('BENEATH'), flush=True)"


def test_two_ranks_run_and_are_reported(tmp_path: Path) -> None:
    with Node(tmp_path) as node:
        hello = node.hear("hello")
        assert (hello["host"], hello["pid"], hello["port"], hello["trouble"]) == (socket.gethostname(), node.agent.pid, None, "")
        assert "127.0.0.1" in hello["addresses"]["lo"]
        order = node.order(PRINTS, ranks=2, first_rank=0, telemetry=TelemetrySpec(gpu_s=None, host_s=0.05))
        node.server.send(NAME, {"kind": "go", "order": to_json(order), "env": environment(BENEATH="sent")})
        started = [node.report("started") for _ in range(2)]
        exited = node.report("exited")
        gone = node.report("gone")
        assert node.wait() == 0
    assert [report.host for report in (*started, exited, gone)] == [NAME] * 4
    assert (exited.returncode, gone.killed) == (0, 0)
    assert sorted(node.own.launcher_log.read_text().splitlines()) == ["[rank0]: rank 0 sent", "[rank1]: rank 1 sent"]
    assert node.own.arrivals.exists() and node.own.host_telemetry.exists() and node.own.telemetry.exists()
    assert {path.name for path in node.own.rank_logs.iterdir()} == {"rank0.log", "rank1.log"}
    assert [path.name for path in node.attempt.folder.iterdir()] == ["nodes"], "the agent writes to the node's own folder alone"
    assert node.start_log.read_text() == ""
    assert node.log() == "", "a normal end is not noted"


def test_its_order_is_written_without_the_token(tmp_path: Path) -> None:
    with Node(tmp_path) as node:
        node.go(replace(node.order("print('well')"), host="head"))
        node.report("gone")
    kept = read_json(node.own.agent_order)
    assert (kept["host"], kept["shared_memory"] is None, kept["call"]) == (socket.gethostname(), False, None)
    assert stat.S_IMODE(node.own.agent_order.stat().st_mode) == 0o600


def test_without_a_sent_environment_its_own_is_used(tmp_path: Path) -> None:
    node = Node(tmp_path)
    with node.server:
        node.call(env=environment(BENEATH="own"))
        node.go(node.order(PRINTS))
        assert node.report("exited").returncode == 0
        node.wait()
    assert node.own.launcher_log.read_text() == "[rank0]: rank 0 own\n", "a rank alone on its host is marked too"
    assert node.agent.stdin is not None
    node.agent.stdin.close()


@pytest.mark.parametrize(("command", "returncode"), [("stop", -15), ("kill", -9)])
def test_commands_end_the_run(tmp_path: Path, command: str, returncode: int) -> None:
    with Node(tmp_path) as node:
        node.go(node.order(FAMILY, ranks=2))
        pids = family(tmp_path)
        node.command(command)
        assert node.report("exited").returncode == returncode
        node.report("gone")
        assert all(is_gone(pid) for pid in pids)


def test_a_command_right_after_go_is_not_lost(tmp_path: Path) -> None:
    with Node(tmp_path) as node:
        node.go(node.order("import time; time.sleep(600)"))
        node.command("kill")
        assert node.report("exited").returncode == -9


def test_stacks_go_to_the_folder_of_the_node(tmp_path: Path) -> None:
    with Node(tmp_path) as node:
        node.go(node.order("open('up', 'w').close()\nimport time; time.sleep(600)"))
        wait_until((tmp_path / "up").exists, "the rank is up")
        node.command("stacks")
        taken = node.report("stacks")
        node.command("kill")
        node.report("gone")
    assert taken.detail.startswith("by py-spy: rank 0 (pid ") and taken.host == NAME
    (stack,) = node.own.stacks.iterdir()
    assert "time.sleep" in stack.read_text() or "<module>" in stack.read_text()
    assert not node.attempt.stacks.exists()


def test_a_closed_connection_ends_everything(tmp_path: Path) -> None:
    with Node(tmp_path) as node:
        node.go(node.order(FAMILY, ranks=2))
        pids = family(tmp_path)
        node.server.close()
        node.wait()
        assert all(is_gone(pid) for pid in pids)
    assert states(node.log(), "the peer closed the connection", "killing everything")


def test_before_its_order_it_ends_quietly_with_the_harness(tmp_path: Path) -> None:
    with Node(tmp_path) as node:
        node.hear("hello")
        node.server.close()
        assert node.wait() == 0
    assert states(node.log(), "the peer closed the connection", "before an order arrived")


def test_over_before_its_order_ends_it(tmp_path: Path) -> None:
    with Node(tmp_path) as node:
        node.hear("hello")
        node.server.send(NAME, {"kind": "over"})
        assert node.wait() == 0
    assert "the harness ended the run" in node.log()


def test_a_run_survives_its_transport(tmp_path: Path) -> None:
    node = Node(tmp_path)
    with node.server:
        node.own.folder.mkdir(parents=True)
        os.mkfifo(node.start_log)
        reader = os.open(node.start_log, os.O_RDONLY | os.O_NONBLOCK)
        node.call()
        node.go(node.order("import os, time\nopen('up', 'w').close()\nwhile not os.path.exists('end'): time.sleep(0.01)"))
        node.report("started")
        handles = Path(f"/proc/{node.agent.pid}/fd")
        assert node.start_log not in {handle.readlink() for handle in handles.iterdir()}, "a transport that waits for its streams may end"
        assert node.agent.stdin is not None
        node.agent.stdin.close()
        os.close(reader)
        os.kill(node.agent.pid, signal.SIGHUP)
        (tmp_path / "end").touch()
        assert node.report("exited").returncode == 0
        assert node.wait() == 0


def test_an_unreachable_harness_is_reported_in_one_sentence(tmp_path: Path) -> None:
    node = Node(tmp_path)
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        port = closed.getsockname()[1]
        done = agent_without_timeout("seatrial.core.control_connection.protocol.CONNECT_TIMEOUT_S", node.write_call(port))
    node.server.close()
    assert done.returncode == 3
    (line,) = done.stderr.splitlines()
    assert line.startswith(f"seatrial.agent: {NAME} cannot reach the harness at 127.0.0.1:{port} (Connection refused): a firewall may")


def test_a_harness_of_another_version_is_reported_in_one_sentence(tmp_path: Path, harness_version: Callable[[str], None]) -> None:
    harness_version("9.9.9")
    with Node(tmp_path) as node:
        assert node.wait() == 3
    (line,) = node.start_log.read_text().splitlines()
    assert line.startswith(f"seatrial.agent: {NAME} runs Seatrial ") and line.endswith("install the same version on all hosts")


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (None, "has no {path}; check that the campaign's folder is shared with this host, at the same path"),
        ("{", "cannot read {path}; check that the user there is the same"),
        ("{}", "does not understand {path} ("),
    ],
)
def test_an_unreadable_call_is_reported(tmp_path: Path, text: str | None, problem: str) -> None:
    path = tmp_path / "call.json"
    if text is not None:
        path.write_text(text)
        path.chmod(0o600)
    done = agent_without_timeout("seatrial.agent.node.CALL_FILE_TIMEOUT_S", path)
    assert done.returncode == 4
    assert done.stderr.startswith("seatrial.agent: ") and problem.format(path=path) in done.stderr


def test_an_unreadable_order_is_reported(tmp_path: Path) -> None:
    with Node(tmp_path) as node:
        node.hear("hello")
        node.server.send(NAME, {"kind": "go", "order": {"command": 1}, "env": None})
        assert "the order cannot be read" in node.report("lost").detail
        assert node.wait() == 1


def _heard(pipe: int) -> str:
    os.set_blocking(pipe, False)
    try:
        return os.read(pipe, 65536).decode()
    except BlockingIOError:
        return ""


def test_after_detaching_notes_go_to_the_log_and_errors_to_the_starter(tmp_path: Path) -> None:
    log = tmp_path / "agent.log"

    def act() -> Any:
        read_end, write_end = os.pipe()
        os.dup2(write_end, 2)
        with contextlib.closing(StarterStreams()) as starter:
            note("before")
            starter.detach(log)
            note("after")
            starter.print_error("one sentence")
            os.kill(os.getpid(), signal.SIGHUP)
            streams = [str(Path(f"/proc/self/fd/{stream}").readlink()) for stream in (0, 1, 2)]
            starter.close()
            starter.close()
        return [_heard(read_end), streams, os.getsid(0) == os.getpid()]

    heard, streams, leads = run_in_child(act)
    assert heard.endswith("before\nseatrial.agent: one sentence\n") and heard.count("\n") == 2
    assert streams == ["/dev/null", "/dev/null", str(log)] and leads
    assert log.read_text().endswith(" after\n") and log.read_text().count("\n") == 1


def test_a_log_that_cannot_be_written_costs_only_the_notes(tmp_path: Path) -> None:
    def act() -> Any:
        read_end, write_end = os.pipe()
        os.dup2(write_end, 2)
        with contextlib.closing(StarterStreams()) as starter:
            starter.detach(tmp_path / "no such folder" / "agent.log")
            note("lost")
            return [_heard(read_end), str(Path("/proc/self/fd/2").readlink())]

    heard, stderr = run_in_child(act)
    assert "cannot be written (No such file or directory)" in heard and "lost\n" not in heard.partition("\n")[2] and stderr == "/dev/null"


def test_a_closed_standard_error_is_harmless(tmp_path: Path) -> None:
    def act() -> Any:
        os.close(2)
        with contextlib.closing(StarterStreams()) as starter:
            starter.print_error("nobody hears this")
            starter.detach(tmp_path / "agent.log")
        return (tmp_path / "agent.log").exists()

    assert run_in_child(act) is True


def test_a_port_is_held_until_the_end_of_the_block(tmp_path: Path) -> None:
    attempt = str(tmp_path / "run" / "attempt-2")
    call = AgentEndpoint(addresses=(), port=1, token="t", node="node0", campaign=str(tmp_path), attempt=attempt, holds_port=True)
    with contextlib.closing(RendezvousPort(call)) as rendezvous:
        rendezvous.reserve()
        port = rendezvous.announce()
        rendezvous.reserve()
        assert port and rendezvous.announce() == port, "once is enough"
        with socket.socket() as other, pytest.raises(OSError):
            other.bind(("0.0.0.0", port))
    socket.create_server(("0.0.0.0", port)).close()
