"""Other load on this host: processes, campaigns, the load average; and whether its clock is synchronised.

In: a sample of /proc taken when the checks began. A short interval that finds others at work is followed by a longer one, so that a
momentary job does not count as load. Out: checks.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from seatrial.machine.host import usable_cpu_count
from seatrial.machine.processes import PROC, is_agent_command, list_pids, read_argv, read_process
from seatrial.preflight.check_definition import information, warning
from seatrial.records.caution import Check

MAX_NAMED = 3
WORTH_NAMING_CORES = 0.05


@dataclass(frozen=True, kw_only=True)
class ProcessSample:
    pid: int
    parent: int
    name: str
    cpu_s: float
    reaped_s: float = 0.0
    """CPU time of children it has waited for."""


NO_PROCESS = ProcessSample(pid=0, parent=0, name="", cpu_s=0.0)


@dataclass(frozen=True, kw_only=True)
class HostSample:
    m: float
    busy_s: float = 0.0
    """CPU time of the whole host since boot."""
    blocked: int = 0
    """Processes that wait for I/O."""
    processes: Mapping[int, ProcessSample] = field(default_factory=dict)


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
    """Other processes' activity between two samples."""

    span_s: float
    foreign_cores: float
    users: tuple[CpuUser, ...] = ()
    """The biggest first."""
    blocked: int = 0


def take_sample(proc: Path = PROC) -> HostSample:
    """One sample of /proc; costs about 30 µs per process."""
    m = time.monotonic()
    busy_s, blocked = _host(proc)
    return HostSample(m=m, busy_s=busy_s, blocked=blocked, processes={process.pid: process for process in _processes(proc)})


def activity_between(before: HostSample, after: HostSample, own_pid: int | None = None) -> Activity:
    """Cores in use by others between two samples; this process, its ancestors and descendants are not counted."""
    span_s = max(after.m - before.m, 1e-9)
    own = os.getpid() if own_pid is None else own_pid
    own_pids = relatives_of(after, own)
    spent = {pid: max(0.0, process.cpu_s - _process(before, pid).cpu_s) for pid, process in after.processes.items()}
    users = [CpuUser(pid=pid, name=after.processes[pid].name, cores=cpu_s / span_s) for pid, cpu_s in spent.items() if pid not in own_pids]
    own_s = sum(cpu_s for pid, cpu_s in spent.items() if pid in own_pids) + _process(after, own).reaped_s - _process(before, own).reaped_s
    # The host's counter includes other containers; without it, the visible processes must do.
    hidden = (after.busy_s - before.busy_s - own_s) / span_s
    seen = sum(user.cores for user in users)
    biggest = sorted((user for user in users if user.cores >= WORTH_NAMING_CORES), key=lambda user: -user.cores)[:MAX_NAMED]
    return Activity(span_s=span_s, foreign_cores=max(seen, hidden, 0.0), users=tuple(biggest), blocked=after.blocked)


def relatives_of(sample: HostSample, pid: int) -> set[int]:
    """`pid`, its ancestors and its descendants."""
    own_pids, above = {pid}, sample.processes.get(pid)
    while above is not None and above.parent not in own_pids:
        own_pids.add(above.parent)
        above = sample.processes.get(above.parent)
    below = {pid}
    while below:
        below = {child.pid for child in sample.processes.values() if child.parent in below} - own_pids
        own_pids |= below
    return own_pids


def foreign_agents(sample: HostSample, own_pid: int | None = None) -> list[tuple[int, str]]:
    """(pid, path of its order) of each agent of another harness: OUT/<run>/attempt-N/agent.json or a node's call.json."""
    own = os.getpid() if own_pid is None else own_pid
    found = []
    for process in sample.processes.values():
        if process.parent != own and "python" in process.name:
            argv = read_argv(process.pid)
            if is_agent_command(argv):
                found.append((process.pid, argv[-1]))
    return sorted(found)


def _process(sample: HostSample, pid: int) -> ProcessSample:
    """A process that is not in the sample has used nothing."""
    return sample.processes.get(pid, NO_PROCESS)


def _processes(proc: Path) -> Iterator[ProcessSample]:
    for pid in sorted(list_pids(proc)):
        # A process may end between the listing and the reading.
        line = read_process(str(proc), pid)
        if line is not None:
            yield ProcessSample(pid=pid, parent=line.parent, name=line.name, cpu_s=line.cpu_s, reaped_s=line.reaped_s)


