"""Memory, processors and resource limits, of the host or of the container (cgroups v1 and v2) where that has less.

In: a `Need`. Out: checks of free memory and swap, usable processors, open files, processes and threads, locked memory and core files.
"""

from __future__ import annotations

import contextlib
import os
import resource
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from seatrial.core.text import format_bytes
from seatrial.machine.host import usable_cpu_count
from seatrial.machine.network import INFINIBAND
from seatrial.machine.processes import PROC, list_pids, read_text
from seatrial.preflight.check_definition import Need, information, warning
from seatrial.records.caution import Check

MEMBERSHIP = Path("/proc/self/cgroup")
ROOT = Path("/sys/fs/cgroup")
# v1 writes "no limit" as the largest number of pages.
NO_LIMIT_BYTES = 1 << 60


@dataclass(frozen=True, kw_only=True)
class CgroupFacts:
    """Limits of the container; None without a limit."""

    memory_limit_bytes: int | None = None
    memory_used_bytes: int | None = None
    """Use of the group with the lowest limit, without the reclaimable file cache."""
    cpu_cores: float | None = None
    process_limit: int | None = None
    process_count: int | None = None


def read_cgroups(membership: Path = MEMBERSHIP, root: Path = ROOT) -> CgroupFacts:
    """The lowest limits of this process's groups: one anywhere above it counts."""
    lowest, used = _memory_limit(membership, root)
    quotas = [quota for folder in _folders(membership, root, "cpu") if (quota := _quota(folder)) is not None]
    process_limit, process_count = _process_limit(membership, root)
    return CgroupFacts(
        memory_limit_bytes=lowest,
        memory_used_bytes=used,
        cpu_cores=min(quotas, default=None),
        process_limit=process_limit,
        process_count=process_count,
    )


def _process_limit(membership: Path, root: Path) -> tuple[int | None, int | None]:
    limits = [
        (limit, _number(folder / "pids.current") or 0)
        for folder in _folders(membership, root, "pids")
        if (limit := _number(folder / "pids.max")) is not None
    ]
    return min(limits, default=(None, None))


def _memory_limit(membership: Path, root: Path) -> tuple[int | None, int | None]:
    limits = []
    for folder in _folders(membership, root, "memory"):
        for limit_name, used_name, cache_name in (
            ("memory.max", "memory.current", "inactive_file"),
            ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
        ):
            limit, used = _number(folder / limit_name), _number(folder / used_name)
            if limit is not None and limit < NO_LIMIT_BYTES:
                limits.append((limit, max(0, (used or 0) - _stat(folder, cache_name))))
    return min(limits, default=(None, None))


def _folders(membership: Path, root: Path, controller: str) -> Iterator[Path]:
    """Every group of this process for `controller`, its own first, then its parents."""
    for line in read_text(membership).splitlines():
        number, _, rest = line.partition(":")
        names, _, path = rest.partition(":")
        if number == "0" and not names:
            yield from _upwards(root, path)
        elif controller in names.split(","):
            yield from _upwards(root / controller, path)
            yield from _upwards(root / names, path) if names != controller else ()


def _upwards(base: Path, path: str) -> Iterator[Path]:
    folder = base / path.lstrip("/")
    while folder != base and base in folder.parents:
        yield folder
        folder = folder.parent
    # Inside a container the host's path often does not exist, and the mount itself is the group.
    yield base


def _quota(folder: Path) -> float | None:
    with contextlib.suppress(OSError, ValueError):
        quota, _, period = (folder / "cpu.max").read_text(encoding="ascii").strip().partition(" ")
        return None if quota == "max" else int(quota) / int(period)
    quota_us, period_us = _number(folder / "cpu.cfs_quota_us"), _number(folder / "cpu.cfs_period_us")
    return quota_us / period_us if quota_us and quota_us > 0 and period_us else None


def _number(path: Path) -> int | None:
    """The integer in a file; None for `max`, no file, or anything else."""
    with contextlib.suppress(OSError, ValueError):
        return int(path.read_text(encoding="ascii"))
    return None


def _stat(folder: Path, name: str) -> int:
    with contextlib.suppress(OSError, ValueError):
        for line in (folder / "memory.stat").read_text(encoding="ascii").splitlines():
            key, _, value = line.partition(" ")
            if key == name:
                return int(value)
    return 0


MIN_FREE_RATIO = 0.1
# With this much free, pages in swap are old and unused.
EASY_FREE_RATIO = 0.2
MUCH_SWAP_BYTES = 1 << 30

