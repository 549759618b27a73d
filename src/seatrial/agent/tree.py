"""The agent's descendants: adopting orphans, collecting exit codes, signalling all of them.

As a child subreaper the agent becomes the parent of every process whose own parent ended, so nothing that a run starts can leave
the tree, whatever sessions and process groups it makes for itself. `reap()` finding no child therefore means that none is left.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable, Iterable

import psutil

from seatrial import kinship
from seatrial.agent.reports import note
from seatrial.machine.proc_files import PROC, STOPPED, read_line

# Of an agent that failed itself: what is left then gets no patience, and the agent has none to give.
LAST_CARE_S = 2.0


def adopt_all_orphans() -> None:
    """Make this process the parent of every orphan below it (Linux)."""
    if not kinship.adopt_orphans():
        note("this kernel has no child subreaper: processes that detach themselves may outlive the run")


def bind_to_parent() -> None:
    """Called in a child before it executes its program: it gets TERM when the agent dies, and the agent's py-spy may look at it.

    TERM and not KILL: a launcher ends its ranks at TERM, and killed it would leave them alive with nobody to end them.
    """
    kinship.end_with_parent(signal.SIGTERM)
    kinship.let_look(os.getppid())


def reap() -> tuple[dict[int, int], bool]:
    """Exit codes (a signal is negative) of children that ended since the last call, and whether any child is left."""
    ended: dict[int, int] = {}
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return ended, False
        if pid == 0:
            return ended, True
        ended[pid] = os.waitstatus_to_exitcode(status)


def descendants() -> list[psutil.Process]:
    """Every living process below this one, at this moment."""
    with contextlib.suppress(psutil.NoSuchProcess):
        return [process for process in psutil.Process().children(recursive=True) if not _is_zombie(process)]
    return []


def send(processes: Iterable[psutil.Process], number: signal.Signals) -> set[int]:
    """Signal each process; the pids of those that were there to get it."""
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


def resume(processes: Iterable[psutil.Process]) -> None:
    """Let stopped ones go on: TERM waits at a stopped process until it runs."""
    send([process for process in processes if is_stopped(process.pid)], signal.SIGCONT)


def is_stopped(pid: int) -> bool:
    line = read_line(str(PROC), pid)
    return line is not None and line.state == STOPPED


def kill_children() -> set[int]:
    """KILL every direct child, orphans that came here included; their pids.

    Far quicker than a look at the whole tree, so that a process which forks anew whenever it ends is caught between two forks.
    """
    killed: set[int] = set()
    for pid in kinship.children():
        with contextlib.suppress(OSError):
            os.kill(pid, signal.SIGKILL)
            killed.add(pid)
    return killed


def end_all(sleep: Callable[[float], None] = time.sleep) -> None:
    """KILL until nobody is left or care ends: the way out of an agent that failed."""
    until_m = time.monotonic() + LAST_CARE_S
    while time.monotonic() < until_m:
        send(descendants(), signal.SIGKILL)
        if not reap()[1]:
            return
        kill_children()
        sleep(0.01)


def _is_zombie(process: psutil.Process) -> bool:
    try:
        return process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True
