"""How this process stands to its parents and children, as Linux keeps it. Standard library only; elsewhere nothing happens.

In: nothing but this process itself. Out: whether the kernel did as it was asked, and the children it lists.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
from pathlib import Path

OWN_TASKS = Path("/proc/self/task")
_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_PR_SET_PTRACER = 0x59616D61


def adopt_orphans(adopts: bool = True) -> bool:
    """Become, or cease to be, the parent of every orphan below this process; false where the kernel knows no such thing."""
    return _prctl(_PR_SET_CHILD_SUBREAPER, int(adopts))


def end_with_parent(number: signal.Signals) -> bool:
    """Get this signal when the thread that started this process ends. A parent that is gone already sends none: ask os.getppid()."""
    return _prctl(_PR_SET_PDEATHSIG, number)


def let_look(pid: int) -> bool:
    """Where Yama lets only ancestors look into a process, make this one an exception."""
    return _prctl(_PR_SET_PTRACER, pid)


def children(tasks: Path = OWN_TASKS) -> set[int]:
    """Direct children that were not collected yet; none where the kernel does not list them."""
    found: set[int] = set()
    with contextlib.suppress(OSError):
        for task in os.listdir(tasks):  # noqa: PTH208 (a race that a Path for each would lose)
            with contextlib.suppress(OSError), open(f"{tasks}/{task}/children", "rb", buffering=0) as listed:
                found.update(int(pid) for pid in listed.read(64 * 1024).split())
    return found


def _prctl(option: int, value: int) -> bool:
    try:
        return bool(ctypes.CDLL(None, use_errno=True).prctl(option, value, 0, 0, 0) == 0)
    except (OSError, AttributeError):
        return False
