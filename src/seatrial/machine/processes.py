"""Processes in /proc: their use, the tree below one, Seatrial's running agents, and the kernel's OOM-kill counters.

In: /proc, or a folder that looks like it. Out: its state at that moment; a process that has ended, or belongs to another user, is left out.
Nothing here raises. Linux only. Read directly and not by psutil, which reads more files for each process and raises for one that ends
meanwhile.
"""

from __future__ import annotations

import contextlib
import ipaddress
import itertools
import os
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from seatrial.core.paths import ATTEMPT_FILES, AttemptPaths

PROC = Path("/proc")
ZOMBIE, STOPPED = "Z", "T"
"""Process states."""
KIB = 1024
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_PAGE_KIB = os.sysconf("SC_PAGE_SIZE") // KIB
PID_NAMESPACE = PROC / "self/ns/pid"
# The kernel's fixed inode number of the root namespace.
ROOT_PID_NAMESPACE = "pid:[4026531836]"
# Pids are reused, if rarely: foreign ones are checked again after this many reads.
READS_BETWEEN_RECHECKS = 60
AGENT_MODULE = "seatrial.agent"
CGROUPS = Path("/sys/fs/cgroup")
IN_CGROUP = "in its cgroup"
ON_HOST = "on this host"
OOM_COUNTER = "oom_kill"
_SOCKET = "socket:["
# A state in /proc/net/tcp.
_ESTABLISHED = "01"
_LISTENING = "0A"


def read_boot_id(proc: Path = PROC) -> str:
    """The id of this boot of the machine; empty where there is none."""
    return read_text(proc / "sys/kernel/random/boot_id").strip()


@dataclass(frozen=True)
class ProcessStat:
    """/proc/PID/stat of one process."""

    name: str
    parent: int
    state: str
    cpu_s: float
    reaped_s: float
    """CPU time of the children it has waited for, over their whole lives."""
    threads: int
    started_ticks: int
    vsz_kib: int
    rss_kib: int


def list_pids(proc: Path | str = PROC) -> set[int]:
    """Every process; empty where there is no /proc."""
    with contextlib.suppress(OSError):
        return {int(name) for name in os.listdir(proc) if name.isdigit()}  # noqa: PTH208 (ten times as fast as a Path each)
    return set()


def list_own_pids(proc: Path = PROC) -> set[int]:
    """Processes of this user."""
    user, pids = os.getuid(), set()
    for pid in list_pids(proc):
        with contextlib.suppress(OSError):
            if os.stat(f"{proc}/{pid}").st_uid == user:  # noqa: PTH116 (hundreds of them)
                pids.add(pid)
    return pids


def read_start_ticks(pid: int, proc: Path = PROC) -> int | None:
    """Start of a process in kernel ticks: pid and start together identify a process. None when it is gone or a zombie."""
    stat = read_process(str(proc), pid)
    return None if stat is None or stat.state == ZOMBIE else stat.started_ticks


def read_cmdline(pid: int, proc: Path = PROC) -> tuple[bytes, ...]:
    """Its argv, as bytes: it need not be text."""
    return _read_zero_separated(proc / str(pid) / "cmdline")


def read_argv(pid: int, proc: Path = PROC) -> list[str]:
    """Its argv as text; empty where it is gone."""
    return [os.fsdecode(argument) for argument in read_cmdline(pid, proc)]


def read_environ(pid: int, proc: Path = PROC) -> tuple[bytes, ...]:
    """The environment it was started with, `NAME=value` each."""
    return _read_zero_separated(proc / str(pid) / "environ")


def read_process(proc: str, pid: int) -> ProcessStat | None:
    """One process; None when it is gone or its line cannot be parsed."""
    try:
        with open(f"{proc}/{pid}/stat", "rb", buffering=0) as source:
            text = source.read(4096)
        # The name is in parentheses and may contain spaces and parentheses itself.
        name_ends = text.rindex(b")")
        fields = text[name_ends + 2 :].split()
        return ProcessStat(
            name=text[text.index(b"(") + 1 : name_ends].decode("utf-8", errors="replace"),
            parent=int(fields[1]),
            state=fields[0].decode("ascii"),
            cpu_s=(int(fields[11]) + int(fields[12])) / _TICKS_PER_S,
            reaped_s=(int(fields[13]) + int(fields[14])) / _TICKS_PER_S,
            threads=int(fields[17]),
            started_ticks=int(fields[19]),
            vsz_kib=int(fields[20]) // KIB,
            rss_kib=int(fields[21]) * _PAGE_KIB,
        )
    except (OSError, ValueError, IndexError):
        return None


