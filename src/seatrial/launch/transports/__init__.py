"""What starts an agent on a host: the interface of transports, and child processes for them.

In: `StartRequest`s, one per host: the argv to run there and where to log. Out: `Exit`s of hosts whose starting process has ended. An
agent stays in the foreground as long as it lives, so an exit before it has connected means that the start failed.
"""

from __future__ import annotations

import contextlib
import operator
import os
import signal
import subprocess
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Protocol

import psutil

from seatrial.core.errors import LaunchError
from seatrial.core.timeouts import poll_until
from seatrial.machine.processes import read_cmdline

AGENT_EXIT_TIMEOUT_S = 40.0
"""Longer than an agent's own timeout for processes that do not die, and than its lease."""
# An agent that has sent its last report needs a moment to end, and its ssh another one.
EXIT_TIMEOUT_S = 3.0
POLL_S = 0.02


@dataclass(frozen=True, kw_only=True)
class StartRequest:
    """A command to start on a host."""

    host: str
    argv: tuple[str, ...]
    log: Path
    """Gets the output of the transport and the agent: nodes/<host>/start.log."""


@dataclass(frozen=True, kw_only=True)
class Exit:
    """How the starting process of one host ended."""

    text: str
    """`ssh ended with exit code 255`."""
    returncode: int | None = None


class RemoteCommand(Protocol):
    """A command that was started on a host beside its agent, and ends by itself."""

    def poll(self) -> Exit | None:
        """None while it may still be running; always None where that is unknown."""

    def abandon(self) -> None:
        """The caller no longer waits for it."""


class Transport(Protocol):
    """One way of starting agents."""

    def start(self, requests: Sequence[StartRequest]) -> None:
        """Start them all, without waiting for any."""

    def exits(self) -> dict[str, Exit]:
        """Hosts whose starting process has ended."""

    def run_command(self, request: StartRequest) -> RemoteCommand:
        """Run a command on a host whose agent is lost. LaunchError where it cannot be started."""

    def close(self, after_run: bool = True) -> None:
        """End the remaining starting processes; agents end when their connection does. `after_run`: agents may still have processes to
        end."""


def describe_exit(program: str, returncode: int) -> Exit:
    if returncode >= 0:
        return Exit(text=f"{program} ended with exit code {returncode}", returncode=returncode)
    try:
        name = signal.Signals(-returncode).name
    except ValueError:
        name = str(-returncode)
    return Exit(text=f"{program} was killed by signal {-returncode} ({name})", returncode=returncode)


class ChildProcess:
    """A child that starts agents, in its own session, so that Ctrl-C in the terminal reaches the harness alone."""

    def __init__(self, argv: Sequence[str], output: Path | None) -> None:
        """Both streams go to `output`, or with None to `stream`."""
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
        """Signal it and its descendants: pdsh gives each ssh a session of its own, and leaves them behind when it is killed."""
        descendants: list[int] = []
        with contextlib.suppress(psutil.Error):
            descendants = [process.pid for process in psutil.Process(self._process.pid).children(recursive=True)]
        for pid in [*descendants, self._process.pid]:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, number)


class ChildCommand:
    """A RemoteCommand that a child process runs."""

    def __init__(self, program: str, child: ChildProcess) -> None:
        self._program, self._child = program, child

    def poll(self) -> Exit | None:
        code = self._child.returncode
        return None if code is None else describe_exit(self._program, code)

    def abandon(self) -> None:
        self._child.signal(signal.SIGTERM)


def end_by_argv(commands: Collection[Sequence[str]], timeout_s: float = EXIT_TIMEOUT_S) -> int:
    """TERM, then KILL, for processes with exactly one of these command lines; returns their number.

    For children of a killed child, which can only be recognised by their argv.
    """
    wanted = {tuple(os.fsencode(argument) for argument in argv) for argv in commands}
    strays = [process for process in psutil.process_iter() if read_cmdline(process.pid) in wanted]
    for end in (psutil.Process.terminate, psutil.Process.kill):
        for process in strays:
            with contextlib.suppress(psutil.Error):
                end(process)
        if not psutil.wait_procs(strays, timeout_s)[1]:
            break
    return len(strays)


def end_children(children: Collection[ChildProcess], timeout_s: float | None = None) -> None:
    """Wait for all of them, TERM the remaining ones, then KILL, with one timeout for all."""
    for number in (signal.SIGTERM, signal.SIGKILL, None):
        wait_s = EXIT_TIMEOUT_S if timeout_s is None else timeout_s
        left = poll_until(lambda: [child for child in children if child.returncode is None], operator.not_, wait_s, POLL_S)
        if not left or number is None:
            return
        for child in left:
            child.signal(number)
        timeout_s = None
