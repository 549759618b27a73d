"""What makes a command a program: errors in one line, exit codes, signals, and an output that nothing can break.

In: what is to be done, as a function that returns an exit code, and how errors are said. Out: the end of the process. `seatrial` is one
such program, the drivers of runbooks are others; a runbook's small checks have `seatrial_runbooks/stage1/command_line.py`.
"""

from __future__ import annotations

import contextlib
import io
import os
import sys
from collections.abc import Callable
from typing import Any, NoReturn

from seatrial.cli.machine_trouble import machine_trouble
from seatrial.cli.stop_signals import StopSignals
from seatrial.errors import SeatrialError
from seatrial.machine.patience import is_stuck
from seatrial.records.exit_codes import INTERRUPTED, WRONG_USE

Act = Callable[[], int]
Say = Callable[[str], None]


def answered(act: Act, say: Say) -> int:
    """What `act` returns; an error that people can act on is said and becomes its exit code. Others, and an interrupt, are raised."""
    try:
        return act()
    except SeatrialError as error:
        say(str(error))
        return error.exit_code
    except Exception as error:
        trouble = machine_trouble(error)
        if trouble is None:
            raise
        say(trouble)
        return WRONG_USE


def exit_with(act: Act, say: Say | None = None) -> NoReturn:
    """Do it and end the process with its code; an interrupt is 130 whatever it broke off, and is said where `say` is given."""
    sys.stdout, sys.stderr = Unbreakable(sys.stdout), Unbreakable(sys.stderr)
    with StopSignals() as signals:
        try:
            code = act()
        except KeyboardInterrupt:
            code = INTERRUPTED
        except Exception:
            if not is_stuck():
                raise
            sys.excepthook(*sys.exc_info())
            code = WRONG_USE
    if signals.raised and say is not None:
        say("interrupted")
    _end_process(INTERRUPTED if signals.raised else code, at_once=signals.raised)


def _end_process(code: int, *, at_once: bool) -> NoReturn:
    """`at_once` where a signal broke something off."""
    sys.stdout.flush()
    sys.stderr.flush()
    if is_stuck() or at_once:
        # A driver that hangs holds locks that the usual way out would wait for; and an interpreter that was broken off in the middle of
        # an import may end by a signal of its own instead of with the exit code.
        os._exit(code)
    sys.exit(code)


class Unbreakable:
    """An output that nothing written to it can break: a reader that has gone (`| head`), a full disk or a closed stream silences it, a
    character it cannot show becomes a question mark. A campaign of hours must not end because nobody listens."""

    def __init__(self, stream: Any) -> None:
        # Python has None where the stream was closed before it started.
        self._stream = stream if stream is not None else io.StringIO()
        if isinstance(self._stream, io.TextIOWrapper):
            self._stream.reconfigure(errors="replace")

    def write(self, text: str) -> int:
        try:
            return int(self._stream.write(text))
        except (OSError, ValueError):
            self._silence()
            return len(text)

    def flush(self) -> None:
        try:
            self._stream.flush()
        except (OSError, ValueError):
            self._silence()

    def _silence(self) -> None:
        # The broken stream keeps what it could not write and would try again when Python ends.
        with contextlib.suppress(OSError, ValueError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), self._stream.fileno())
        self._stream = io.StringIO()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)
