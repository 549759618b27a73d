"""Leaving what started the agent (ssh, pdsh, a parent): from then on nothing of it is needed, and its end hurts nobody.

The process stays the one that the transport started, so that a transport which waits for its command sees its exit code, and a host
that ends a login's processes with the login does not do so in the middle of a run. But it is alone in its session, a hang-up means
nothing to it, and of the three streams it holds none: they may be closed at any time. In: the log for what it says from then on.
"""

from __future__ import annotations

import contextlib
import os
import signal
from pathlib import Path
from types import FrameType, TracebackType

from seatrial.disk.modes import READABLE

_STDIN, _STDOUT, _STDERR = 0, 1, 2


class Starter:
    """What the agent was started by, as long as there is something to say to it: its words end up in start.log."""

    def __init__(self) -> None:
        self._stderr: int | None = None
        with contextlib.suppress(OSError):
            self._stderr = os.dup(_STDERR)

    def __enter__(self) -> Starter:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.let_go()

    def say(self, sentence: str) -> None:
        with contextlib.suppress(OSError):
            os.write(_STDERR if self._stderr is None else self._stderr, f"seatrial.agent: {sentence}\n".encode(errors="replace"))

    def leave(self, log: Path) -> None:
        """Notes go to `log` from now on; only `say` still reaches the starter."""
        # Refused to who leads a session already, as ssh's commands often do.
        with contextlib.suppress(OSError):
            os.setsid()
        # A handler, not SIG_IGN: an ignored signal would stay ignored in the ranks.
        signal.signal(signal.SIGHUP, _nothing)
        _becomes(self._opened(log), _STDERR)
        _becomes(os.open(os.devnull, os.O_RDONLY), _STDIN)
        _becomes(os.open(os.devnull, os.O_WRONLY), _STDOUT)

    def _opened(self, log: Path) -> int:
        try:
            return os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, READABLE)
        except OSError as error:
            # A bad disk may cost words, and never the run.
            self.say(f"{log} cannot be written ({error.strerror}); what the agent has to say is lost")
            return os.open(os.devnull, os.O_WRONLY)

    def let_go(self) -> None:
        """The last stream."""
        if self._stderr is not None:
            os.close(self._stderr)
            self._stderr = None


def _becomes(handle: int, stream: int) -> None:
    os.dup2(handle, stream)
    if handle != stream:
        os.close(handle)


def _nothing(number: int, frame: FrameType | None) -> None:
    """A hang-up is no order."""
