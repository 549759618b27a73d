"""The driver as a program: errors in one line, exit codes, an interrupt."""

from __future__ import annotations

import errno
import subprocess
import sys
from collections.abc import Callable

import pytest

from seatrial.errors import RefusedError, UsageError
from seatrial_runbooks.stage1.program import answered

LONGEST_S = 60


def raising(error: BaseException) -> Callable[[], int]:
    def act() -> int:
        raise error

    return act


@pytest.mark.parametrize(
    ("error", "code", "said"),
    [
        (UsageError("MODE is 'x'"), 1, "[ERROR] MODE is 'x'\n"),
        (UsageError("a\x1b[31m"), 1, "[ERROR] a\\x1b[31m\n"),
        (RefusedError("no GPU"), 2, "[ERROR] no GPU\n"),
        (KeyboardInterrupt(), 130, "[ERROR] interrupted\n"),
        (OSError(errno.ENOSPC, "No space left on device", "/x"), 1, "[ERROR] /x: No space left on device; make room on that disk"),
    ],
)
def test_errors_are_one_line_and_a_code(error: BaseException, code: int, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert answered(raising(error)) == code
    assert capsys.readouterr().err.startswith(said)


def test_an_error_of_ours_is_shown_whole(capsys: pytest.CaptureFixture[str]) -> None:
    assert answered(raising(ZeroDivisionError("x"))) == 1
    assert "Traceback" in capsys.readouterr().err


def test_what_is_returned_is_the_code() -> None:
    assert answered(lambda: 3) == 3


@pytest.mark.parametrize(
    ("act", "code"),
    [("lambda: 2", 2), ("lambda: os.kill(os.getpid(), signal.SIGTERM) or signal.pause() or 0", 130)],
)
def test_the_process_ends_with_it(act: str, code: int) -> None:
    program = (
        "import os, signal; from seatrial.cli.program import exit_with; from seatrial_runbooks.stage1.program import answered; "
        f"exit_with(lambda: answered({act}))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=LONGEST_S)
    assert done.returncode == code, done.stderr
