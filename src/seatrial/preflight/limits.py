"""What one user or one process may have: open files, processes and threads, locked memory, core files."""

from __future__ import annotations

import contextlib
import os
import resource
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from seatrial.machine.host import usable_cpu_count
from seatrial.machine.network import INFINIBAND
from seatrial.machine.proc_files import PROC, all_pids
from seatrial.preflight.cgroups import CgroupFacts, read_cgroups
from seatrial.preflight.need import Need
from seatrial.preflight.question import Question
from seatrial.records.check import Check
from seatrial.units import format_bytes

# A loader with many workers passes every tensor of a batch as an open file.
OPEN_FILES = 1024
OPEN_FILES_OF_MANY_WORKERS = 4096
MANY_WORKERS = 8
# A rank has about this many threads of its own, besides one for each processor: NCCL, autograd, pinning, heartbeats.
THREADS_OF_A_RANK = 32
# Registered buffers of a training take at least this much.
LOCKED_BYTES = 1 << 30

FILES = Question(
    name="open files",
    looks_at="the soft limit of open files (ulimit -n) against loader workers",
    prevents="OSError: [Errno 24] Too many open files",
    fix="ulimit -n {most} before starting",
)
PROCESSES = Question(
    name="processes",
    looks_at="the limit of processes and threads, of this user (ulimit -u) and of the container, against ranks, workers and threads",
    prevents="RuntimeError: can't start new thread; or: BlockingIOError: [Errno 11] Resource temporarily unavailable",
    fix="raise it: ulimit -u, docker run --pids-limit, the pod's pid limit; or lower ranks and num_workers",
)
LOCKED = Question(
    name="locked memory",
    looks_at="the limit of locked memory (ulimit -l) where there are InfiniBand devices",
    prevents="NCCL WARN Call to ibv_reg_mr failed with error Cannot allocate memory",
    fix="ulimit -l unlimited; docker run --ulimit memlock=-1; for services LimitMEMLOCK=infinity",
)
CORE = Question(
    name="core files",
    looks_at="whether a process that crashes leaves a core file",
    prevents="a Segmentation fault with nothing to look at; or, without a limit, a disk full of core files",
    fix="ulimit -c unlimited to have them, ulimit -c 0 to have none",
    only_tells=True,
)
QUESTIONS = (FILES, PROCESSES, LOCKED, CORE)


@dataclass(frozen=True, kw_only=True)
class LimitFacts:
    """Limits of this process, which every run inherits; None means no limit."""

    open_files: int | None = None
    open_files_hard: int | None = None
    processes: int | None = None
    """None for root, whom the kernel does not count."""
    processes_used: int = 0
    locked_bytes: int | None = None
    core_bytes: int | None = None
    infiniband: bool = False


def checks(need: Need) -> Iterator[Check]:
    facts = read_limits()
    yield open_files(facts, need)
    yield processes(facts, read_cgroups(), need, usable_cpu_count())
    yield locked(facts)
    yield CORE.answer(True, "none" if facts.core_bytes == 0 else f"up to {_bytes_text(facts.core_bytes)}")


def read_limits() -> LimitFacts:
    soft, hard = (_limit(value) for value in resource.getrlimit(resource.RLIMIT_NOFILE))
    return LimitFacts(
        open_files=soft,
        open_files_hard=hard,
        processes=None if os.geteuid() == 0 else _limit(resource.getrlimit(resource.RLIMIT_NPROC)[0]),
        processes_used=_threads_of_this_user(),
        locked_bytes=_limit(resource.getrlimit(resource.RLIMIT_MEMLOCK)[0]),
        core_bytes=_limit(resource.getrlimit(resource.RLIMIT_CORE)[0]),
        infiniband=INFINIBAND.is_dir() and any(INFINIBAND.iterdir()),
    )


def _limit(value: int) -> int | None:
    return None if value == resource.RLIM_INFINITY else value


def _threads_of_this_user(proc: Path = PROC) -> int:
    """Threads count, not processes; a process that ends meanwhile has none."""
    count, user = 0, os.geteuid()
    for pid in all_pids(proc):
        with contextlib.suppress(OSError):
            if (proc / str(pid)).stat().st_uid == user:
                # Each thread is a folder, and each folder a link to its parent.
                count += max(0, (proc / str(pid) / "task").stat().st_nlink - 2)
    return count


def open_files(facts: LimitFacts, need: Need) -> Check:
    wanted = OPEN_FILES_OF_MANY_WORKERS if (need.workers_of_a_rank or 0) >= MANY_WORKERS else OPEN_FILES
    hard = facts.open_files_hard
    enough = facts.open_files is None or facts.open_files >= wanted
    most = "unlimited" if hard is None else str(hard)
    found = "no limit" if facts.open_files is None else f"{facts.open_files} now, up to {most} allowed, {wanted} wanted"
    if hard is not None and hard < wanted:
        return FILES.answer(enough, found, most=f"{wanted} after root raised the hard limit (LimitNOFILE, /etc/security/limits.conf)")
    return FILES.answer(enough, found, most=most)


def processes(facts: LimitFacts, group: CgroupFacts, need: Need, cores: int) -> Check:
    """Room for every rank, its workers and a thread for each processor in each rank."""
    wanted = need.ranks * (THREADS_OF_A_RANK + cores) + (need.workers or 0)
    rooms = []
    if facts.processes is not None:
        rooms.append((facts.processes - facts.processes_used, f"{facts.processes_used} of this user's {facts.processes}"))
    if group.process_limit is not None:
        used = group.process_count or 0
        rooms.append((group.process_limit - used, f"{used} of the container's {group.process_limit}"))
    left, text = min(rooms, default=(wanted, ""))
    return PROCESSES.answer(left >= wanted, f"{text} in use, about {wanted} wanted" if text else "no limit")


def locked(facts: LimitFacts) -> Check:
    if facts.locked_bytes is None:
        return LOCKED.answer(True, "no limit")
    found = f"{format_bytes(facts.locked_bytes)}, {'InfiniBand devices are here' if facts.infiniband else 'and no InfiniBand here'}"
    return LOCKED.answer(not facts.infiniband or facts.locked_bytes >= LOCKED_BYTES, found)


def _bytes_text(count: int | None) -> str:
    return "any size" if count is None else format_bytes(count)
