"""The processes the agent starts (the launcher, or one for each rank of plain python) and all their descendants.

As a child subreaper the agent becomes the parent of every process whose own parent ended, so no process of a run can leave the tree,
whatever sessions and process groups it creates. When `reap()` finds no child, none is left.

In: an order and the base environment. Out: `StartedProcess`es; for one that cannot be started, a shell's exit code and a sentence.
"""

from __future__ import annotations

import contextlib
import errno
import itertools
import math
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import psutil

from seatrial.agent.harness import note
from seatrial.agent.output import LineMarker, LogFile, PassThrough, StartedProcess
from seatrial.core import linux
from seatrial.core.files import write_json
from seatrial.core.paths import AttemptPaths
from seatrial.machine.processes import (
    PROC,
    STOPPED,
    ProcessStat,
    ProcessTree,
    read_argv,
    read_connections,
    read_environ,
    read_process,
    read_text,
)
from seatrial.records.codec import to_json
from seatrial.records.events import RANK_VARIABLES
from seatrial.records.launch import COMMAND_LAUNCHERS, AgentOrder, ObservedRanks, RankConnection, RankListener

# For an agent that failed itself.
KILL_ALL_TIMEOUT_S = 2.0
# Between two scans of the run's processes: short after the start, as a run may be short, then longer, and longest once ranks were seen.
FIRST_LOOK_S = 0.2
LONGEST_LOOK_S = 3.0
LONGEST_LOOK_WITH_RANKS_S = 30.0
LOOKS_FOR_CONNECTIONS = 20
MAX_RANKS_SEEN = 1_000_000
# Those that the probe reads, and those of MPICH, Intel MPI and Horovod.
SEEN_VARIABLES = (*RANK_VARIABLES, ("PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID"), ("HOROVOD_RANK", "HOROVOD_SIZE", "HOROVOD_LOCAL_RANK"))
RENDEZVOUS_PORT = "MASTER_PORT"
# Per host. A thousand fully connected ranks have more; then it stays unknown whether they are connected.
MAX_CONNECTIONS = 20_000
SPAWNED = "from multiprocessing.spawn import spawn_main"
# Ranks forked by a script use similar CPU time while it waits for them. Data loader workers run while it trains, and have a name.
MIN_FORKED_CPU_S = 0.2
MIN_SHARE_OF_BUSIEST = 0.5
MAX_SHARE_OF_PARENT = 0.02
LOADER_NAME = "pt_data_worker"
IN_WAITPID = "do_wait"


def start_processes(order: AgentOrder, base_env: Mapping[str, str]) -> Iterator[StartedProcess]:
    """Start each process of the command; OSError when one cannot be started (those already started are the caller's to end)."""
    # A rank alone on its host is still one of several; without a launcher its number is in its variables.
    several = len(order.command.ranks) > 1 or (order.call is not None and "RANK" in order.command.ranks[0])
    for position, overlay in enumerate(order.command.ranks):
        rank = int(overlay.get("RANK", order.first_rank + position))
        lines: LineMarker | PassThrough = LineMarker(rank) if several else LineMarker() if order.rank_logs else PassThrough()
        own_log = LogFile(AttemptPaths(Path(order.writes_to)).rank_logs / f"rank{rank}.log") if several else None
        yield _start(order, {**base_env, **order.command.env, **overlay}, lines, own_log)


def describe_start_failure(order: AgentOrder, error: OSError) -> tuple[int, str]:
    """The exit code a shell would give, and a sentence for people."""
    code = 127 if error.errno == errno.ENOENT else 126
    what = order.command.cwd if error.filename == order.command.cwd else order.command.argv[0]
    where, there = (f" on {order.call.node}", ", and that it exists on every host") if order.call else ("", "")
    return code, f"'{what}' could not be started{where}: {error.strerror}; check workload, launcher and cwd in spec.json{there}"


def _start(order: AgentOrder, env: Mapping[str, str], lines: LineMarker | PassThrough, own_log: LogFile | None) -> StartedProcess:
    read_end, write_end = os.pipe()
    os.set_blocking(read_end, False)
    try:
        process = subprocess.Popen(
            order.command.argv,
            cwd=order.command.cwd,
            env=dict(env),
            stdin=subprocess.DEVNULL,
            stdout=write_end,
            stderr=write_end,
            start_new_session=True,
            preexec_fn=set_up_child,
        )
    except OSError:
        os.close(read_end)
        raise
    finally:
        os.close(write_end)
    return StartedProcess(pid=process.pid, pipe=read_end, lines=lines, own_log=own_log, process=process)


def become_subreaper() -> None:
    """Make this process the parent of every orphan below it (Linux)."""
    if not linux.set_subreaper():
        note("this kernel has no child subreaper: processes that detach themselves may outlive the run")


