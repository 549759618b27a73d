"""What /proc tells of processes, each file read in one place: who is there, what one uses, the words and variables it was started with.

In: /proc, or a folder that looks like it. Out: what was there at that moment; a process that ended meanwhile, or is another user's, is
told by nothing. Linux only.
"""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass
from pathlib import Path

PROC = Path("/proc")
ZOMBIE, STOPPED = "Z", "T"
"""States of a process."""
KIB = 1024
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_PAGE_KIB = os.sysconf("SC_PAGE_SIZE") // KIB


def boot_id(proc: Path = PROC) -> str:
    """What tells one start of this machine from the next; empty where nothing does."""
    try:
        return (proc / "sys/kernel/random/boot_id").read_text(encoding="ascii", errors="replace").strip()
    except OSError:
        return ""


@dataclass(frozen=True)
class ProcessLine:
    """What /proc/PID/stat says of one process."""

    name: str
    parent: int
    state: str
    cpu_s: float
    reaped_s: float
    """Processor time of children it has waited for, their whole lives at once."""
    threads: int
    started_ticks: int
    vsz_kib: int
    rss_kib: int


def listed_pids(proc: Path | str = PROC) -> set[int]:
    """Every process there is; OSError where there is no /proc."""
    return {int(name) for name in os.listdir(proc) if name.isdigit()}  # noqa: PTH208 (ten times as fast as a Path each)


def all_pids(proc: Path = PROC) -> set[int]:
    """The same, and none where there is no /proc."""
    with contextlib.suppress(OSError):
        return listed_pids(proc)
    return set()


def own_pids(proc: Path = PROC) -> set[int]:
    """Processes of this user."""
    user, pids = os.getuid(), set()
    for pid in all_pids(proc):
        with contextlib.suppress(OSError):
            if os.stat(f"{proc}/{pid}").st_uid == user:  # noqa: PTH116 (hundreds of them)
                pids.add(pid)
    return pids


def start_ticks(pid: int, proc: Path = PROC) -> int | None:
    """When a process started, in kernel ticks: with the pid it names one process for ever. None when it is gone or a zombie."""
    line = read_line(str(proc), pid)
    return None if line is None or line.state == ZOMBIE else line.started_ticks


def command_words(pid: int, proc: Path = PROC) -> tuple[bytes, ...]:
    """The words of its command line, as bytes: they need not be text."""
    return _words(proc / str(pid) / "cmdline")


def environment_words(pid: int, proc: Path = PROC) -> tuple[bytes, ...]:
    """The variables it was started with, `NAME=value` each."""
    return _words(proc / str(pid) / "environ")


def read_line(proc: str, pid: int) -> ProcessLine | None:
    """One process; None when it is gone or its line is not as it should be."""
    try:
        with open(f"{proc}/{pid}/stat", "rb", buffering=0) as source:
            text = source.read(4096)
        # The name stands in brackets and may hold spaces and brackets itself.
        name_ends = text.rindex(b")")
        fields = text[name_ends + 2 :].split()
        return ProcessLine(
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


def _words(path: Path) -> tuple[bytes, ...]:
    """Each ends with a zero byte; one that a process wrote over itself may lack the last. Threads of the kernel have none."""
    with contextlib.suppress(OSError):
        text = path.read_bytes()
        return tuple(text.removesuffix(b"\0").split(b"\0")) if text else ()
    return ()
