"""Finding and ending what a run left when its agent itself was killed, by the harness that lost it or by a later one.

Every process of an attempt has SEATRIAL_RUN_DIR=<attempt folder> in the environment it was started with; children of such a
process, and of the pids the agent reported, belong to the attempt too, whatever they did to their own environment. A harness that
adopts orphans also becomes the parent of all of them when the agent dies. Shared memory they leave is removed. Linux only.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from pathlib import Path

from seatrial.files import read_json
from seatrial.machine.process_tree import PROC, read_line
from seatrial.machine.shared_memory import left_behind
from seatrial.paths import AttemptPaths
from seatrial.records.events import ENV_RUN_DIR

ZOMBIE = "Z"
PATIENCE_S = 5.0
LOOK_EVERY_S = 0.1
# How long after the last sign of life of an attempt shared memory may still be its own.
SIGN_OF_LIFE_S = 60.0


def start_ticks(pid: int, proc: Path = PROC) -> int | None:
    """When a process started, in kernel ticks: with the pid it names one process for ever. None when it is gone or a zombie."""
    line = read_line(str(proc), pid)
    return None if line is None or line.state == ZOMBIE else line.started_ticks


def find_orphans(
    folder: Path,
    known: Mapping[int, int],
    *,
    roots: Collection[int] = (),
    among: Iterable[int] | None = None,
    proc: Path = PROC,
) -> list[int]:
    """Living processes of the attempt in `folder`: `known` maps reported pids to their start ticks, `roots` are its own for certain."""
    lines = ((pid, read_line(str(proc), pid)) for pid in (own_pids(proc) if among is None else among))
    living = {pid: line for pid, line in lines if line is not None and line.state != ZOMBIE}
    marker = f"{ENV_RUN_DIR}={folder}".encode()
    found = {pid for pid, ticks in known.items() if pid in living and living[pid].started_ticks == ticks}
    found |= {pid for pid in living if marker in _environment(proc / str(pid)) or _is_agent_of(folder, proc / str(pid))}
    family = _with_children({*found, *roots}, {pid: line.parent for pid, line in living.items()})
    return sorted((family & living.keys()) - {os.getpid()})


def kill_orphans(
    folder: Path,
    known: Mapping[int, int],
    adopted: Callable[[], set[int]] = set,
    sleep: Callable[[float], None] = time.sleep,
    clock: Callable[[], float] = time.monotonic,
) -> set[int]:
    """KILL them until none is left or patience ends, then remove their shared memory; the pids that were killed."""
    chase = _Chase(folder, known, adopted)
    until = clock() + PATIENCE_S
    while chase.look() and clock() < until:
        # What forks anew whenever it is killed is caught only by looking faster than it forks.
        again_at = clock() + LOOK_EVERY_S
        while chase.look_at_new() and clock() < again_at:
            continue
        sleep(LOOK_EVERY_S)
    _remove_shared_memory(folder)
    return chase.killed


class _Chase:
    """Looks for the processes of one attempt again and again, and kills them."""

    def __init__(self, folder: Path, known: Mapping[int, int], adopted: Callable[[], set[int]]) -> None:
        self._folder, self._known, self._adopted = folder, known, adopted
        self._seen: set[int] = set()
        self.killed: set[int] = set()

    def look(self) -> bool:
        """Kill whatever can be found; whether there was anything."""
        self._seen = own_pids()
        return self._kill_among(self._seen)

    def look_at_new(self) -> bool:
        """The same for what came since, which takes a tenth of the time; whether anything came, the run's or not, alive or not."""
        there = all_pids()
        new, self._seen = there - self._seen, there
        return self._kill_among(new) or bool(new)

    def _kill_among(self, pids: set[int]) -> bool:
        # As long as one of the adopted forks, another is there, if only as a zombie.
        adopted = self._adopted()
        found = {pid for pid in adopted if not _is_collected(pid)}
        _kill(found)
        found.update(find_orphans(self._folder, self._known, roots=adopted | self.killed, among=pids))
        _kill(found)
        self.killed |= found
        return bool(adopted or found)


def all_pids(proc: Path = PROC) -> set[int]:
    """Every process there is; none where there is no /proc."""
    try:
        return {int(name) for name in os.listdir(proc) if name.isdigit()}  # noqa: PTH208 (ten times as fast as a Path each)
    except OSError:
        return set()


def own_pids(proc: Path = PROC) -> set[int]:
    """Processes of this user."""
    user, pids = os.getuid(), set()
    for pid in all_pids(proc):
        with contextlib.suppress(OSError):
            if os.stat(f"{proc}/{pid}").st_uid == user:  # noqa: PTH116 (hundreds of them)
                pids.add(pid)
    return pids


def _kill(pids: Iterable[int]) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGKILL)


def _is_agent_of(folder: Path, process: Path) -> bool:
    """An agent that outlived its harness, since somebody had suspended it."""
    with contextlib.suppress(OSError):
        words = (process / "cmdline").read_bytes().split(b"\0")
        return b"seatrial.agent" in words and os.fsencode(AttemptPaths(folder).agent_order) in words
    return False


def _is_collected(pid: int) -> bool:
    """Whether an adopted process is over; its exit code is taken, so that no zombie stays."""
    try:
        return os.waitpid(pid, os.WNOHANG)[0] == pid
    except ChildProcessError:
        return True


def _remove_shared_memory(folder: Path) -> None:
    """Only on the host of the attempt, and only what is not younger than the attempt's own last sign of life."""
    attempt = AttemptPaths(folder)
    with contextlib.suppress(OSError):
        order = read_json(attempt.agent_order)
        if not isinstance(order, dict) or order.get("host") != socket.gethostname() or not isinstance(order.get("shared_memory"), list):
            return
        newest_t = max((path.lstat().st_mtime for path in folder.iterdir()), default=0.0) + SIGN_OF_LIFE_S
        for path in left_behind(order["shared_memory"], newest_t=newest_t):
            path.unlink(missing_ok=True)


def _with_children(found: Iterable[int], parents: Mapping[int, int]) -> set[int]:
    family = set(found)
    while more := {pid for pid, parent in parents.items() if parent in family} - family:
        family |= more
    return family


def _environment(process: Path) -> list[bytes]:
    try:
        return (process / "environ").read_bytes().split(b"\0")
    except OSError:
        return []
