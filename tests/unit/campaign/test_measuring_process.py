"""A measuring worker alone: it measures what comes, and ends without a word when nobody is there any more."""

from __future__ import annotations

import multiprocessing
import os
import subprocess
import sys
from multiprocessing.connection import Connection
from pathlib import Path

import pytest

from seatrial.campaign import measuring
from tests.unit.campaign.test_measuring import write_run


def start(pipe: Connection, parent: int) -> subprocess.Popen[str]:
    words = (str(pipe.fileno()), str(parent))
    return subprocess.Popen(
        [sys.executable, "-P", "-m", "seatrial.campaign.measuring_process", *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        pass_fds=(pipe.fileno(),),
    )


def said_and_code(worker: subprocess.Popen[str]) -> tuple[str, int]:
    said, _ = worker.communicate(timeout=60)
    return said, worker.returncode


def test_it_measures_until_the_pipe_is_closed(tmp_path: Path) -> None:
    attempts = [write_run(tmp_path, repeat) for repeat in (1, 2)]
    ours, theirs = multiprocessing.Pipe()
    with theirs:
        worker = start(theirs, os.getpid())
    with ours:
        ours.send((attempts, None))
        assert repr(ours.recv()) == repr(measuring.measure_some(attempts, None))
    assert said_and_code(worker) == ("", 0)


@pytest.mark.parametrize("sent", [b"", b"\0\0\1"])
def test_a_parent_that_is_gone_before_it_could_say_what_to_do(sent: bytes) -> None:
    ours, theirs = multiprocessing.Pipe()
    with theirs:
        worker = start(theirs, os.getpid())
    with ours:
        os.write(ours.fileno(), sent)
    assert said_and_code(worker) == ("", 0)


def test_an_orphan_waits_for_nothing() -> None:
    ours, theirs = multiprocessing.Pipe()
    with ours:
        with theirs:
            worker = start(theirs, os.getppid())
        assert said_and_code(worker) == ("", 0)
