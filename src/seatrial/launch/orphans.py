"""Finding and killing what a run left when its agent itself was killed.

Every process of an attempt has SEATRIAL_RUN_DIR=<attempt folder> in the environment it was started with; children of such a
process, and of the pids the agent reported, belong to the attempt too, whatever they did to their own environment. Linux only.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from seatrial.records.events import ENV_RUN_DIR

PROC = Path("/proc")
PATIENCE_S = 5.0
LOOK_EVERY_S = 0.1


def start_ticks(pid: int, proc: Path = PROC) -> int | None:
    """When a process started, in kernel ticks: with the pid it names one process for ever. None when it is gone or a zombie."""
    fields = _stat(proc / str(pid))
    return None if fields is None or fields[0] == "Z" else int(fields[19])


def find_orphans(folder: Path, known: Mapping[int, int], proc: Path = PROC) -> list[int]:
    """Living processes of the attempt in `folder`; `known` maps reported pids to their start ticks."""
    living = {pid: fields for pid in _own_pids(proc) if (fields := _stat(proc / str(pid))) is not None and fields[0] != "Z"}
    marker = f"{ENV_RUN_DIR}={folder}".encode()
    found = {pid for pid, ticks in known.items() if pid in living and int(living[pid][19]) == ticks}
    found |= {pid for pid in living if marker in _environment(proc / str(pid))}
    return sorted(_with_children(found, {pid: int(fields[1]) for pid, fields in living.items()}) - {os.getpid()})


def kill_orphans(
    folder: Path,
    known: Mapping[int, int],
    sleep: Callable[[float], None] = time.sleep,
    clock: Callable[[], float] = time.monotonic,
) -> set[int]:
    """KILL them until none is left or patience ends; the pids that were killed."""
    killed: set[int] = set()
    until = clock() + PATIENCE_S
    while (left := find_orphans(folder, known)) and clock() < until:
        for pid in left:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
                killed.add(pid)
        sleep(LOOK_EVERY_S)
    return killed


def _with_children(found: Iterable[int], parents: Mapping[int, int]) -> set[int]:
    family = set(found)
    while more := {pid for pid, parent in parents.items() if parent in family} - family:
        family |= more
    return family


def _own_pids(proc: Path) -> list[int]:
    """Processes of this user."""
    user, pids = os.getuid(), []
    for entry in proc.iterdir() if proc.is_dir() else ():
        with contextlib.suppress(OSError):
            if entry.name.isdigit() and entry.stat().st_uid == user:
                pids.append(int(entry.name))
    return pids


def _stat(process: Path) -> list[str] | None:
    """Fields of /proc/PID/stat from the state on; the name before them may hold anything, parentheses too."""
    try:
        text = (process / "stat").read_text(errors="replace")
    except OSError:
        return None
    return text.rpartition(")")[2].split()


def _environment(process: Path) -> list[bytes]:
    try:
        return (process / "environ").read_bytes().split(b"\0")
    except OSError:
        return []
