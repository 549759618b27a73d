"""The command line of the three small programs: strict flags, strict numbers, exit codes, and what is said.

In: the words of a command line. Out: their values, or a UsageError that names the flag (exit 1: argparse's own 2 would read as FAIL).
"""

from __future__ import annotations

import argparse
import contextlib
import io
import math
import os
from collections.abc import Sequence
from typing import NoReturn, TextIO

from seatrial.errors import UsageError, did_you_mean, nearest


class StrictParser(argparse.ArgumentParser):
    """No flag by its first letters, and an unknown one is answered with the nearest."""

    def __init__(self, description: str, examples: str) -> None:
        super().__init__(description=description, epilog=examples, allow_abbrev=False, formatter_class=argparse.RawDescriptionHelpFormatter)

    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{message}; see --help")

    def parse(self, argv: Sequence[str] | None) -> argparse.Namespace:
        """The values of all flags; a UsageError for a word that is none."""
        options, unknown = self.parse_known_args(argv)
        if unknown:
            word = unknown[0].partition("=")[0]
            flags = [name for action in self._actions for name in action.option_strings]
            hint = did_you_mean(word, flags) if nearest(word, flags) else "see --help"
            raise UsageError(f"unknown word '{unknown[0]}': {hint}")
        return options


def limit(text: str) -> float:
    """A number from 0 on."""
    value = _parsed(text)
    if not (math.isfinite(value) and value >= 0):
        raise argparse.ArgumentTypeError(f"'{text}' is no limit: expected a number from 0 on, such as 1.5")
    return value


def count(text: str) -> int:
    """A whole number from 1 on."""
    if not (text.isascii() and text.isdigit() and int(text) >= 1):
        raise argparse.ArgumentTypeError(f"'{text}' is no count: expected a whole number from 1 on")
    return int(text)


def say(text: str, stream: TextIO) -> None:
    """Write at once; neither a reader that has gone (`| head`) nor a letter the terminal does not know may change the exit code."""
    if isinstance(stream, io.TextIOWrapper):
        stream.reconfigure(errors="backslashreplace")
    try:
        stream.write(text)
        stream.flush()
    except BrokenPipeError:
        # Python would try again when it ends, and end with a code of its own.
        with contextlib.suppress(OSError, ValueError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def _parsed(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return math.nan