FREE = warning(
    name="memory",
    what="free memory of the host, or of the container where that is less",
    prevents="Killed (exit code -9 or 137); or: DataLoader worker (pid …) is killed by signal: Killed",
    fix="end what holds it (`ps aux --sort=-rss | head`), give the container more, or lower ranks and num_workers",
)
SWAP = warning(
    name="swap",
    what="swap in use while memory is short",
    prevents="single steps that take seconds; no error is shown",
    fix="end what holds memory, then `sudo swapoff -a && sudo swapon -a`",
    noise=True,
)
MEMORY_CHECKS = (FREE, SWAP)


@dataclass(frozen=True, kw_only=True)
class MemoryFacts:
    """Memory of the host, and of the container."""

    total_bytes: int
    free_bytes: int
    swap_used_bytes: int = 0
    group: CgroupFacts = field(default_factory=CgroupFacts)

    @property
    def limit_bytes(self) -> int:
        """The most this process may use."""
        return min(self.total_bytes, self.group.memory_limit_bytes or self.total_bytes)

    @property
    def left_bytes(self) -> int:
        """Memory left below the limit."""
        if self.group.memory_limit_bytes is None:
            return self.free_bytes
        return min(self.free_bytes, max(0, self.group.memory_limit_bytes - (self.group.memory_used_bytes or 0)))


def check_memory(need: Need) -> Iterator[Check]:
    memory = psutil.virtual_memory()
    facts = MemoryFacts(
        total_bytes=memory.total, free_bytes=memory.available, swap_used_bytes=psutil.swap_memory().used, group=read_cgroups()
    )
    yield judge_memory(facts)
    yield judge_swap(facts)


def judge_memory(facts: MemoryFacts) -> Check:
    less = facts.limit_bytes < facts.total_bytes
    found = f"{format_bytes(facts.left_bytes)} free of {format_bytes(facts.limit_bytes)}"
    found += f" that this container may use (the host has {format_bytes(facts.total_bytes)})" if less else ""
    return FREE.result(facts.left_bytes >= MIN_FREE_RATIO * facts.limit_bytes, found)


def judge_swap(facts: MemoryFacts) -> Check:
    short = facts.left_bytes < EASY_FREE_RATIO * facts.limit_bytes
    return SWAP.result(not short or facts.swap_used_bytes < MUCH_SWAP_BYTES, f"{format_bytes(facts.swap_used_bytes)} in use")


SYSTEM = Path("/sys/devices/system")

PROCESSORS = warning(
    name="processors",
    what="processors that the affinity mask and the container's quota leave, against the number of ranks",
    prevents="ranks that compete for processor time, and a p90 far above the p50; no error is shown",
    fix="lower place.ranks, widen the mask (taskset, numactl, srun --cpus-per-task) or the quota (docker run --cpus, limits.cpu)",
    noise=True,
)
GOVERNOR = information(
    name="frequency governor",
    what="how the kernel sets the processors' clocks",
    prevents="first steps slower than later ones, and data workers slower than they could be; no error is shown",
    fix="sudo cpupower frequency-set -g performance",
)
PROCESSOR_CHECKS = (PROCESSORS, GOVERNOR)


@dataclass(frozen=True, kw_only=True)
class ProcessorFacts:
    """Processors of the host, and those usable here."""

    machine: int
    usable: int
    """Processors in the affinity mask."""
    quota_cores: float | None = None
    numa_nodes: int = 1
    governors: tuple[str, ...] = ()


def check_processors(need: Need) -> Iterator[Check]:
    facts = read_processors()
    yield judge_processors(facts, need)
    yield GOVERNOR.result(True, ", ".join(facts.governors) or "unknown")


def read_processors(system: Path = SYSTEM) -> ProcessorFacts:
    return ProcessorFacts(
        machine=os.cpu_count() or 1,
        usable=usable_cpu_count(),
        quota_cores=read_cgroups().cpu_cores,
        numa_nodes=max(1, len(list((system / "node").glob("node[0-9]*")))),
        governors=tuple(sorted({read_text(path).strip() for path in (system / "cpu").glob("cpu[0-9]*/cpufreq/scaling_governor")} - {""})),
    )


def judge_processors(facts: ProcessorFacts, need: Need) -> Check:
    cores = facts.usable if facts.quota_cores is None else min(facts.usable, facts.quota_cores)
    parts = [f"{facts.usable} of {facts.machine} usable"]
    parts += [f"{cores:g} by the container's quota"] if cores < facts.usable else []
    parts += [f"{facts.numa_nodes} NUMA nodes"] if facts.numa_nodes > 1 else []
    parts += [f"{need.ranks} wanted by ranks"] if need.planned else []
    return PROCESSORS.result(not need.planned or need.ranks <= max(1.0, cores), ", ".join(parts))


