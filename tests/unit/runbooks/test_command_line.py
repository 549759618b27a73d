"""Flags, numbers, printing and exit codes of the procedure's programs."""

from __future__ import annotations

import errno
import io
import os
import subprocess
import sys
from collections.abc import Callable

import pytest

from seatrial.core.errors import RefusedError, UsageError
from seatrial_runbooks.command_line import StrictParser, count, echo, limit, run_reporting_errors, warn, write_to


def parser() -> StrictParser:
    found = StrictParser("what it does", "an example")
    found.add_argument("--output-root")
    found.add_argument("--repeats", type=count)
    found.add_argument("--max-cv", type=limit)
    return found


def test_arguments_are_parsed() -> None:
    options = parser().parse(["--output-root", "out", "--repeats", "3", "--max-cv", "0"])
    assert (options.output_root, options.repeats, options.max_cv) == ("out", 3, 0.0)


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["--output-rot=out"], "unknown argument '--output-rot=out': did you mean '--output-root'?"),
        (["--output"], "unknown argument '--output'"),
        (["--xyzzy"], "unknown argument '--xyzzy': see --help"),
        (["--repeats", "0"], "'0' is not a count: expected a whole number of at least 1; see --help"),
        (["--repeats", "٣"], "is not a count"),
        (["--max-cv", "-1"], "'-1' is not a limit"),
        (["--max-cv", "nan"], "'nan' is not a limit: expected a number of at least 0, such as 1.5; see --help"),
    ],
)
def test_wrong_arguments_are_refused(argv: list[str], message: str) -> None:
    with pytest.raises(UsageError) as refused:
        parser().parse(argv)
    assert message in str(refused.value)


def test_a_letter_that_the_terminal_does_not_know() -> None:
    stream = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    write_to("ü\n", stream)
    stream.seek(0)
    assert stream.read() == "\\xfc\n"


def test_a_reader_that_has_gone() -> None:
    reader, writer = os.pipe()
    os.close(reader)
    with open(writer, "w") as stream:
        write_to("nobody reads this\n", stream)
        write_to("nor this\n", stream)
        assert os.path.sameopenfile(stream.fileno(), os.open(os.devnull, os.O_WRONLY)), "what is left to be written goes nowhere"


LONGEST_S = 60


def raising(error: BaseException) -> Callable[[], int]:
    def act() -> int:
        raise error

    return act


@pytest.mark.parametrize(
    ("error", "code", "message"),
    [
        (UsageError("MODE is 'x'"), 1, "[ERROR] MODE is 'x'\n"),
        (UsageError("a\x1b[31m"), 1, "[ERROR] a\\x1b[31m\n"),
        (RefusedError("no GPU"), 2, "[ERROR] no GPU\n"),
        (KeyboardInterrupt(), 130, "[ERROR] interrupted\n"),
        (OSError(errno.ENOSPC, "No space left on device", "/x"), 1, "[ERROR] /x: No space left on device; free space on that disk"),
    ],
)
def test_errors_are_one_line_and_a_code(error: BaseException, code: int, message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_reporting_errors(raising(error)) == code
    assert capsys.readouterr().err.startswith(message)


def test_an_error_of_ours_is_shown_whole(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_reporting_errors(raising(ZeroDivisionError("x"))) == 1
    assert "Traceback" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("act", "code"),
    [("lambda: 2", 2), ("lambda: os.kill(os.getpid(), signal.SIGTERM) or signal.pause() or 0", 130)],
)
def test_the_process_ends_with_it(act: str, code: int) -> None:
    program = (
        "import os, signal; from seatrial.cli.program import exit_with; "
        "from seatrial_runbooks.command_line import run_reporting_errors; "
        f"exit_with(lambda: run_reporting_errors({act}))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=LONGEST_S)
    assert done.returncode == code, done.stderr


def test_lines_and_warnings_go_to_streams_of_their_own(capsys: pytest.CaptureFixture[str]) -> None:
    echo("mode=sweep")
    warn("REPEATS is 1")
    assert capsys.readouterr() == ("mode=sweep\n", "[WARN] REPEATS is 1\n")
