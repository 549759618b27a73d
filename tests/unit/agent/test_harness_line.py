"""The agent's end of a line: who hears the harness while the loop is busy elsewhere, and what the loop waits for."""

from __future__ import annotations

import select
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from seatrial.files import write_json
from seatrial.line.connection import Connection
from seatrial.line.protocol import Message
from seatrial.records.codec import to_json
from seatrial.records.command import AgentReport
from tests.processes import is_gone, pids_in
from tests.unit.agent.nodes import line_between
from tests.unit.agent.runs import PATIENCE_S, order_for
from tests.waiting import wait_until

# The other end is closed before the first report, whose sending closes ours; the pipe of the second rank then gets its number.
BROKEN = """\
import sys
from pathlib import Path
from seatrial.agent.supervise import Supervisor
from seatrial.files import read_json
from seatrial.records.codec import from_json
from seatrial.records.command import AgentOrder
from tests.unit.agent.nodes import line_between
line, other = line_between()
other.close()
Supervisor(from_json(AgentOrder, read_json(Path(sys.argv[1]))), harness=line).run()
"""


def said(other: Connection) -> Message:
    """The next message of the agent."""
    heard: list[Message] = []

    def hear() -> bool:
        heard.extend(other.receive())
        return bool(heard)

    wait_until(hear, "the agent says something")
    return heard[0]


def is_readable(handle: int, patience_s: float = 0.0) -> bool:
    return bool(select.select([handle], [], [], patience_s)[0])


def test_beats_are_answered_while_the_loop_waits_and_words_are_kept_for_it() -> None:
    line, other = line_between()
    line.started(0.0)
    # Nobody takes anything here: the loop waits for a disk.
    for number in range(3):
        other.send({"kind": "beat", "n": number})
        assert said(other)["n"] == number
    assert not is_readable(line.fileno()), "beats are nothing to the loop"
    other.send({"kind": "order", "word": "stacks"})
    other.send({"kind": "order", "word": "stop"})
    assert is_readable(line.fileno(), PATIENCE_S)
    words: list[str] = []
    wait_until(lambda: words.extend(line.take(0.0)) or len(words) == 2, "both words come")  # type: ignore[func-returns-value]
    assert words == ["stacks", "stop"]
    line.send(AgentReport(kind="started", t=1.0, m=1.0, pid=7))
    assert said(other)["report"]["pid"] == 7
    line.close()
    other.close()
    assert line.fileno() == -1


def test_the_lease_is_judged_on_what_the_thread_heard() -> None:
    now = [100.0]
    line, other = line_between(lease_s=3.0, monotonic=lambda: now[0])
    # The agent was suspended for 40 s before, for which its own clock stood still; that counts as no silence.
    line._caller._heard = 60.0
    line.started(60.0)
    other.send({"kind": "beat", "n": 1})
    said(other)
    assert line.gone(1e9) == "", "whatever the loop takes for the time when it is back"
    now[0] += 4.0
    wait_until(lambda: bool(line.gone(0.0)), "the silence is noticed")
    assert line.gone(0.0) == "nothing was heard of the harness for 4 s"
    assert is_readable(line.fileno(), PATIENCE_S)
    line.close()
    other.close()


def test_the_end_of_the_line_wakes_the_loop_and_its_handle_stays() -> None:
    line, other = line_between()
    handle = line.fileno()
    assert handle != line._caller.fileno()
    line.started(0.0)
    other.close()
    assert is_readable(handle, PATIENCE_S)
    assert (line.take(0.0), line.fileno()) == ([], handle)
    assert line.gone(0.0) == "the line to the harness ended (the other side closed it)"
    assert line.flush(1.0), "there is nobody to wait for"
    line.close()


def test_a_thread_that_breaks_is_the_end_of_the_harness(monkeypatch: pytest.MonkeyPatch) -> None:
    line, other = line_between()
    monkeypatch.setattr(threading, "excepthook", lambda broken: None)
    monkeypatch.setattr(line._caller, "receive", lambda now: 1 / 0)
    line.started(0.0)
    other.send({"kind": "beat", "n": 1})
    wait_until(lambda: line.gone(0.0) == "the harness cannot be heard any more", "the loop learns of it")
    line.close()
    other.close()


def test_without_a_thread_the_loop_hears_by_itself(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    def refused(self: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refused)
    line, other = line_between()
    line.started(0.0)
    other.send({"kind": "order", "word": "kill"})
    assert line.take(1.0) == ["kill"]
    assert line.gone(1.0) == ""
    assert "can't start new thread: beats are answered between other work" in capfd.readouterr().err
    line.close()
    other.close()


def test_a_line_that_breaks_while_ranks_start_ends_them_all(tmp_path: Path) -> None:
    text = "import os, time\nopen('pids', 'a').write(f'{os.getpid()}\\n')\ntime.sleep(600)"
    order = tmp_path / "agent.json"
    write_json(order, to_json(order_for(tmp_path, text, ranks=3)))
    done = subprocess.run([sys.executable, "-c", BROKEN, str(order)], capture_output=True, text=True, timeout=PATIENCE_S)
    assert (done.returncode, "Traceback" in done.stderr) == (0, False), done.stderr
    assert "the line to the harness ended" in done.stderr and "killing everything" in done.stderr
    assert not (tmp_path / "pids").exists() or all(is_gone(pid) for pid in pids_in(tmp_path / "pids"))