# A loader with many workers passes every tensor of a batch as a file descriptor.
OPEN_FILES = 1024
OPEN_FILES_OF_MANY_WORKERS = 4096
MANY_WORKERS = 8
# Threads of a rank besides one per processor: NCCL, autograd, pinning, heartbeats.
THREADS_OF_A_RANK = 32
# Registered buffers of a training need at least this much.
LOCKED_BYTES = 1 << 30

FILES = warning(
    name="open files",
    what="the soft limit of open files (ulimit -n) against loader workers",
    prevents="OSError: [Errno 24] Too many open files",
    fix="ulimit -n {most} before starting",
)
PROCESSES = warning(
    name="processes",
    what="the limit of processes and threads, of this user (ulimit -u) and of the container, against ranks, workers and threads",
    prevents="RuntimeError: can't start new thread; or: BlockingIOError: [Errno 11] Resource temporarily unavailable",
    fix="raise it: ulimit -u, docker run --pids-limit, the pod's pid limit; or lower ranks and num_workers",
)
LOCKED = warning(
    name="locked memory",
    what="the limit of locked memory (ulimit -l) where there are InfiniBand devices",
    prevents="NCCL WARN Call to ibv_reg_mr failed with error Cannot allocate memory",
    fix="ulimit -l unlimited; docker run --ulimit memlock=-1; for services LimitMEMLOCK=infinity",
)
CORE = information(
    name="core files",
    what="whether a process that crashes leaves a core file",
    prevents="a Segmentation fault with nothing to look at; or, without a limit, a disk full of core files",
    fix="ulimit -c unlimited to have them, ulimit -c 0 to have none",
)
LIMIT_CHECKS = (FILES, PROCESSES, LOCKED, CORE)


@dataclass(frozen=True, kw_only=True)
class LimitFacts:
    """Limits of this process, which every run inherits; None means no limit."""

    open_files: int | None = None
    open_files_hard: int | None = None
    processes: int | None = None
    """None for root, whom the kernel does not limit."""
    processes_used: int = 0
    locked_bytes: int | None = None
    core_bytes: int | None = None
    infiniband: bool = False


def check_limits(need: Need) -> Iterator[Check]:
    facts = read_limits()
    yield judge_open_files(facts, need)
    yield judge_processes(facts, read_cgroups(), need, usable_cpu_count())
    yield judge_locked_memory(facts)
    size = "any size" if facts.core_bytes is None else format_bytes(facts.core_bytes)
    yield CORE.result(True, "none" if facts.core_bytes == 0 else f"up to {size}")


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


def _threads_of_this_user() -> int:
    """Threads, since these count; a process that ends meanwhile has none."""
    count, user = 0, os.geteuid()
    for pid in list_pids(PROC):
        with contextlib.suppress(OSError):
            if (PROC / str(pid)).stat().st_uid == user:
                # Each thread is a folder, and each folder links to its parent.
                count += max(0, (PROC / str(pid) / "task").stat().st_nlink - 2)
    return count


def judge_open_files(facts: LimitFacts, need: Need) -> Check:
    needed = OPEN_FILES_OF_MANY_WORKERS if (need.workers_of_a_rank or 0) >= MANY_WORKERS else OPEN_FILES
    hard = facts.open_files_hard
    enough = facts.open_files is None or facts.open_files >= needed
    most = "unlimited" if hard is None else str(hard)
    found = "no limit" if facts.open_files is None else f"{facts.open_files} now, up to {most} allowed, {needed} needed"
    if hard is not None and hard < needed:
        return FILES.result(enough, found, most=f"{needed} after root raised the hard limit (LimitNOFILE, /etc/security/limits.conf)")
    return FILES.result(enough, found, most=most)


def judge_processes(facts: LimitFacts, group: CgroupFacts, need: Need, cores: int) -> Check:
    """Room for every rank, its workers, and a thread per processor in each rank."""
    needed = need.ranks * (THREADS_OF_A_RANK + cores) + (need.workers or 0)
    rooms = []
    if facts.processes is not None:
        rooms.append((facts.processes - facts.processes_used, f"{facts.processes_used} of this user's {facts.processes}"))
    if group.process_limit is not None:
        used = group.process_count or 0
        rooms.append((group.process_limit - used, f"{used} of the container's {group.process_limit}"))
    left, text = min(rooms, default=(needed, ""))
    return PROCESSES.result(left >= needed, f"{text} in use, about {needed} needed" if text else "no limit")


def judge_locked_memory(facts: LimitFacts) -> Check:
    if facts.locked_bytes is None:
        return LOCKED.result(True, "no limit")
    found = f"{format_bytes(facts.locked_bytes)}, {'InfiniBand devices are here' if facts.infiniband else 'and no InfiniBand here'}"
    return LOCKED.result(not facts.infiniband or facts.locked_bytes >= LOCKED_BYTES, found)