def _read_zero_separated(path: Path) -> tuple[bytes, ...]:
    """Texts separated by zero bytes. A process that overwrote its argv may lack the last one; kernel threads have no argv."""
    with contextlib.suppress(OSError):
        text = path.read_bytes()
        return tuple(text.removesuffix(b"\0").split(b"\0")) if text else ()
    return ()


def read_text(path: Path) -> str:
    """A small file of the kernel's, in one read; empty where it cannot be read."""
    try:
        with open(path, "rb", buffering=0) as source:
            return source.read().decode("utf-8", errors="replace")
    except (OSError, ValueError):
        return ""


def read_connections(pid: int, proc: Path = PROC) -> tuple[set[tuple[str, str]], set[str]]:
    """Its established TCP connections, (own address and port, the other end's), and where it listens."""
    sockets: set[str] = set()
    with contextlib.suppress(OSError):
        for descriptor in os.listdir(f"{proc}/{pid}/fd"):  # noqa: PTH208 (many of them)
            with contextlib.suppress(OSError):
                target = os.readlink(f"{proc}/{pid}/fd/{descriptor}")  # noqa: PTH115
                if target.startswith(_SOCKET):
                    sockets.add(target[len(_SOCKET) : -1])
    if not sockets:
        return set(), set()
    lines = [line.split() for name in ("tcp", "tcp6") for line in read_text(proc / str(pid) / "net" / name).splitlines()[1:]]
    own = [row for row in lines if len(row) > 9 and row[9] in sockets]
    connected = {(_endpoint(row[1]), _endpoint(row[2])) for row in own if row[3] == _ESTABLISHED}
    return connected, {_endpoint(row[1]) for row in own if row[3] == _LISTENING}


def _endpoint(text: str) -> str:
    """`0100007F:A307` → `127.0.0.1:41735`: words of 32 bits in the machine's own order. IPv4 in IPv6 is shown as IPv4."""
    address, _, port = text.partition(":")
    packed = b"".join(struct.pack("=I", int(address[at : at + 8], 16)) for at in range(0, len(address), 8))
    found = ipaddress.ip_address(packed)
    return f"{getattr(found, 'ipv4_mapped', None) or found}:{int(port, 16)}"


class ProcessTree:
    """The descendants of `root`, a child subreaper, sampled repeatedly with as few reads as possible.

    Orphans are reparented to the subreaper, so a process is below it for its whole life or never: each pid is checked once, when it first
    appears; afterwards only the descendants' own lines are read.
    """

    def __init__(self, root: int, proc: Path = PROC) -> None:
        self._root, self._proc = root, str(proc)
        self._own: dict[int, int] = {}
        self._foreign: set[int] = set()
        self._reads = 0

    def read(self) -> dict[int, ProcessStat] | None:
        """Every living descendant by pid; None where there is no /proc."""
        present = list_pids(self._proc)
        if not present and not Path(self._proc).is_dir():
            return None
        self._reads += 1
        self._foreign = set() if self._reads % READS_BETWEEN_RECHECKS == 0 else self._foreign & present
        self._own = {pid: ticks for pid, ticks in self._own.items() if pid in present}
        found: dict[int, ProcessStat] = {}
        for pid in sorted(present - self._foreign):
            stat = self._read_descendant(pid)
            if stat is not None and stat.state not in "ZX":
                found[pid] = stat
        return found

    def _read_descendant(self, pid: int) -> ProcessStat | None:
        """The process; None if it is not a descendant or has ended."""
        stat = read_process(self._proc, pid)
        if stat is None:
            return None
        if self._own.get(pid) != stat.started_ticks:
            below = self._is_below(stat)
            if below is False:
                self._foreign.add(pid)
            if not below:
                return None
            self._own[pid] = stat.started_ticks
        return stat

    def _is_below(self, stat: ProcessStat) -> bool | None:
        """Whether it is below the root; None if a process above it ended meanwhile: the next read decides."""
        parent = stat.parent
        while parent > 1 and parent != self._root:
            if parent in self._own:
                return True
            if parent in self._foreign:
                return False
            above = read_process(self._proc, parent)
            if above is None:
                return None
            parent = above.parent
        return parent == self._root


