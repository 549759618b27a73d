"""The agent of one node of many, as a program: it calls, is told what to do, reports over the line, and never outlives the harness."""

from __future__ import annotations

import fcntl
import os
import signal
import socket
import stat
import struct
import termios
import threading
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from seatrial.agent import on_node
from seatrial.files import read_json
from seatrial.records.codec import to_json
from seatrial.records.run_spec import TelemetrySpec
from tests.processes import is_gone
from tests.unit.agent.families import FAMILY, family, impatient
from tests.unit.agent.nodes import NAME, Node, environment
from tests.waiting import wait_until

PRINTS = "import os; print('rank', os.environ['RANK'], os.environ.get('BENEATH'), flush=True)"


def is_full(pipe: int) -> bool:
    waiting = struct.unpack("i", fcntl.ioctl(pipe, termios.FIONREAD, bytes(4)))[0]
    return bool(waiting > fcntl.fcntl(pipe, fcntl.F_GETPIPE_SZ) // 2)


def drain(handle: int) -> None:
    while os.read(handle, 65536):
        pass
    os.close(handle)


def test_two_ranks_run_and_the_harness_hears_it(tmp_path: Path) -> None:
    with Node(tmp_path) as node:
        hello = node.hear("hello")
        assert (hello["host"], hello["pid"], hello["port"], hello["trouble"]) == (socket.gethostname(), node.agent.pid, None, "")
        assert "127.0.0.1" in hello["addresses"]["lo"]
        order = node.order(PRINTS, ranks=2, first_rank=0, telemetry=TelemetrySpec(gpu_s=None, host_s=0.05))
        node.board.send(NAME, {"kind": "go", "order": to_json(order), "env": environment(BENEATH="sent")})
        started = [node.report("started") for _ in range(2)]
        exited = node.report("exited")
        gone = node.report("gone")
        assert node.wait() == 0
    assert [report.host for report in (*started, exited, gone)] == [NAME] * 4
    assert (exited.returncode, gone.killed) == (0, 0)
    assert sorted(node.own.launcher_log.read_text().splitlines()) == ["[rank0]: rank 0 sent", "[rank1]: rank 1 sent"]
    assert node.own.arrivals.exists() and node.own.host_telemetry.exists() and node.own.telemetry.exists()
    assert {path.name for path in node.own.rank_logs.iterdir()} == {"rank0.log", "rank1.log"}
    assert [path.name for path in node.attempt.folder.iterdir()] == ["nodes"], "all that the agent wrote lies in the node's own folder"
    assert node.start_log.read_text() == ""
    assert node.log() == "", "an end in peace is nothing to write of"


def test_its_order_is_kept_as_it_is_meant_here_and_without_the_token(tmp_path: Path) -> None:
    with Node(tmp_path) as node:
        node.go(replace(node.order("print('well')"), host="head"))
        node.report("gone")
    kept = read_json(node.own.agent_order)
    assert (kept["host"], kept["shared_memory"] is None, kept["call"]) == (socket.gethostname(), False, None)
    assert stat.S_IMODE(node.own.agent_order.stat().st_mode) == 0o600


def test_without_an_environment_its_own_lies_beneath(tmp_path: Path) -> None:
    node = Node(tmp_path)
    with node.board:
        node.call(env=environment(BENEATH="own"))
        node.go(node.order(PRINTS))
        assert node.report("exited").returncode == 0
        node.wait()
    assert node.own.launcher_log.read_text() == "[rank0]: rank 0 own\n", "a rank alone on its host is marked too"
    assert node.agent.stdin is not None
    node.agent.stdin.close()


@pytest.mark.parametrize(("word", "returncode"), [("stop", -15), ("kill", -9)])
def test_orders_end_the_run(tmp_path: Path, word: str, returncode: int) -> None:
    with Node(tmp_path) as node:
        node.go(node.order(FAMILY, ranks=2))
        pids = family(tmp_path)
        node.tell(word)
        assert node.report("exited").returncode == returncode
        node.report("gone")
        assert all(is_gone(pid) for pid in pids)


def test_an_order_right_behind_go_is_not_lost(tmp_path: Path) -> None:
    with Node(tmp_path) as node:
        node.go(node.order("import time; time.sleep(600)"))
        node.tell("kill")
        assert node.report("exited").returncode == -9


def test_stacks_go_to_the_folder_of_the_node(tmp_path: Path) -> None:
    with Node(tmp_path) as node:
        node.go(node.order("open('up', 'w').close()\nimport time; time.sleep(600)"))
        wait_until((tmp_path / "up").exists, "the rank is up")
        node.tell("stacks")
        told = node.report("stacks")
        node.tell("kill")
        node.report("gone")
    assert told.detail.startswith("by py-spy: rank 0 (pid ") and told.host == NAME
    (stack,) = node.own.stacks.iterdir()
    assert "time.sleep" in stack.read_text() or "<module>" in stack.read_text()
    assert not node.attempt.stacks.exists()


def test_a_harness_that_closes_the_line_ends_everything(tmp_path: Path) -> None:
    with Node(tmp_path) as node:
        node.go(node.order(FAMILY, ranks=2))
        pids = family(tmp_path)
        node.board.close()
        node.wait()
        assert all(is_gone(pid) for pid in pids)
    assert "the line to the harness ended (the other side closed it): killing everything" in node.log()


def test_silence_for_the_lease_ends_everything(tmp_path: Path) -> None:
    """The harness is suspended, in effect: its thread never takes another turn, and no connection is closed."""
    with Node(tmp_path, lease_s=3.0) as node:
        node.go(node.order(FAMILY, ranks=2))
        pids = family(tmp_path)
        node.board._beat = lambda now: None  # type: ignore[method-assign]
        node.wait()
        assert all(is_gone(pid) for pid in pids)
    assert "nothing was heard of the harness for" in node.log()


def test_before_its_order_it_ends_quietly_with_the_harness(tmp_path: Path) -> None:
    with Node(tmp_path) as node:
        node.hear("hello")
        node.board.close()
        assert node.wait() == 0
    assert "the line to the harness ended (the other side closed it) before there was anything to start" in node.log()


def test_over_ends_it_before_its_order(tmp_path: Path) -> None:
    with Node(tmp_path) as node:
        node.hear("hello")
        node.board.send(NAME, {"kind": "over"})
        assert node.wait() == 0
    assert "the harness said that it is over" in node.log()


def test_a_transport_that_dies_is_nothing_to_the_run(tmp_path: Path) -> None:
    node = Node(tmp_path)
    with node.board:
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


def test_an_agent_that_was_suspended_for_longer_than_the_lease_goes_on(tmp_path: Path) -> None:
    with Node(tmp_path, lease_s=3.0) as node:
        node.go(node.order("import os, time\nwhile not os.path.exists('end'): time.sleep(0.01)"))
        node.report("started")
        os.kill(node.agent.pid, signal.SIGSTOP)
        beaten = node.board._beats
        wait_until(lambda: node.board._beats > beaten + 2, "beats wait for it for longer than the lease")
        os.kill(node.agent.pid, signal.SIGCONT)
        node.tell("stacks")
        node.report("stacks")
        (tmp_path / "end").touch()
        assert node.report("exited").returncode == 0


def test_an_agent_that_waits_for_a_disk_is_not_lost(tmp_path: Path) -> None:
    """launcher.log is a pipe that nobody reads: the agent's loop waits in the middle of a write for longer than the harness's lease."""
    node = Node(tmp_path)
    node.board._lease_s = 3.0
    node.own.folder.mkdir(parents=True)
    os.mkfifo(node.own.launcher_log)
    reader = os.open(node.own.launcher_log, os.O_RDONLY | os.O_NONBLOCK)
    with node:
        node.go(node.order("print('x' * 1000000, flush=True)\nopen('up', 'w').close()"))
        node.report("started")
        wait_until(lambda: is_full(reader), "the agent waits")
        beaten = node.board._beats
        wait_until(lambda: node.board._beats > beaten + 3, "beats go on for longer than the lease")
        assert not (tmp_path / "up").exists(), "the agent took no more of the rank's output all the while"
        os.set_blocking(reader, True)
        threading.Thread(target=drain, args=(reader,)).start()
        assert node.report("exited").returncode == 0
        node.report("gone")


def test_a_harness_that_cannot_be_reached_is_told_in_one_sentence(tmp_path: Path) -> None:
    node = Node(tmp_path)
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        port = closed.getsockname()[1]
        done = impatient("seatrial.line.caller.PATIENCE_S", node.write_call(port))
    node.board.close()
    assert done.returncode == 3
    (line,) = done.stderr.splitlines()
    assert line.startswith(f"seatrial.agent: {NAME} cannot reach the harness at 127.0.0.1:{port} (Connection refused): a firewall may")


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (None, "has no {path}; check that the campaign's folder is shared with this host, at the same path"),
        ("{", "cannot read {path}; check that the user there is the same"),
        ("{}", "does not understand {path} ("),
    ],
)
def test_a_call_that_cannot_be_read_is_told(tmp_path: Path, text: str | None, told: str) -> None:
    path = tmp_path / "call.json"
    if text is not None:
        path.write_text(text)
    done = impatient("seatrial.agent.on_node.APPEARS_WITHIN_S", path)
    assert done.returncode == 4
    assert done.stderr.startswith("seatrial.agent: ") and told.format(path=path) in done.stderr


