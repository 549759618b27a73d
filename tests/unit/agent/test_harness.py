"""Reports to the harness and orders from it, over pipes and over a connection."""

from __future__ import annotations

import json
import os
import re
import select
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from seatrial.agent import harness as reports
from seatrial.agent.harness import PipeWriter, flush_reports, note, send_report
from seatrial.core.control_connection.protocol import Connection, ControlClient, Message
from seatrial.core.files import write_json
from seatrial.records.codec import to_json
from seatrial.records.launch import AgentReport
from tests.facts import states
from tests.processes import is_gone, pids_in
from tests.unit.agent.running import TIMEOUT_S, FakeHarness, connection_pair, order_for, run_in_child
from tests.waiting import wait_until

LINE = b"x" * 99 + b"\n"


def test_what_the_pipe_does_not_take_is_queued_and_arrives_complete() -> None:
    read_end, write_end = os.pipe()
    writer = PipeWriter(write_end)
    for _ in range(2000):
        writer.put(LINE)
    assert not writer.flush()
    taken = b""
    while not writer.flush():
        taken += os.read(read_end, 65536)
    os.close(write_end)
    while data := os.read(read_end, 65536):
        taken += data
    os.close(read_end)
    assert taken == LINE * 2000


def test_a_reader_that_never_reads_is_waited_for_until_the_timeout() -> None:
    read_end, write_end = os.pipe()
    writer = PipeWriter(write_end)
    writer.put(LINE * 2000)
    assert writer.flush(0.05) is False
    os.read(read_end, 65536)
    assert writer.flush(0.05) is False, "room for a part of it is not room for all"
    for handle in (read_end, write_end):
        os.close(handle)


def test_a_reader_that_is_gone_is_ignored() -> None:
    read_end, write_end = os.pipe()
    writer = PipeWriter(write_end)
    os.close(read_end)
    writer.put(LINE)
    assert writer.flush()
    os.close(write_end)


def test_a_report_has_both_clocks_and_its_facts() -> None:
    with FakeHarness() as harness:
        send_report("exited", returncode=3, detail="why")
        assert flush_reports()
    (sent,) = harness.sent
    assert (sent.kind, sent.returncode, sent.detail) == ("exited", 3, "why") and sent.t > 1e9 and sent.m > 0


def test_without_a_target_reports_go_to_standard_output() -> None:
    def act() -> Any:
        read_end, write_end = os.pipe()
        os.dup2(write_end, 1)
        reports.set_report_target(None)
        send_report("exited", returncode=3)
        return [flush_reports(), os.read(read_end, 65536).decode()]

    flushed, printed = run_in_child(act)
    report = json.loads(printed)
    assert flushed and printed.endswith("\n") and (report["kind"], report["returncode"]) == ("exited", 3)


