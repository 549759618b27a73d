"""The agent of one node of many, as a program: it calls, is told what to do, reports over the line, and never outlives the harness."""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import socket
import stat
import struct
import subprocess
import sys
import termios
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from seatrial.agent import on_node
from seatrial.files import read_json
from seatrial.line.awake_clock import AwakeClock
from seatrial.paths import BY_HAND
from seatrial.records.codec import from_json, to_json
from seatrial.records.line import NodeCall
from seatrial.records.run_spec import TelemetrySpec
from tests.processes import is_gone, pids_in
from tests.unit.agent.nodes import NAME, Node, environment, line_between
from tests.unit.agent.runs import order_for
from tests.waiting import wait_until

PRINTS = "import os; print('rank', os.environ['RANK'], os.environ.get('BENEATH'), flush=True)"
# Ranks, each with a child in a session of its own, all of whose pids stand in `pids`.
FAMILY = """\
import os, subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True)
with open("pids", "a") as out:
    out.write(f"{os.getpid()} {child.pid}\\n")
time.sleep(600)
"""


def impatient(patience: str, call: Path) -> subprocess.CompletedProcess[str]:
    """The agent on a call, with one of its patiences at nothing."""
    module, _, name = patience.rpartition(".")
    lines = (
        f"import sys, {module} as patient",
        f"patient.{name} = 0",
        "from seatrial.agent.__main__ import main",
        "sys.exit(main(sys.argv))",
    )
    code = "\n".join(lines)
    return subprocess.run([sys.executable, "-c", code, "--call", str(call)], capture_output=True, text=True, timeout=60)


@contextlib.contextmanager
def sleeping(run_dir: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A process of another attempt."""
    process = subprocess.Popen(["sleep", "600"], env=environment(SEATRIAL_RUN_DIR=str(run_dir)))
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def is_full(pipe: int) -> bool:
    waiting = struct.unpack("i", fcntl.ioctl(pipe, termios.FIONREAD, bytes(4)))[0]
    return bool(waiting > fcntl.fcntl(pipe, fcntl.F_GETPIPE_SZ) // 2)


def drain(handle: int) -> None:
    while os.read(handle, 65536):
        pass
    os.close(handle)


def family(folder: Path, size: int = 4) -> list[int]:
    wait_until(lambda: len(pids_in(folder / "pids")) == size, "all ranks and their children are up")
    return pids_in(folder / "pids")


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
