"""Who uses the processors: two looks at /proc and what lies between them.

`take()` is one look, `between(before, after)` the cores that were busy, our own share taken out, with the biggest foreign users by name.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from seatrial.machine.proc_files import PROC, all_pids, read_line
from seatrial.machine.running_agents import command_of, is_agent

MOST_NAMED = 3
WORTH_NAMING_CORES = 0.05


@dataclass(frozen=True, kw_only=True)
class ProcessLook:
    """One process at one moment."""

    pid: int
    parent: int
    name: str
    cpu_s: float
    reaped_s: float = 0.0
    """Processor time of children it has waited for, their whole lives at once."""


@dataclass(frozen=True, kw_only=True)
class Look:
    """All processes at one moment."""

    m: float
    busy_s: float = 0.0
    """Processor time of the whole host since it came up."""
    blocked: int = 0
    """Processes that wait for a disk."""
    processes: Mapping[int, ProcessLook] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class CpuUser:
    """A foreign process and the cores it keeps busy."""

    pid: int
    name: str
    cores: float

    def __str__(self) -> str:
        return f"{self.name} (pid {self.pid}) {100 * self.cores:.0f} %"


@dataclass(frozen=True, kw_only=True)
class Activity:
    """What others did between two looks."""

    span_s: float
    foreign_cores: float
    users: tuple[CpuUser, ...] = ()
    """The biggest first."""
    blocked: int = 0


def take(proc: Path = PROC) -> Look:
    """One look; costs about 30 µs a process."""
    m = time.monotonic()
    busy_s, blocked = _host(proc)
    return Look(m=m, busy_s=busy_s, blocked=blocked, processes={look.pid: look for look in _all(proc)})


def between(before: Look, after: Look, own_pid: int | None = None) -> Activity:
    """Cores in use by others from one look to the next; those that this process and its kin used are not counted."""
    span_s = max(after.m - before.m, 1e-9)
    own = os.getpid() if own_pid is None else own_pid
    kin = kin_of(after, own)
    spent = {pid: max(0.0, look.cpu_s - _cpu_s(before, pid)) for pid, look in after.processes.items()}
    users = [CpuUser(pid=pid, name=after.processes[pid].name, cores=cpu_s / span_s) for pid, cpu_s in spent.items() if pid not in kin]
    own_s = sum(cpu_s for pid, cpu_s in spent.items() if pid in kin) + _reaped_s(after, own) - _reaped_s(before, own)
    # In a container the host's counter also has what other containers do; where there is none, what is seen must do.
    hidden = (after.busy_s - before.busy_s - own_s) / span_s
    seen = sum(user.cores for user in users)
    biggest = sorted((user for user in users if user.cores >= WORTH_NAMING_CORES), key=lambda user: -user.cores)[:MOST_NAMED]
    return Activity(span_s=span_s, foreign_cores=max(seen, hidden, 0.0), users=tuple(biggest), blocked=after.blocked)


def kin_of(look: Look, pid: int) -> set[int]:
    """`pid`, its ancestors and its descendants."""
    kin, above = {pid}, look.processes.get(pid)
    while above is not None and above.parent not in kin:
        kin.add(above.parent)
        above = look.processes.get(above.parent)
    below = {pid}
    while below:
        below = {child.pid for child in look.processes.values() if child.parent in below} - kin
        kin |= below
    return kin


def foreign_agents(look: Look, own_pid: int | None = None, proc: Path = PROC) -> list[tuple[int, str]]:
    """(pid, path of its order) of each agent that another harness started: OUT/<run>/attempt-N/agent.json or a node's call.json."""
    own = os.getpid() if own_pid is None else own_pid
    found = []
    for process in look.processes.values():
        if process.parent != own and "python" in process.name:
            words = command_of(process.pid, proc)
            if is_agent(words):
                found.append((process.pid, words[-1]))
    return sorted(found)


def _cpu_s(look: Look, pid: int) -> float:
    process = look.processes.get(pid)
    return process.cpu_s if process else 0.0


def _reaped_s(look: Look, pid: int) -> float:
    process = look.processes.get(pid)
    return process.reaped_s if process else 0.0


def _all(proc: Path) -> Iterator[ProcessLook]:
    for pid in sorted(all_pids(proc)):
        # A process may end between the listing and the reading.
        line = read_line(str(proc), pid)
        if line is not None:
            yield ProcessLook(pid=pid, parent=line.parent, name=line.name, cpu_s=line.cpu_s, reaped_s=line.reaped_s)


def _host(proc: Path) -> tuple[float, int]:
    """Busy seconds of all processors and the number of processes that wait for a disk; zeros where the kernel does not tell."""
    busy_s, blocked = 0.0, 0
    with contextlib.suppress(OSError, ValueError):
        for line in (proc / "stat").read_text(encoding="ascii", errors="replace").splitlines():
            words = line.split()
            if words[:1] == ["cpu"]:
                user, nice, system, _, _, irq, soft_irq = (int(word) for word in words[1:8])
                busy_s = (user + nice + system + irq + soft_irq) / os.sysconf("SC_CLK_TCK")
            elif words[:1] == ["procs_blocked"]:
                blocked = int(words[1])
    return busy_s, blocked