def _host(proc: Path) -> tuple[float, int]:
    """Busy seconds of all processors and the number of blocked processes; zeros where /proc/stat is missing."""
    busy_s, blocked = 0.0, 0
    with contextlib.suppress(OSError, ValueError):
        for line in (proc / "stat").read_text(encoding="ascii", errors="replace").splitlines():
            fields = line.split()
            if fields[:1] == ["cpu"]:
                user, nice, system, _, _, irq, soft_irq = (int(field) for field in fields[1:8])
                busy_s = (user + nice + system + irq + soft_irq) / os.sysconf("SC_CLK_TCK")
            elif fields[:1] == ["procs_blocked"]:
                blocked = int(fields[1])
    return busy_s, blocked


SHORT_SAMPLE_S = 0.15
LONG_SAMPLE_S = 0.6
# Use by others that counts as noise: above half a core, or above this share of all cores if that is more.
QUIET_CORES = 0.5
QUIET_RATIO = 0.1
_TIME_ERROR = 5
_TIMEX_BYTES = 512

FOREIGN = warning(
    name="other processes",
    what="processor time of processes that are not ours, over a fraction of a second, and who they are",
    prevents="step times slowed by other processes, and repeats that scatter; no error is shown",
    fix="end them or wait (`top` shows them), then start",
    noise=True,
)
LOAD_AVERAGE = warning(
    name="load",
    what="the load average against the processors, and processes that wait for a disk",
    prevents="start-up and data loading slower than on a quiet host; no error is shown",
    fix="wait until the load has gone down; `vmstat 1` shows whether it is processors (r) or disks (b)",
    noise=True,
)
CAMPAIGN = warning(
    name="other campaigns",
    what="agents of another Seatrial campaign on this host",
    prevents="two campaigns that slow each other down; no error is shown",
    fix="wait for it, or `seatrial stop` its folder",
    noise=True,
)
CLOCK = information(
    name="clock",
    what="whether the kernel reports the wall clock as synchronised",
    prevents="logs of several nodes that cannot be aligned in time",
    fix="start chrony or systemd-timesyncd",
)
LOAD_CHECKS = (FOREIGN, LOAD_AVERAGE, CAMPAIGN, CLOCK)


@dataclass(frozen=True, kw_only=True)
class LoadFacts:
    activity: Activity
    load1: float
    cores: int
    agents: tuple[tuple[int, str], ...] = ()
    """(pid, path of its order) of other campaigns' agents."""
    clock_synchronised: bool | None = None


def check_load(before: HostSample, sleep: Callable[[float], None] = time.sleep) -> Iterator[Check]:
    """Judge the time from `before`, sampled when the checks began, until now."""
    cores = usable_cpu_count()
    after = _later(before, SHORT_SAMPLE_S, sleep)
    activity = activity_between(before, after)
    if activity.foreign_cores >= quiet_cores(cores):
        activity = activity_between(after, _later(after, LONG_SAMPLE_S, sleep))
    yield from judge_load(
        LoadFacts(
            activity=activity,
            load1=os.getloadavg()[0],
            cores=cores,
            agents=tuple(foreign_agents(after)),
            clock_synchronised=clock_is_synchronised(),
        )
    )


def _later(before: HostSample, span_s: float, sleep: Callable[[float], None]) -> HostSample:
    sleep(max(0.0, before.m + span_s - time.monotonic()))
    return take_sample()


def quiet_cores(cores: int) -> float:
    """Cores that others may keep busy before they count as noise."""
    return max(QUIET_CORES, QUIET_RATIO * cores)


def judge_load(facts: LoadFacts) -> Iterator[Check]:
    activity = facts.activity
    named = ", ".join(str(user) for user in activity.users)
    busy = f"{activity.foreign_cores:.1f} of {facts.cores} cores in use by others"
    quiet = activity.foreign_cores < quiet_cores(facts.cores)
    who = named or "processes this container does not show"
    yield FOREIGN.result(quiet, busy if quiet else f"{busy}: {who}")
    # The load average lags by a minute: it counts only while there is work now.
    waiting = activity.blocked + activity.foreign_cores > facts.cores
    blocked = f", {activity.blocked} processes wait for a disk" if activity.blocked else ""
    yield LOAD_AVERAGE.result(facts.load1 <= 2 * facts.cores or not waiting, f"{facts.load1:.1f} on {facts.cores} processors{blocked}")
    yield CAMPAIGN.result(not facts.agents, "; ".join(f"pid {pid} runs {order}" for pid, order in facts.agents) or "none")
    yield CLOCK.result(True, {True: "synchronised", False: "not synchronised", None: "unknown"}[facts.clock_synchronised])


def clock_is_synchronised() -> bool | None:
    """Whether the clock is synchronised, by a read-only adjtimex(2); None if unavailable."""
    try:
        state = ctypes.CDLL(None).adjtimex(ctypes.create_string_buffer(_TIMEX_BYTES))
    except (OSError, AttributeError):
        return None
    return None if state < 0 else state != _TIME_ERROR
