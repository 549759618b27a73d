"""One child process that starts agents: in a session of its own, so that Ctrl-C in the terminal reaches the harness alone.

In: words to start. Out: its exit code, once there is one; TERM and KILL reach all that it has started, too.
"""

from __future__ import annotations

import contextlib
import operator
import os
import signal
import subprocess
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import IO

import psutil

from seatrial.errors import LaunchError
from seatrial.launch.transports.transport import Ended, ending
from seatrial.machine.patience import looked_for
from seatrial.machine.proc_files import command_words

# An agent that has said its last word needs a moment to end, and its ssh another one.
LEAVE_PATIENCE_S = 3.0
LOOK_EVERY_S = 0.02


class Child:
    """A started process, and the end of it."""

    def __init__(self, argv: Sequence[str], output: Path | None) -> None:
        """`output` gets both streams; None leaves them to be read from `stream`."""
        try:
            with open(os.devnull if output is None else output, "ab") as log:
                self._process = subprocess.Popen(
                    argv,
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE if output is None else log,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                )
        except (OSError, ValueError) as error:
            raise LaunchError(
                f"'{argv[0]}' could not be started ({error}): check that it is installed, memory and process limits"
            ) from error

    @property
    def stream(self) -> IO[bytes]:
        assert self._process.stdout is not None
        return self._process.stdout

    @property
    def returncode(self) -> int | None:
        return self._process.poll()

    def signal(self, number: int) -> None:
        """To it and to all below it: pdsh gives each of its ssh a session of its own, and leaves them behind when it is killed."""
        for pid in [*self._below(), self._process.pid]:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, number)

    def _below(self) -> list[int]:
        with contextlib.suppress(psutil.Error):
            return [process.pid for process in psutil.Process(self._process.pid).children(recursive=True)]
        return []


class ChildErrand:
    """An errand by a child process."""

    def __init__(self, program: str, child: Child) -> None:
        self._program, self._child = program, child

    def ended(self) -> Ended | None:
        code = self._child.returncode
        return None if code is None else ending(self._program, code)

    def drop(self) -> None:
        self._child.signal(signal.SIGTERM)


def end_strays(commands: Collection[Sequence[str]], patience_s: float = LEAVE_PATIENCE_S) -> int:
    """TERM, then KILL, for processes with one of these very command lines; how many there were.

    For children of a child that was killed: nobody is their parent any more, and their words alone tell whose they are.
    """
    wanted = {tuple(os.fsencode(word) for word in words) for words in commands}
    strays = [process for process in psutil.process_iter() if command_words(process.pid) in wanted]
    for end in (psutil.Process.terminate, psutil.Process.kill):
        for process in strays:
            with contextlib.suppress(psutil.Error):
                end(process)
        if not psutil.wait_procs(strays, patience_s)[1]:
            break
    return len(strays)


def end_all(children: Collection[Child], patience_s: float | None = None) -> None:
    """Wait for all of them, TERM those that are left, then KILL. One patience for all: a thousand hosts that went down take no longer."""
    for number in (signal.SIGTERM, signal.SIGKILL, None):
        left = _left_after(children, LEAVE_PATIENCE_S if patience_s is None else patience_s)
        if not left or number is None:
            return
        for child in left:
            child.signal(number)
        patience_s = None


def _left_after(children: Collection[Child], patience_s: float) -> list[Child]:
    return looked_for(lambda: [child for child in children if child.returncode is None], operator.not_, patience_s, LOOK_EVERY_S)
