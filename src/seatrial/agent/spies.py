"""py-spy, a few at a time, each with its own time limit, beside everything else the agent does.

In: Python processes whose stacks are wanted. Out: stacks/pid<P>.txt for each that gave its stacks, whose first line says whose they
are, and the reason for each that did not. Native frames are tried first, then Python's alone, then without halting the process.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sysconfig
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from seatrial.agent.python_processes import PythonProcess
from seatrial.agent.tree import is_stopped
from seatrial.files import write_text_surely
from seatrial.machine.proc_files import STOPPED
from seatrial.paths import AttemptPaths
from seatrial.records.events import ENV_RUN_DIR

# Each takes a processor for a moment, and the run needs them too.
MOST_AT_ONCE = 4
# Native frames of a large program take seconds to be named.
EACH_S = 5.0
LONGEST_TEXT_BYTES = 4 * 1024 * 1024
PROGRAM = "py-spy"
Way = tuple[str, ...]
NATIVE: Way = ("--native",)
PLAIN: Way = ()
WITHOUT_A_HALT: Way = ("--nonblocking",)
# A stopped process cannot be halted once more, and one in an uninterruptible call would make py-spy wait with it.
_CANNOT_BE_HALTED = {STOPPED: "stopped (SIGSTOP)", "t": "held by a debugger", "D": "in a call the kernel cannot interrupt"}


def find_py_spy() -> str | None:
    """py-spy of our own installation, else of the PATH."""
    own = Path(sysconfig.get_path("scripts")) / PROGRAM
    return str(own) if os.access(own, os.X_OK) else shutil.which(PROGRAM)


def hold_words(state: str) -> str:
    """What keeps a process in this state from going on by itself; empty for the usual states."""
    return _CANNOT_BE_HALTED.get(state, "")


@dataclass
class Candidate:
    """One process, and the ways left to look at it."""

    process: PythonProcess
    ways: list[Way]


@dataclass
class Spy:
    """One running py-spy and where its words go."""

    candidate: Candidate
    child: subprocess.Popen[bytes]
    out: int
    err: int
    until: float


class Spies:
    """Asks for the stacks of many processes. Nothing here waits: `look` starts, limits and gives up, `ended` takes exit codes."""

    def __init__(self, attempt: AttemptPaths, program: str | None, own: AttemptPaths | None = None) -> None:
        """`own`: where the stacks go, if not to the attempt's folder."""
        self._attempt, self._program, self._own = attempt, program, own or attempt
        self._queue: deque[Candidate] = deque()
        self._running: dict[int, Spy] = {}
        self.taken: list[PythonProcess] = []
        self.refused: dict[PythonProcess, str] = {}

    @property
    def pids(self) -> set[int]:
        """Children of the agent that are no part of the run."""
        return set(self._running)

    @property
    def busy(self) -> bool:
        return bool(self._queue or self._running)

    def ask(self, process: PythonProcess) -> None:
        if self._program is None:
            self.refused[process] = f"{PROGRAM} is not installed"
            return
        ways = [WITHOUT_A_HALT] if hold_words(process.state) else [NATIVE, PLAIN, WITHOUT_A_HALT]
        self._queue.append(Candidate(process, ways))

    def look(self, now: float) -> None:
        """Kill those that take too long, start those that wait."""
        for spy in self._running.values():
            if now >= spy.until:
                _kill(spy)
        while self._queue and len(self._running) < MOST_AT_ONCE:
            self._start(self._queue.popleft(), now)

    def hurry(self) -> None:
        """Time grows short: Python's own frames alone, which take a fiftieth of the time."""
        for candidate in self._queue:
            candidate.ways = [way for way in candidate.ways if way != NATIVE]

    def ended(self, pid: int, code: int) -> bool:
        """Whether the child with this pid was one of ours; its words are taken in."""
        spy = self._running.pop(pid, None)
        if spy is None:
            return False
        # Popen must not wait for what waitpid(-1) has already collected.
        spy.child.returncode = code
        text, complaint = _taken(spy.out), _taken(spy.err)
        if code == 0 and b"Thread " in text:
            self._keep(spy.candidate.process, text)
        else:
            self._again(spy.candidate, _reason(code, complaint))
        return True

    def give_up(self, why: str) -> None:
        """No more candidates; the running ones are killed and their exit codes still come."""
        while self._queue:
            self.refused[self._queue.popleft().process] = why
        for spy in self._running.values():
            spy.candidate.ways.clear()
            _kill(spy)

    def _start(self, candidate: Candidate, now: float) -> None:
        out, err = (os.memfd_create(f"{PROGRAM}-{name}", os.MFD_CLOEXEC) for name in ("out", "err"))
        pid = candidate.process.pid
        argv = [str(self._program), "dump", "--full-filenames", *candidate.ways.pop(0), "--pid", str(pid)]
        try:
            # No function between fork and exec: other threads of the agent may hold locks by now. The marker lets the harness find it.
            child = subprocess.Popen(
                argv, stdin=subprocess.DEVNULL, stdout=out, stderr=err, env=self._environment(os.environ), start_new_session=True
            )
        except OSError as error:
            _close(out, err)
            self.refused[candidate.process] = f"{PROGRAM} could not be started: {error.strerror}"
            return
        self._running[child.pid] = Spy(candidate, child, out, err, now + EACH_S)

    def _environment(self, caller: Mapping[str, str]) -> dict[str, str]:
        return {**caller, "RUST_BACKTRACE": "0", ENV_RUN_DIR: str(self._attempt.folder)}

    def _again(self, candidate: Candidate, reason: str) -> None:
        if candidate.ways:
            self._queue.appendleft(candidate)
        else:
            self.refused[candidate.process] = reason

    def _keep(self, process: PythonProcess, text: bytes) -> None:
        shown = _heading(process) + _without_command(text).decode("utf-8", errors="replace")
        if write_text_surely(self._own.process_stack(process.pid), shown):
            self.taken.append(process)
        else:
            self.refused[process] = "its stacks could not be written"


def _heading(process: PythonProcess) -> str:
    whose = ""
    if process.rank is not None:
        whose = f"rank {process.rank} "
    elif process.of_rank is not None:
        whose = f"worker of rank {process.of_rank} "
    held = hold_words(process.state)
    return f"# {whose}pid {process.pid}\n" + (f"# state {process.state}: {held}\n" if held else "")


def _without_command(text: bytes) -> bytes:
    """py-spy begins with the words of the command, whose secrets nobody masked; the version of Python stands behind them."""
    return text[max(0, text.rfind(b"\nPython v")) :].lstrip(b"\n")


def _kill(spy: Spy) -> None:
    """End a py-spy; the process it looked at must not stay halted by it."""
    with contextlib.suppress(OSError):
        os.kill(spy.child.pid, signal.SIGKILL)
    process = spy.candidate.process
    if not hold_words(process.state) and is_stopped(process.pid):
        with contextlib.suppress(OSError):
            os.kill(process.pid, signal.SIGCONT)


def _taken(handle: int) -> bytes:
    try:
        return os.pread(handle, LONGEST_TEXT_BYTES, 0)
    except OSError:
        return b""
    finally:
        _close(handle)


def _close(*handles: int) -> None:
    for handle in handles:
        os.close(handle)


def _reason(code: int, complaint: bytes) -> str:
    if code == -signal.SIGKILL:
        return f"{PROGRAM} took too long"
    lines = [line.strip() for line in complaint.decode("utf-8", errors="replace").splitlines() if line.strip()]
    told = lines[0].removeprefix("Error: ") if lines else f"exit code {code}"
    return f"{PROGRAM}: {told}"
