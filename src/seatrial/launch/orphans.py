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

from seatrial.machine.process_tree import PROC, read_line
from seatrial.records.events import ENV_RUN_DIR

ZOMBIE = "Z"
PATIENCE_S = 5.0
LOOK_EVERY_S = 0.1


def start_ticks(pid: int, proc: Path = PROC) -> int | None:
    """When a process started, in kernel ticks: with the pid it names one process for ever. None when it is gone or a zombie."""
    line = read_line(str(proc), pid)
    return None if line is None or line.state == ZOMBIE else line.started_ticks


def find_orphans(folder: Path, known: Mapping[int, int], proc: Path = PROC) -> list[int]:
    """Living processes of the attempt in `folder`; `known` maps reported pids to their start ticks."""
    lines = ((pid, read_line(str(proc), pid)) for pid in _own_pids(proc))
    living = {pid: line for pid, line in lines if line is not None and line.state != ZOMBIE}
    marker = f"{ENV_RUN_DIR}={folder}".encode()
    found = {pid for pid, ticks in known.items() if pid in living and living[pid].started_ticks == ticks}
    found |= {pid for pid in living if marker in _environment(proc / str(pid))}
    return sorted(_with_children(found, {pid: line.parent for pid, line in living.items()}) - {os.getpid()})


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


def _environment(process: Path) -> list[bytes]:
    try:
        return (process / "environ").read_bytes().split(b"\0")
    except OSError:
        return []
