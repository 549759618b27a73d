"""Stacks of every Python process of a run, on request, while the loop goes on.

    stacks = StackCollector(order); stacks.request(now) … stacks.advance(now) each turn … report `stacks`

Three ways, the least intrusive first: ranks that registered the signal write their own stacks (stacks/rank<r>.txt); py-spy dumps all
others, and ranks that wrote none (stacks/pid<P>.txt); a rank for which both failed gets ABRT where it has Python's fault handler, which
ends it with a trace in launcher.log. Every request is answered by one report within STACKS_TIMEOUT_S.

In: the run's processes, their /proc entries and start events. Out: the files, and how each was taken or why not.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import socket
import subprocess
import sysconfig
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from seatrial.agent.harness import note, send_report
from seatrial.agent.processes import is_stopped, list_descendants
from seatrial.core.durable_writes import write_text_durably
from seatrial.core.files import read_json_lines, size_bytes
from seatrial.core.paths import AttemptPaths
from seatrial.core.text import join_names
from seatrial.machine.processes import PROC, STOPPED, ProcessStat, read_environ, read_process
from seatrial.records.events import ENV_RUN_DIR, START_EVENT_WITHIN_LINES
from seatrial.records.launch import AgentOrder

# The harness waits for the report before it ends the run.
STACKS_TIMEOUT_S = 20.0
# From then on py-spy skips native frames, so that all processes get their turn.
SKIP_NATIVE_AFTER_S = 10.0
# A rank writes its stacks in milliseconds, unless its main thread cannot handle the signal.
SIGNAL_TIMEOUT_S = 3.0
# A file that has not grown for this long is complete.
QUIET_S = 0.3
# For a trace to be written and copied to the log.
ABORT_TIMEOUT_S = 1.0
# A signal waits at a process in such a state until it is resumed.
HELD_STATES = "Tt"
# A thousand processes must not give a report of a thousand names.
MAX_NAMED = 8
PY_SPY = "py-spy"
# Each uses a CPU for a moment, which the run needs too.
MAX_CONCURRENT_PY_SPY = 4
# Symbolising the native frames of a large program takes seconds.
PY_SPY_TIMEOUT_S = 5.0
MAX_DUMP_BYTES = 4 * 1024 * 1024
Mode = tuple[str, ...]
NATIVE: Mode = ("--native",)
PYTHON_ONLY: Mode = ()
NONBLOCKING: Mode = ("--nonblocking",)
# py-spy cannot stop a stopped process, and would wait with one in an uninterruptible call.
_CANNOT_BE_STOPPED = {STOPPED: "stopped (SIGSTOP)", "t": "held by a debugger", "D": "in a call the kernel cannot interrupt"}
_PYTHON_PROGRAM = re.compile(r"python|pypy")
_PYTHON_LIBRARY = b"libpython"
_RANK = b"RANK="


@dataclass(frozen=True, kw_only=True)
class PythonProcess:
    """One Python process of the run."""

    pid: int
    rank: int | None = None
    """The process's rank; None for launchers and for what a rank started."""
    of_rank: int | None = None
    """The rank that started this process (a data worker)."""
    state: str = "S"
    """The kernel's letter: R running, S sleeping, T stopped, D uninterruptible."""
    signal: str | None = None
    """The signal at which the rank writes its stacks, by its start event."""

    @property
    def name(self) -> str:
        if self.rank is not None:
            return f"rank {self.rank} (pid {self.pid})"
        return f"pid {self.pid}" if self.of_rank is None else f"pid {self.pid} of rank {self.of_rank}"


