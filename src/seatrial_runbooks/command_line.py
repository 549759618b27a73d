"""What the programs of the procedures share: strict flags and numbers, printing, one-line errors and exit codes.

Exit codes: 0 PASS or done, 1 wrong use or an internal error, 2 FAIL or refused, 3 INCONCLUSIVE, 130 interrupted.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import math
import os
import sys
from collections.abc import Callable, Sequence
from typing import NoReturn, TextIO

from seatrial.cli import program
from seatrial.core.errors import INTERRUPTED, WRONG_USE, UsageError, did_you_mean, nearest, printable


class StrictParser(argparse.ArgumentParser):
    """No abbreviated flags; an unknown one is answered with the nearest."""

    def __init__(self, description: str, examples: str) -> None:
        super().__init__(description=description, epilog=examples, allow_abbrev=False, formatter_class=argparse.RawDescriptionHelpFormatter)

    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{message}; see --help")

    def parse(self, argv: Sequence[str] | None) -> argparse.Namespace:
        """The values of all flags; raises UsageError for an unknown argument."""
        options, unknown = self.parse_known_args(argv)
        if unknown:
            name = unknown[0].partition("=")[0]
            flags = [flag for action in self._actions for flag in action.option_strings]
            hint = did_you_mean(name, flags) if nearest(name, flags) else "see --help"
            raise UsageError(f"unknown argument '{unknown[0]}': {hint}")
        return options


def limit(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not (math.isfinite(value) and value >= 0):
        raise argparse.ArgumentTypeError(f"'{text}' is not a limit: expected a number of at least 0, such as 1.5")
    return value


def count(text: str) -> int:
    if not (text.isascii() and text.isdigit() and int(text) >= 1):
        raise argparse.ArgumentTypeError(f"'{text}' is not a count: expected a whole number of at least 1")
    return int(text)


def write_to(text: str, stream: TextIO) -> None:
    """Write and flush; neither a closed pipe (`| head`) nor a character outside the encoding changes the exit code."""
    if isinstance(stream, io.TextIOWrapper):
        stream.reconfigure(errors="backslashreplace")
    try:
        stream.write(text)
        stream.flush()
    except BrokenPipeError:
        # Python would flush again at exit, and change the exit code.
        with contextlib.suppress(OSError, ValueError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def echo(text: str) -> None:
    print(text, flush=True)


def warn(text: str) -> None:
    """Print with the scripts' [WARN] prefix."""
    print(f"[WARN] {text}", file=sys.stderr)


def run_reporting_errors(act: Callable[[], int]) -> int:
    """The exit code of `act`; errors become one line and an exit code, internal ones a traceback."""
    try:
        return program.run_reporting_errors(act, print_error)
    except KeyboardInterrupt:
        # A campaign reports an interrupt itself; this one came before or after it.
        print_error("interrupted")
        return INTERRUPTED
    except Exception:
        sys.excepthook(*sys.exc_info())
        return WRONG_USE


def print_error(message: str) -> None:
    print(f"[ERROR] {printable(message)}", file=sys.stderr)