def set_up_child() -> None:
    """Called in a child before it executes its program: it gets TERM when the agent dies, and the agent's py-spy may attach to it.

    TERM and not KILL: a launcher ends its ranks at TERM, and if killed it would leave them running.
    """
    linux.set_parent_death_signal(signal.SIGTERM)
    linux.allow_ptrace(os.getppid())


def reap() -> tuple[dict[int, int], bool]:
    """Exit codes (negative for a signal) of children that ended since the last call, and whether any child is left."""
    ended: dict[int, int] = {}
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return ended, False
        if pid == 0:
            return ended, True
        ended[pid] = os.waitstatus_to_exitcode(status)


def list_descendants() -> list[psutil.Process]:
    with contextlib.suppress(psutil.NoSuchProcess):
        return [process for process in psutil.Process().children(recursive=True) if not _is_zombie(process)]
    return []


def send_signal(processes: Iterable[psutil.Process], number: signal.Signals) -> set[int]:
    """Signal each process; returns the pids that were reached."""
    reached: set[int] = set()
    for process in processes:
        try:
            process.send_signal(number)
            reached.add(process.pid)
        except psutil.NoSuchProcess:
            continue
        except psutil.AccessDenied:
            note(f"process {process.pid} belongs to another user and cannot be signalled")
    return reached


def resume_stopped(processes: Iterable[psutil.Process]) -> None:
    """Send CONT to stopped processes, which would not handle TERM until they run."""
    send_signal([process for process in processes if is_stopped(process.pid)], signal.SIGCONT)


def is_stopped(pid: int) -> bool:
    found = read_process(str(PROC), pid)
    return found is not None and found.state == STOPPED


def kill_children() -> set[int]:
    """KILL every direct child, adopted orphans included; returns their pids.

    Much faster than listing the whole tree, so that a process that keeps forking is caught between two forks.
    """
    killed: set[int] = set()
    for pid in linux.child_pids():
        with contextlib.suppress(OSError):
            os.kill(pid, signal.SIGKILL)
            killed.add(pid)
    return killed


def kill_all(sleep: Callable[[float], None] = time.sleep) -> None:
    """KILL until no process is left, or until the timeout: for an agent that failed."""
    deadline_m = time.monotonic() + KILL_ALL_TIMEOUT_S
    while time.monotonic() < deadline_m:
        send_signal(list_descendants(), signal.SIGKILL)
        if not reap()[1]:
            return
        kill_children()
        sleep(0.01)