def find_python_processes(
    pids: Iterable[int], attempt: AttemptPaths, proc: Path = PROC, *, by_variable: bool = False
) -> list[PythonProcess]:
    """The live Python processes among `pids`, ranks first; `by_variable`: a start event counts only where RANK agrees."""
    read = {pid: read_process(str(proc), pid) for pid in pids}
    stats = {pid: found for pid, found in read.items() if found is not None and found.state not in "ZX"}
    python = [pid for pid in sorted(stats) if _is_python(proc / str(pid))]
    starts = _read_rank_starts(attempt, set(python))
    if by_variable:
        starts = {pid: start for pid, start in starts.items() if _rank_variable(pid, proc) in (None, start[0])}
    ranks = {pid: rank for pid, (rank, _) in starts.items()}
    ranks.update(_ranks_by_variable(python, stats, set(ranks.values()), proc))
    found = [
        PythonProcess(
            pid=pid,
            rank=ranks.get(pid),
            of_rank=None if pid in ranks else _rank_above(pid, stats, ranks),
            state=stats[pid].state,
            signal=starts[pid][1] if pid in starts else None,
        )
        for pid in python
    ]
    return sorted(found, key=_by_rank)


def _by_rank(process: PythonProcess) -> tuple[bool, int, int]:
    return process.rank is None, process.rank or 0, process.pid


def _read_rank_starts(attempt: AttemptPaths, pids: set[int]) -> dict[int, tuple[int, str | None]]:
    """Pid → rank and signal, by the start events of this attempt and host."""
    here = socket.gethostname()
    found: dict[int, tuple[int, str | None]] = {}
    for path in attempt.all_events():
        for event in _start_events(path):
            pid, rank, name = event.get("pid"), event.get("rank"), event.get("signal")
            if event.get("host") == here and event.get("attempt") == attempt.number and pid in pids and isinstance(rank, int):
                found[pid] = (rank, name if isinstance(name, str) else None)
    return found


def catches_signal(pid: int, number: int, proc: Path = PROC) -> bool:
    """Whether the process has a handler for a signal that would otherwise end it."""
    try:
        status = (proc / str(pid) / "status").read_text(encoding="utf-8", errors="replace")
        caught = next(line for line in status.splitlines() if line.startswith("SigCgt:"))
        return bool(int(caught.split()[1], 16) >> (number - 1) & 1)
    except (OSError, StopIteration, ValueError, IndexError):
        return False


def signal_number(name: str | None) -> int | None:
    """The number of `USR2`; None for no signal of this system."""
    found = getattr(signal, f"SIG{name}", None)
    return int(found) if isinstance(found, signal.Signals) else None


def _start_events(path: Path) -> Iterator[dict[str, object]]:
    with contextlib.suppress(OSError):
        yield from (event for event in islice(read_json_lines(path), START_EVENT_WITHIN_LINES) if event.get("kind") == "start")


def _is_python(process: Path) -> bool:
    try:
        if _PYTHON_PROGRAM.match(Path(os.readlink(process / "exe")).name):  # noqa: PTH115 (only the name is wanted)
            return True
        return _PYTHON_LIBRARY in (process / "maps").read_bytes()
    except OSError:
        return False


def _ranks_by_variable(python: Iterable[int], stats: Mapping[int, ProcessStat], known: set[int], proc: Path) -> dict[int, int]:
    """RANK of the environment, for the topmost Python process that has it: those below are its workers."""
    variables = {pid: _rank_variable(pid, proc) for pid in python}
    ranks = {pid: rank for pid, rank in variables.items() if rank is not None and rank not in known}
    return {pid: rank for pid, rank in ranks.items() if _rank_above(pid, stats, ranks) != rank}


def _rank_variable(pid: int, proc: Path) -> int | None:
    try:
        return next((int(variable[len(_RANK) :]) for variable in read_environ(pid, proc) if variable.startswith(_RANK)), None)
    except ValueError:
        return None


def _rank_above(pid: int, stats: Mapping[int, ProcessStat], ranks: Mapping[int, int]) -> int | None:
    """The rank of the nearest ancestor that has one."""
    above = stats[pid].parent
    while above in stats:
        if above in ranks:
            return ranks[above]
        above = stats[above].parent
    return None


def find_py_spy() -> str | None:
    """py-spy of our own installation, else of the PATH."""
    own = Path(sysconfig.get_path("scripts")) / PY_SPY
    return str(own) if os.access(own, os.X_OK) else shutil.which(PY_SPY)


