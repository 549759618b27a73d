"""Leaving what started the agent, in a process of its own: its session, its streams, its hang-up."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

from seatrial.agent.reports import note
from seatrial.agent.starter import Starter
from tests.unit.agent.apart import apart


def _heard(pipe: int) -> str:
    os.set_blocking(pipe, False)
    try:
        return os.read(pipe, 65536).decode()
    except BlockingIOError:
        return ""


def test_notes_go_to_the_log_and_only_what_is_said_reaches_the_starter(tmp_path: Path) -> None:
    log = tmp_path / "agent.log"

    def act() -> Any:
        read_end, write_end = os.pipe()
        os.dup2(write_end, 2)
        with Starter() as starter:
            note("before")
            starter.leave(log)
            note("after")
            starter.say("one sentence")
            os.kill(os.getpid(), signal.SIGHUP)
            streams = [str(Path(f"/proc/self/fd/{stream}").readlink()) for stream in (0, 1, 2)]
            starter.let_go()
            starter.let_go()
        return [_heard(read_end), streams, os.getsid(0) == os.getpid()]

    heard, streams, leads = apart(act)
    assert heard.endswith("before\nseatrial.agent: one sentence\n") and heard.count("\n") == 2
    assert streams == ["/dev/null", "/dev/null", str(log)] and leads
    assert log.read_text().endswith(" after\n") and log.read_text().count("\n") == 1


def test_a_log_that_cannot_be_written_is_told_of_and_costs_only_words(tmp_path: Path) -> None:
    def act() -> Any:
        read_end, write_end = os.pipe()
        os.dup2(write_end, 2)
        with Starter() as starter:
            starter.leave(tmp_path / "no such folder" / "agent.log")
            note("lost")
            return [_heard(read_end), str(Path("/proc/self/fd/2").readlink())]

    heard, stderr = apart(act)
    assert "cannot be written (No such file or directory)" in heard and "lost\n" not in heard.partition("\n")[2] and stderr == "/dev/null"


def test_a_starter_without_a_standard_error_harms_nobody(tmp_path: Path) -> None:
    def act() -> Any:
        os.close(2)
        with Starter() as starter:
            starter.say("nobody hears this")
            starter.leave(tmp_path / "agent.log")
        return (tmp_path / "agent.log").exists()

    assert apart(act) is True