@pytest.mark.parametrize("what", ["argv", "cwd"])
def test_what_is_not_there_on_this_host_is_told_with_its_name(tmp_path: Path, what: str) -> None:
    with Node(tmp_path) as node:
        order = node.order("")
        right = order.command
        wrong = replace(right, argv=("/no/such/python",)) if what == "argv" else replace(right, cwd="/no/such/folder")
        node.go(replace(order, command=wrong))
        exited = node.report("exited")
        node.report("gone")
    assert exited.returncode == 127
    assert f"could not be started on {NAME}: No such file or directory" in exited.detail and "on every host" in exited.detail


def test_an_order_that_cannot_be_read_is_told(tmp_path: Path) -> None:
    with Node(tmp_path) as node:
        node.hear("hello")
        node.board.send(NAME, {"kind": "go", "order": {"command": 1}, "env": None})
        assert "the order cannot be read" in node.report("lost").detail
        assert node.wait() == 1


def test_hello_is_said_with_all_interfaces_where_the_kernel_does_not_say_which_are_up(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> None:
        raise PermissionError(1, "not permitted")

    monkeypatch.setattr(psutil, "net_if_stats", refuse)
    said = on_node.hello()
    assert (said["host"], said["pid"]) == (socket.gethostname(), os.getpid())
    assert set(said["addresses"]) == set(psutil.net_if_addrs()) and "127.0.0.1" in said["addresses"]["lo"]