def describe_hold(state: str) -> str:
    """What keeps a process in this state from running; empty for the usual states."""
    return _CANNOT_BE_STOPPED.get(state, "")


@dataclass
class _Candidate:
    """One process, and the modes left to try."""

    process: PythonProcess
    modes: list[Mode]


@dataclass
class PySpyRun:
    """One running py-spy and where its output goes."""

    candidate: _Candidate
    child: subprocess.Popen[bytes]
    out: int
    err: int
    deadline: float


class PySpyQueue:
    """py-spy on many processes, a few at a time, each with its own timeout. Nothing here blocks.

    Native frames are tried first, then Python frames alone, then without stopping the process. Each dump begins with its process.
    """

    def __init__(self, attempt: AttemptPaths, program: str | None, own: AttemptPaths) -> None:
        self._attempt, self._program, self._own = attempt, program, own
        self._queue: deque[_Candidate] = deque()
        self._running: dict[int, PySpyRun] = {}
        self.dumped: list[PythonProcess] = []
        self.failed: dict[PythonProcess, str] = {}

    @property
    def pids(self) -> set[int]:
        """Children of the agent that are not part of the run."""
        return set(self._running)

    @property
    def busy(self) -> bool:
        return bool(self._queue or self._running)

    def add(self, process: PythonProcess) -> None:
        if self._program is None:
            self.failed[process] = f"{PY_SPY} is not installed"
            return
        modes = [NONBLOCKING] if describe_hold(process.state) else [NATIVE, PYTHON_ONLY, NONBLOCKING]
        self._queue.append(_Candidate(process, modes))

    def advance(self, now: float) -> None:
        """Kill those that have timed out, start waiting ones."""
        for run in self._running.values():
            if now >= run.deadline:
                _kill(run)
        while self._queue and len(self._running) < MAX_CONCURRENT_PY_SPY:
            self._start(self._queue.popleft(), now)

    def skip_native_frames(self) -> None:
        """Take Python frames alone, in a fiftieth of the time."""
        for candidate in self._queue:
            candidate.modes = [mode for mode in candidate.modes if mode != NATIVE]

    def on_exit(self, pid: int, code: int) -> None:
        """Read the output of a py-spy that ended; any other child is ignored."""
        run = self._running.pop(pid, None)
        if run is None:
            return
        # Popen must not wait for what waitpid(-1) has already collected.
        run.child.returncode = code
        text, errors = _read_and_close(run.out), _read_and_close(run.err)
        if code == 0 and b"Thread " in text:
            self._write(run.candidate.process, text)
        elif run.candidate.modes:
            self._queue.appendleft(run.candidate)
        else:
            self.failed[run.candidate.process] = _describe_failure(code, errors)

    def give_up(self, why: str) -> None:
        """Drop the queue; the running ones are killed and their exit codes still come."""
        while self._queue:
            self.failed[self._queue.popleft().process] = why
        for run in self._running.values():
            run.candidate.modes.clear()
            _kill(run)

    def _start(self, candidate: _Candidate, now: float) -> None:
        out, err = (os.memfd_create(f"{PY_SPY}-{name}", os.MFD_CLOEXEC) for name in ("out", "err"))
        pid = candidate.process.pid
        argv = [str(self._program), "dump", "--full-filenames", *candidate.modes.pop(0), "--pid", str(pid)]
        # The harness finds it by this variable, should the agent die.
        env = {**os.environ, "RUST_BACKTRACE": "0", ENV_RUN_DIR: str(self._attempt.folder)}
        try:
            # No preexec_fn: other threads of the agent may hold locks by now.
            child = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=out, stderr=err, env=env, start_new_session=True)
        except OSError as error:
            os.close(out)
            os.close(err)
            self.failed[candidate.process] = f"{PY_SPY} could not be started: {error.strerror}"
            return
        self._running[child.pid] = PySpyRun(candidate, child, out, err, now + PY_SPY_TIMEOUT_S)

    def _write(self, process: PythonProcess, text: bytes) -> None:
        # py-spy begins with the command, whose secrets are not masked; Python's version comes after it.
        dump = text[max(0, text.rfind(b"\nPython v")) :].lstrip(b"\n")
        if write_text_durably(self._own.process_stack(process.pid), _heading(process) + dump.decode("utf-8", errors="replace")):
            self.dumped.append(process)
        else:
            self.failed[process] = "its stacks could not be written"


