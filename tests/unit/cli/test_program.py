"""What makes a command a program: errors as one line and a code, an interrupt, an output that breaks."""

from __future__ import annotations

import errno
import io
import subprocess
import sys
from collections.abc import Callable

import pytest

from seatrial.cli.program import Unbreakable, answered
from seatrial.errors import RefusedError, UsageError

LONGEST_S = 60


def raising(error: BaseException) -> Callable[[], int]:
    def act() -> int:
        raise error

    return act


@pytest.mark.parametrize(
    ("error", "code", "said"),
    [
        (UsageError("name a folder"), 1, "name a folder"),
        (RefusedError("no GPU"), 2, "no GPU"),
        (OSError(errno.ENOSPC, "No space left on device", "/x"), 1, "/x: No space left on device; make room on that disk"),
    ],
)
def test_what_people_can_act_on_is_said_and_becomes_a_code(error: Exception, code: int, said: str) -> None:
    heard: list[str] = []
    assert answered(raising(error), heard.append) == code
    assert len(heard) == 1 and heard[0].startswith(said)


@pytest.mark.parametrize("error", [ZeroDivisionError("ours"), KeyboardInterrupt()])
def test_an_error_of_ours_and_an_interrupt_are_raised(error: BaseException) -> None:
    heard: list[str] = []
    with pytest.raises(type(error)):
        answered(raising(error), heard.append)
    assert heard == []


def test_what_is_returned_is_the_code() -> None:
    assert answered(lambda: 3, lambda said: None) == 3


@pytest.mark.parametrize(
    ("act", "say", "code", "said"),
    [
        ("lambda: 2", "print", 2, ""),
        ("lambda: os.kill(os.getpid(), signal.SIGTERM) or signal.pause() or 0", "print", 130, "interrupted\n"),
        ("lambda: os.kill(os.getpid(), signal.SIGTERM) or signal.pause() or 0", "None", 130, ""),
    ],
)
def test_the_process_ends_with_the_code(act: str, say: str, code: int, said: str) -> None:
    program = f"import os, signal; from seatrial.cli.program import exit_with; exit_with({act}, {say})"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=LONGEST_S)
    assert (done.returncode, done.stdout) == (code, said), done.stderr


class Full(io.TextIOBase):
    def write(self, text: str) -> int:
        raise OSError(28, "No space left on device")


@pytest.mark.parametrize("stream", [Full(), None])
def test_a_broken_output_is_silent(stream: io.TextIOBase | None) -> None:
    out = Unbreakable(stream)
    assert out.write("a") == 1
    out.flush()
    assert out.write("b") == 1


def test_a_character_that_cannot_be_shown_is_replaced() -> None:
    raw = io.BytesIO()
    out = Unbreakable(io.TextIOWrapper(raw, encoding="ascii"))
    out.write("± 5")
    out.flush()
    assert raw.getvalue() == b"? 5"