class RankObserver:
    """The actual ranks of a run and their connections: rank variables and TCP connections of all its processes, whatever started them, in
    observed_ranks.json.

    A process has the variables of its parent until it executes its own program, so known processes are read again. Variables of the agent
    itself (from a batch job around the campaign) are ignored.
    """

    def __init__(self, order: AgentOrder, base_env: Mapping[str, str], *, root: int | None = None, proc: Path = PROC) -> None:
        self._path, self._proc = AttemptPaths(Path(order.writes_to)).observed_ranks, proc
        self._outer = {**base_env, **order.command.env}
        self._tree = ProcessTree(os.getpid() if root is None else root, proc)
        self.look_at, self._wait_s = -math.inf, FIRST_LOOK_S
        self._seen = ObservedRanks()
        self._written: ObservedRanks | None = None
        self._first_cpu_s: dict[tuple[int, int], float] = {}
        self._waited: dict[int, int] = {}

    def look(self, now: float) -> None:
        """Scan the processes if it is time, and write what is new."""
        if now < self.look_at:
            return
        # Ranks may connect long after their start, and a short run may end soon after.
        has_sockets = self._seen.connections and self._seen.listening
        is_settled = self._seen.world_sizes and (has_sockets or self._seen.looks > LOOKS_FOR_CONNECTIONS)
        longest_s = LONGEST_LOOK_WITH_RANKS_S if is_settled else LONGEST_LOOK_S
        self.look_at, self._wait_s = now + self._wait_s, min(2 * self._wait_s, longest_s)
        seen, pids = self._seen, self._tree.read() or {}
        variables = {pid: self._variables(pid) for pid in pids}
        ranks = {pid: found for pid in pids if (found := self._rank_of(variables[pid])) is not None}
        argvs = {pid: read_argv(pid, self._proc) for pid in pids}
        connections, listening = self._sockets({pid: rank for pid, (rank, _) in ranks.items() if rank is not None}, variables)
        self._seen = ObservedRanks(
            world_sizes=tuple(sorted({*seen.world_sizes, *(size for _, size in ranks.values())})),
            ranks=tuple(sorted({*seen.ranks, *(rank for rank, _ in ranks.values() if rank is not None)})),
            launchers=tuple(sorted({*seen.launchers, *(name for argv in argvs.values() for name in _launchers_in(argv))})),
            spawned=max(seen.spawned, sum(any(SPAWNED in argument for argument in argv[:4]) for argv in argvs.values())),
            looks=seen.looks + 1,
            forked=seen.forked if ranks or (forked := self._num_forked(pids, argvs)) is None else forked,
            connections=connections,
            listening=listening,
        )
        if self._written is None or replace(self._seen, looks=self._written.looks) != self._written:
            self.write()

    def write(self) -> None:
        """Disk errors are ignored: the number of ranks is then the plan's."""
        with contextlib.suppress(OSError):
            write_json(self._path, to_json(self._seen))
            self._written = self._seen

    def _sockets(
        self, ranks: Mapping[int, int], variables: Mapping[int, Mapping[str, str]]
    ) -> tuple[tuple[RankConnection, ...], tuple[RankListener, ...]]:
        """All connections and listeners so far. Those of the rendezvous do not count: ranks may connect to it and train alone."""
        connections, listening = set(self._seen.connections), set(self._seen.listening)
        for pid, rank in ranks.items():
            meets_at = f":{variables[pid].get(RENDEZVOUS_PORT, 'unknown')}"
            connected, listens_at = read_connections(pid, self._proc)
            for local, remote in connected:
                if not local.endswith(meets_at) and not remote.endswith(meets_at):
                    connections.add(RankConnection(rank=rank, local=local, remote=remote))
            listening |= {RankListener(rank=rank, at=at) for at in listens_at if not at.endswith(meets_at)}
        by_rank = sorted(connections, key=lambda one: (one.rank, one.local, one.remote))
        return tuple(by_rank[:MAX_CONNECTIONS]), tuple(sorted(listening, key=lambda one: (one.rank, one.at))[:MAX_CONNECTIONS])

    def _num_forked(self, processes: Mapping[int, ProcessStat], argvs: Mapping[int, Sequence[str]]) -> int | None:
        """Processes that a Python process forked and that work while it waits; None where no process has several."""
        children: dict[int, list[int]] = {}
        for pid, stat in processes.items():
            # A forked process has its parent's argv until it executes another program.
            if argvs[pid] and argvs.get(stat.parent) == argvs[pid] and stat.name != LOADER_NAME:
                children.setdefault(stat.parent, []).append(pid)
        several = {pid: forks for pid, forks in children.items() if len(forks) > 1 and Path(argvs[pid][0]).name.startswith("python")}
        counts = [len(forks) if self._waits_for(pid, forks, processes) else 0 for pid, forks in several.items()]
        return max(counts, default=None)

    def _waits_for(self, pid: int, forks: Sequence[int], processes: Mapping[int, ProcessStat]) -> bool:
        """Judged by CPU time since the first scan; if the forks use none, by whether most scans found the parent in waitpid."""
        own_s, *cpu_s = (self._cpu_since_seen_s(one, processes[one]) for one in (pid, *forks))
        self._waited[pid] = self._waited.get(pid, 0) + (1 if read_text(self._proc / str(pid) / "wchan") == IN_WAITPID else -1)
        if max(cpu_s) < MIN_FORKED_CPU_S:
            return self._waited[pid] > 1
        return min(cpu_s) >= MIN_SHARE_OF_BUSIEST * max(cpu_s) and own_s <= MAX_SHARE_OF_PARENT * min(cpu_s)

    def _cpu_since_seen_s(self, pid: int, stat: ProcessStat) -> float:
        return stat.cpu_s - self._first_cpu_s.setdefault((pid, stat.started_ticks), stat.cpu_s)

    def _variables(self, pid: int) -> dict[str, str]:
        names = {RENDEZVOUS_PORT, *(name for names in SEEN_VARIABLES for name in names)}
        pairs = (entry.partition(b"=") for entry in read_environ(pid, self._proc))
        return {name: os.fsdecode(value) for found, _, value in pairs if (name := os.fsdecode(found)) in names}

    def _rank_of(self, own: Mapping[str, str]) -> tuple[int | None, int] | None:
        """A process's own rank, where set, and number of ranks; None where it has no such variables of its own."""
        for rank_name, size_name, _ in SEEN_VARIABLES:
            inherited = all(own.get(name) == self._outer.get(name) for name in (rank_name, size_name))
            size = own.get(size_name, "")
            if not inherited and size.isascii() and size.isdecimal() and 0 < int(size) <= MAX_RANKS_SEEN:
                rank = own.get(rank_name, "")
                return (int(rank) if rank.isascii() and rank.isdecimal() and int(rank) < int(size) else None), int(size)
        return None


def _launchers_in(argv: Sequence[str]) -> Iterator[str]:
    """Launchers named by an argv: the program, the script of an interpreter, or the module of `python -m`."""
    for argument in argv[:2]:
        if (name := Path(argument).name) in COMMAND_LAUNCHERS:
            yield name
    yield from (module for flag, module in itertools.pairwise(argv[:8]) if flag == "-m" and module in COMMAND_LAUNCHERS)


def _is_zombie(process: psutil.Process) -> bool:
    try:
        return process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True