def is_descendant(pid: int, root: int) -> bool | None:
    """Whether `pid` is `root` or a descendant of it; None when there is no such process here."""
    stat, at = read_process(str(PROC), pid), pid
    if stat is None:
        return None
    while at != root and stat is not None and stat.parent > 0:
        at = stat.parent
        stat = read_process(str(PROC), at)
    return at == root


def in_root_pid_namespace(namespace: Path = PID_NAMESPACE) -> bool:
    """Whether pids here are the host's, which are those the GPU driver reports; False where it is unknown."""
    try:
        return os.readlink(namespace) == ROOT_PID_NAMESPACE  # noqa: PTH115 (the kernel's name, not a path)
    except OSError:
        return False


def list_running_campaigns(proc: Path = PROC) -> list[str]:
    """The folders of the campaigns that have an agent on this host, each once."""
    return sorted({folder for pid in list_pids(proc) if (folder := _campaign_of(pid, proc))})


def is_agent_command(argv: Sequence[str]) -> bool:
    """Whether a command line is `python … -m seatrial.agent …`."""
    return any(pair == ("-m", AGENT_MODULE) for pair in itertools.pairwise(argv))


def _campaign_of(pid: int, proc: Path) -> str:
    """The campaign in `… -m seatrial.agent OUT/<run>/attempt-N/agent.json` or `--call OUT/<run>/attempt-N/nodes/<name>/call.json`."""
    argv = read_argv(pid, proc)
    if not is_agent_command(argv):
        return ""
    order_files = (ATTEMPT_FILES.agent_order.name, ATTEMPT_FILES.call.name)
    paths = [Path(argument) for argument in argv[argv.index(AGENT_MODULE) + 1 :] if argument.startswith("/")]
    attempts = [folder for path in paths if path.name in order_files for folder in path.parents if AttemptPaths(folder).number]
    return str(attempts[0].parent.parent) if attempts else ""


class OomKillCounter:
    """The OOM-kill counters at a run's start, to compare with those at its end: a killed process cannot report it, and the run's log does
    not contain the kernel's."""

    def __init__(self, proc: Path = PROC, cgroups: Path = CGROUPS) -> None:
        self._proc, self._cgroups = proc, cgroups
        self._before = read_oom_kills(proc, cgroups)

    def describe_increase(self) -> str:
        """`oom_kill 3 → 4 in its cgroup`; empty where no counter rose. The cgroup's comes before the host's."""
        after = read_oom_kills(self._proc, self._cgroups)
        rose = (where for where in (IN_CGROUP, ON_HOST) if where in self._before and after.get(where, 0) > self._before[where])
        return next((f"{OOM_COUNTER} {self._before[where]} → {after[where]} {where}" for where in rose), "")


def read_oom_kills(proc: Path = PROC, cgroups: Path = CGROUPS) -> dict[str, int]:
    """OOM kills of the cgroup (version 2 or 1) and of the machine; counters that cannot be read are left out."""
    own = next((count for path in _oom_counter_files(proc, cgroups) if (count := _read_oom_counter(path)) is not None), None)
    host = _read_oom_counter(proc / "vmstat")
    return {where: count for where, count in ((IN_CGROUP, own), (ON_HOST, host)) if count is not None}


def _oom_counter_files(proc: Path, cgroups: Path) -> Iterator[Path]:
    """Candidates for this process's cgroup; in a container that cgroup may be mounted as the root."""
    for line in read_text(proc / "self" / "cgroup").splitlines():
        _, controllers, path = [*line.split(":", 2), "", ""][:3]
        folder, name = (cgroups, "memory.events") if not controllers else (cgroups / "memory", "memory.oom_control")
        if not controllers or "memory" in controllers.split(","):
            yield folder / path.strip("/") / name
            yield folder / name


def _read_oom_counter(path: Path) -> int | None:
    for line in read_text(path).splitlines():
        name, _, value = line.partition(" ")
        if name == OOM_COUNTER and value.strip().isdigit():
            return int(value)
    return None
