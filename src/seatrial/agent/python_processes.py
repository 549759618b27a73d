"""Which descendants are Python, which of them are ranks, and which may be asked for their stacks by a signal.

In: pids of descendants, their /proc entries, the start events of the attempt. Out: one PythonProcess each, ranks first.
"""

from __future__ import annotations

import os
import re
import signal
import socket
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from seatrial.files import read_json_lines
from seatrial.machine.proc_files import PROC, ProcessLine, environment_words, read_line
from seatrial.paths import AttemptPaths
from seatrial.records.events import START_EVENT_WITHIN_LINES

_PROGRAM = re.compile(r"python|pypy")
_LIBRARY = b"libpython"
_RANK = b"RANK="


@dataclass(frozen=True, kw_only=True)
class PythonProcess:
    """One Python process of the run."""

    pid: int
    rank: int | None = None
    """Of the rank itself; None for launchers and for what a rank started."""
    of_rank: int | None = None
    """For what a rank started (data workers): that rank."""
    state: str = "S"
    """The kernel's letter: R runs, S sleeps, T is stopped, D cannot be interrupted."""
    signal: str | None = None
    """What the rank's start event says it answers with its stacks."""

    @property
    def name(self) -> str:
        if self.rank is not None:
            return f"rank {self.rank} (pid {self.pid})"
        return f"pid {self.pid}" if self.of_rank is None else f"pid {self.pid} of rank {self.of_rank}"


@dataclass(frozen=True, kw_only=True)
class RankStart:
    """What a rank's start event says of its process."""

    rank: int
    signal: str | None


def python_processes(pids: Iterable[int], attempt: AttemptPaths, proc: Path = PROC, *, by_variable: bool = False) -> list[PythonProcess]:
    """Those of `pids` that are Python and live, ranks first; `by_variable`: a rank is one only where its RANK says the same."""
    read = {pid: read_line(str(proc), pid) for pid in pids}
    lines = {pid: line for pid, line in read.items() if line is not None and line.state not in "ZX"}
    python = [pid for pid in sorted(lines) if _is_python(proc / str(pid))]
    starts = rank_starts(attempt, set(python))
    if by_variable:
        starts = {pid: start for pid, start in starts.items() if _rank_variable(pid, proc) in (None, start.rank)}
    ranks = {pid: start.rank for pid, start in starts.items()}
    ranks.update(_ranks_by_variable(python, lines, set(ranks.values()), proc))
    found = [
        PythonProcess(
            pid=pid,
            rank=ranks.get(pid),
            of_rank=None if pid in ranks else _rank_above(pid, lines, ranks),
            state=lines[pid].state,
            signal=starts[pid].signal if pid in starts else None,
        )
        for pid in python
    ]
    return sorted(found, key=lambda process: (process.rank is None, process.rank or 0, process.pid))


def rank_starts(attempt: AttemptPaths, pids: set[int], host: str | None = None) -> dict[int, RankStart]:
    """Start events of this attempt and host whose process is among `pids`."""
    here = host or socket.gethostname()
    found: dict[int, RankStart] = {}
    for path in attempt.all_events():
        for event in _start_events(path):
            pid, rank, name = event.get("pid"), event.get("rank"), event.get("signal")
            if event.get("host") == here and event.get("attempt") == attempt.number and pid in pids and isinstance(rank, int):
                found[pid] = RankStart(rank=rank, signal=name if isinstance(name, str) else None)
    return found


def catches(pid: int, number: int, proc: Path = PROC) -> bool:
    """Whether the process has a handler for a signal that would else end it."""
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
    try:
        for event in islice(read_json_lines(path), START_EVENT_WITHIN_LINES):
            if event.get("kind") == "start":
                yield event
    except OSError:
        return


def _is_python(process: Path) -> bool:
    try:
        if _PROGRAM.match(Path(os.readlink(process / "exe")).name):  # noqa: PTH115 (the name alone is wanted)
            return True
        return _LIBRARY in (process / "maps").read_bytes()
    except OSError:
        return False


def _ranks_by_variable(python: Iterable[int], lines: Mapping[int, ProcessLine], known: set[int], proc: Path) -> dict[int, int]:
    """RANK of the environment, for the uppermost Python process that has it: those below are its workers."""
    told = {pid: _rank_variable(pid, proc) for pid in python}
    ranks = {pid: rank for pid, rank in told.items() if rank is not None and rank not in known}
    return {pid: rank for pid, rank in ranks.items() if _rank_above(pid, lines, ranks) != rank}


def _rank_variable(pid: int, proc: Path) -> int | None:
    try:
        return next((int(variable[len(_RANK) :]) for variable in environment_words(pid, proc) if variable.startswith(_RANK)), None)
    except ValueError:
        return None


def _rank_above(pid: int, lines: Mapping[int, ProcessLine], ranks: Mapping[int, int]) -> int | None:
    """The rank of the nearest process above that has one."""
    above = lines[pid].parent
    while above in lines:
        if above in ranks:
            return ranks[above]
        above = lines[above].parent
    return None