def test_a_note_is_one_line_with_the_time(capfd: pytest.CaptureFixture[str]) -> None:
    note("a disk is full: é")
    assert re.fullmatch(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d a disk is full: é\n", capfd.readouterr().err)


def test_a_standard_error_that_is_gone_ends_nothing() -> None:
    def act() -> Any:
        os.close(2)
        note("nobody reads this")
        return "alive"

    assert run_in_child(act) == "alive"


# The other end is closed before the first report, whose sending closes ours; the pipe of the second rank then gets its number.
BROKEN = """\
import sys
from pathlib import Path
from seatrial.agent.supervise import Supervisor
from seatrial.core.files import read_json
from seatrial.records.codec import from_json
from seatrial.records.launch import AgentOrder
from tests.unit.agent.running import connection_pair
line, other = connection_pair()
other.close()
Supervisor(from_json(AgentOrder, read_json(Path(sys.argv[1]))), harness=line).run()
"""


def next_message(other: Connection) -> Message:
    """The next message of the agent."""
    return wait_until(lambda: list(other.receive()), "the agent sends something")[0]


def is_readable(fd: int, timeout_s: float = 0.0) -> bool:
    return bool(select.select([fd], [], [], timeout_s)[0])


def test_heartbeats_are_answered_while_the_loop_is_blocked_and_commands_are_kept() -> None:
    line, other = connection_pair()
    line.started(0.0)
    # Nobody receives anything here: the loop waits for a disk.
    for number in range(3):
        other.send({"kind": "heartbeat", "n": number})
        assert next_message(other)["n"] == number
    assert not is_readable(line.fileno()), "heartbeats do not wake the loop"
    other.send({"kind": "command", "command": "stacks"})
    other.send({"kind": "command", "command": "stop"})
    assert is_readable(line.fileno(), TIMEOUT_S)
    commands: list[str] = []
    wait_until(lambda: commands.extend(line.receive(0.0)) or len(commands) == 2, "both commands arrive")  # type: ignore[func-returns-value]
    assert commands == ["stacks", "stop"]
    line.send(AgentReport(kind="started", t=1.0, m=1.0, pid=7))
    assert next_message(other)["report"]["pid"] == 7
    line.close()
    other.close()
    assert line.fileno() == -1


def test_the_lease_counts_from_what_the_thread_received() -> None:
    now = [100.0]
    # The agent was suspended for 40 s before, for which its own clock stood still; that counts as no silence.
    line, other = connection_pair(lease_s=3.0, monotonic=lambda: now[0], heard_at=60.0)
    line.started(60.0)
    other.send({"kind": "heartbeat", "n": 1})
    next_message(other)
    assert line.why_gone(1e9) == "", "whatever the loop takes for the time when it is back"
    now[0] += 4.0
    wait_until(lambda: bool(line.why_gone(0.0)), "the silence is noticed")
    assert line.why_gone(0.0) == "no heartbeat from the harness for 4 s"
    assert is_readable(line.fileno(), TIMEOUT_S)
    line.close()
    other.close()


def test_the_end_of_the_connection_wakes_the_loop_and_its_descriptor_stays() -> None:
    line, other = connection_pair()
    handle = line.fileno()
    line.started(0.0)
    other.close()
    assert is_readable(handle, TIMEOUT_S)
    assert (line.receive(0.0), line.fileno()) == ([], handle)
    assert states(line.why_gone(0.0), "connection", "harness", "the peer closed the connection")
    assert line.flush(1.0), "there is nobody to wait for"
    line.close()


def test_a_thread_that_fails_counts_as_a_lost_harness(monkeypatch: pytest.MonkeyPatch) -> None:
    line, other = connection_pair()
    monkeypatch.setattr(threading, "excepthook", lambda broken: None)
    monkeypatch.setattr(ControlClient, "receive", lambda client, now: 1 / 0)
    line.started(0.0)
    other.send({"kind": "heartbeat", "n": 1})
    wait_until(lambda: line.why_gone(0.0) == "messages of the harness can no longer be received", "the loop learns of it")
    line.close()
    other.close()


def test_without_a_thread_the_loop_receives_by_itself(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    def refused(self: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refused)
    line, other = connection_pair()
    line.started(0.0)
    other.send({"kind": "command", "command": "kill"})
    assert line.receive(1.0) == ["kill"]
    assert line.why_gone(1.0) == ""
    assert "can't start new thread: heartbeats" in capfd.readouterr().err
    line.close()
    other.close()


def test_a_connection_that_breaks_while_ranks_start_ends_them_all(tmp_path: Path) -> None:
    text = "import os, time\nopen('pids', 'a').write(f'{os.getpid()}\\n')\ntime.sleep(600)"
    order = tmp_path / "agent.json"
    write_json(order, to_json(order_for(tmp_path, text, ranks=3)))
    done = subprocess.run([sys.executable, "-c", BROKEN, str(order)], capture_output=True, text=True, timeout=TIMEOUT_S)
    assert (done.returncode, "Traceback" in done.stderr) == (0, False), done.stderr
    assert "the connection to the harness ended" in done.stderr and "killing everything" in done.stderr
    assert not (tmp_path / "pids").exists() or all(is_gone(pid) for pid in pids_in(tmp_path / "pids"))
