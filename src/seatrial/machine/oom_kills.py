"""How often the kernel's OOM killer has ended a process, by its own counters.

In: /proc and the control groups of this process. Out: the counters (of its control group, version 2 or 1, and of the whole host), and in
words which of them rose between two looks. A process that was killed so cannot say it, and the kernel's log never reaches a run's. What
cannot be read is left out; nothing here raises.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from seatrial.machine.proc_files import PROC

CGROUPS = Path("/sys/fs/cgroup")
OWN = "in its cgroup"
HOST = "on this host"
COUNTER = "oom_kill"


class OomKills:
    """The counters when a run starts, to be compared with those at its end."""

    def __init__(self, proc: Path = PROC, cgroups: Path = CGROUPS) -> None:
        self._proc, self._cgroups = proc, cgroups
        self._before = oom_kills(proc, cgroups)

    def words(self) -> str:
        """`oom_kill 3 → 4 in its cgroup`; empty where no counter rose. That of the group counts before that of the host."""
        after = oom_kills(self._proc, self._cgroups)
        rose = (where for where in (OWN, HOST) if where in self._before and after.get(where, 0) > self._before[where])
        return next((f"{COUNTER} {self._before[where]} → {after[where]} {where}" for where in rose), "")


def oom_kills(proc: Path = PROC, cgroups: Path = CGROUPS) -> dict[str, int]:
    """Where → how often since the machine, or the group, came up."""
    own = next((count for path in _files(proc, cgroups) if (count := _count(path)) is not None), None)
    host = _count(proc / "vmstat")
    return {where: count for where, count in ((OWN, own), (HOST, host)) if count is not None}


def _files(proc: Path, cgroups: Path) -> Iterator[Path]:
    """Where its group may count; in a container the group's own folder is the root that is seen."""
    for line in _text(proc / "self" / "cgroup").splitlines():
        _, controllers, path = [*line.split(":", 2), "", ""][:3]
        folder, name = (cgroups, "memory.events") if not controllers else (cgroups / "memory", "memory.oom_control")
        if not controllers or "memory" in controllers.split(","):
            yield folder / path.strip("/") / name
            yield folder / name


def _count(path: Path) -> int | None:
    for line in _text(path).splitlines():
        name, _, value = line.partition(" ")
        if name == COUNTER and value.strip().isdigit():
            return int(value)
    return None


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except (OSError, ValueError):
        return ""