def _heading(process: PythonProcess) -> str:
    whose = ""
    if process.rank is not None:
        whose = f"rank {process.rank} "
    elif process.of_rank is not None:
        whose = f"worker of rank {process.of_rank} "
    held = describe_hold(process.state)
    return f"# {whose}pid {process.pid}\n" + (f"# state {process.state}: {held}\n" if held else "")


def _kill(run: PySpyRun) -> None:
    """Kill a py-spy; the process it was attached to must not stay stopped."""
    with contextlib.suppress(OSError):
        os.kill(run.child.pid, signal.SIGKILL)
    process = run.candidate.process
    if not describe_hold(process.state) and is_stopped(process.pid):
        with contextlib.suppress(OSError):
            os.kill(process.pid, signal.SIGCONT)


def _read_and_close(fd: int) -> bytes:
    try:
        return os.pread(fd, MAX_DUMP_BYTES, 0)
    except OSError:
        return b""
    finally:
        os.close(fd)


def _describe_failure(code: int, errors: bytes) -> str:
    if code == -signal.SIGKILL:
        return f"{PY_SPY} took too long"
    lines = [line.strip() for line in errors.decode("utf-8", errors="replace").splitlines() if line.strip()]
    return f"{PY_SPY}: " + (lines[0].removeprefix("Error: ") if lines else f"exit code {code}")


@dataclass
class SignalledRank:
    """A rank that was signalled, and its file as last seen."""

    process: PythonProcess
    path: Path
    size_before: int
    size: int
    changed_at: float
    deadline: float

    def has_answered(self, now: float) -> bool | None:
        """Whether its stacks are written; None while undecided."""
        size = size_bytes(self.path)
        if size != self.size:
            self.size, self.changed_at = size, now
        if size > self.size_before and now - self.changed_at >= QUIET_S:
            return True
        return None if now < self.deadline else size > self.size_before


