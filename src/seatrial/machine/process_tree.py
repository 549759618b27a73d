"""The processes below one process, read from /proc with as few reads as will do.

In: the pid of a process that adopts its orphans (a child subreaper). Out: what each living descendant uses now. Because of the
adopting, a process is below it from its first moment to its last or never: each pid is judged once, when it first appears, and
after that only the descendants' own lines are read.
"""

from __future__ import annotations

import os
from pathlib import Path

from seatrial.machine.proc_files import PROC, ProcessLine, listed_pids, read_line

PID_NAMESPACE = PROC / "self/ns/pid"
# The kernel's own number for the first one.
FIRST_PID_NAMESPACE = "pid:[4026531836]"
# Pids are used again, if rarely: what was judged to be foreign is judged anew after so many looks.
LOOKS_BETWEEN_JUDGEMENTS = 60


class ProcessTree:
    """Looks at the descendants of `root` again and again."""

    def __init__(self, root: int, proc: Path = PROC) -> None:
        self._root, self._proc = root, str(proc)
        self._own: dict[int, int] = {}
        self._foreign: set[int] = set()
        self._looks = 0

    def look(self) -> dict[int, ProcessLine] | None:
        """Every living descendant by pid; None where there is no /proc."""
        try:
            present = listed_pids(self._proc)
        except OSError:
            return None
        self._looks += 1
        self._foreign = set() if self._looks % LOOKS_BETWEEN_JUDGEMENTS == 0 else self._foreign & present
        self._own = {pid: ticks for pid, ticks in self._own.items() if pid in present}
        found: dict[int, ProcessLine] = {}
        for pid in sorted(present - self._foreign):
            line = self._judged(pid)
            if line is not None and line.state not in "ZX":
                found[pid] = line
        return found

    def _judged(self, pid: int) -> ProcessLine | None:
        """The line of a descendant, None for any other process or one that ended."""
        line = read_line(self._proc, pid)
        if line is None:
            return None
        if self._own.get(pid) != line.started_ticks:
            below = self._is_below(line)
            if below is False:
                self._foreign.add(pid)
            if not below:
                return None
            self._own[pid] = line.started_ticks
        return line

    def _is_below(self, line: ProcessLine) -> bool | None:
        """None when a process above it ended while we looked: the next look will tell."""
        parent = line.parent
        while parent > 1 and parent != self._root:
            if parent in self._own:
                return True
            if parent in self._foreign:
                return False
            above = read_line(self._proc, parent)
            if above is None:
                return None
            parent = above.parent
        return parent == self._root


def is_below(pid: int, root: int, proc: Path = PROC) -> bool | None:
    """Whether `pid` is `root` or a descendant of it; None when there is no such process here."""
    line, at = read_line(str(proc), pid), pid
    if line is None:
        return None
    while at != root and line is not None and line.parent > 0:
        at = line.parent
        line = read_line(str(proc), at)
    return at == root


def in_first_namespace(namespace: Path = PID_NAMESPACE) -> bool:
    """Whether pids here are the host's own, which are those a driver tells; False where it cannot be told."""
    try:
        return os.readlink(namespace) == FIRST_PID_NAMESPACE  # noqa: PTH115 (a name of the kernel's, no path)
    except OSError:
        return False