class StackCollector:
    """Handles one request at a time; a request that comes meanwhile is answered by the same report."""

    def __init__(self, order: AgentOrder, pids: Callable[[], Iterable[int]] | None = None, program: str | None = None) -> None:
        self._attempt, self._own = AttemptPaths(Path(order.attempt_folder)), AttemptPaths(Path(order.writes_to))
        # Hosts of the same name may have processes of the same pid; the RANK variable then decides.
        self._by_variable = order.call is not None
        self._signal = order.stack_signal
        self._pids = pids or (lambda: [process.pid for process in list_descendants()])
        self._program = program or find_py_spy()
        self._py_spy = PySpyQueue(self._attempt, self._program, self._own)
        self._processes: list[PythonProcess] = []
        self._waiting: list[SignalledRank] = []
        self._by_signal: list[PythonProcess] = []
        self._aborted: list[PythonProcess] = []
        self._began = 0.0
        self._abort_deadline: float | None = None
        self._cut_short = ""
        self.busy = False

    @property
    def helper_pids(self) -> set[int]:
        """Children of the agent that are not part of the run."""
        return self._py_spy.pids

    def request(self, now: float) -> None:
        """Begin; the report is sent when all stacks are taken."""
        if self.busy or self._py_spy.busy:
            return
        self._py_spy = PySpyQueue(self._attempt, self._program, self._own)
        self._by_signal, self._aborted, self._abort_deadline = [], [], None
        self._began, self._cut_short, self.busy = now, "", True
        self._processes = find_python_processes(self._pids(), self._attempt, by_variable=self._by_variable)
        self._waiting = [rank for process in self._processes if (rank := self._signal_rank(process, now)) is not None]
        signalled = {rank.process.pid for rank in self._waiting}
        for process in self._processes:
            if process.pid not in signalled:
                self._py_spy.add(process)

    def advance(self, now: float) -> None:
        """Continue as far as possible without blocking."""
        if not self.busy:
            return
        for rank in list(self._waiting):
            self._check(rank, now)
        if now - self._began >= STACKS_TIMEOUT_S:
            self._py_spy.give_up("skipped: out of time")
        elif now - self._began >= SKIP_NATIVE_AFTER_S:
            self._py_spy.skip_native_frames()
        self._py_spy.advance(now)
        if not self._waiting and not self._py_spy.busy and not self._is_aborting(now):
            self._finish()

    def on_exit(self, pid: int, code: int) -> None:
        """A child of the agent ended, a py-spy or any other."""
        self._py_spy.on_exit(pid, code)

    def cancel(self, why: str) -> None:
        """The processes are about to end: report what is there."""
        self._py_spy.give_up(why)
        if self.busy:
            self._waiting, self._cut_short = [], why
            self._finish()

    def _signal_rank(self, process: PythonProcess, now: float) -> SignalledRank | None:
        """Signal the rank only if it named the signal and handles it: otherwise it would die."""
        number = signal_number(self._signal)
        if number is None or process.rank is None or process.signal != self._signal or process.state in HELD_STATES:
            return None
        path = self._attempt.rank_stack(process.rank)
        before = size_bytes(path)
        if not catches_signal(process.pid, number) or not _send(process.pid, number):
            return None
        return SignalledRank(process, path, before, before, now, now + SIGNAL_TIMEOUT_S)

    def _check(self, rank: SignalledRank, now: float) -> None:
        answered = rank.has_answered(now)
        if answered is None:
            return
        self._waiting.remove(rank)
        if answered:
            self._by_signal.append(rank.process)
        else:
            self._py_spy.add(rank.process)

    def _is_aborting(self, now: float) -> bool:
        """Send ABRT as the last resort, and wait for its traces."""
        if self._abort_deadline is None:
            dumped = {process.pid for process in (*self._by_signal, *self._py_spy.dumped)}
            ranks = [process for process in self._processes if process.rank is not None] or self._processes
            silent = [process for process in ranks if process.pid not in dumped]
            self._aborted = [
                process for process in silent if catches_signal(process.pid, signal.SIGABRT) and _send(process.pid, signal.SIGABRT)
            ]
            self._abort_deadline = now + (ABORT_TIMEOUT_S if self._aborted else 0.0)
        return now < self._abort_deadline

    def _finish(self) -> None:
        self.busy = False
        detail = self._describe()
        note(f"stacks: {detail}")
        send_report("stacks", detail=detail)

    def _describe(self) -> str:
        parts = []
        if self._by_signal:
            parts.append(f"by signal: {_names(self._by_signal)}")
        if self._py_spy.dumped:
            parts.append(f"by py-spy: {_names(self._py_spy.dumped)}")
        parts += [f"{process.name} was {describe_hold(process.state)}" for process in self._processes if describe_hold(process.state)]
        for reason in dict.fromkeys(self._py_spy.failed.values()):
            failed = [process for process, why in self._py_spy.failed.items() if why == reason]
            parts.append(f"not {_names(failed)} ({reason})")
        if self._aborted:
            parts.append(f"ABRT sent to {_names(self._aborted)}, whose traces are in launcher.log")
        if self._cut_short:
            parts.append(self._cut_short)
        return "; ".join(parts) or "no Python process was running"


def _names(processes: list[PythonProcess]) -> str:
    return join_names([process.name for process in sorted(processes, key=_by_rank)], MAX_NAMED)


def _send(pid: int, number: int) -> bool:
    try:
        os.kill(pid, number)
    except OSError:
        return False
    return True
