"""A time that every rank of one start agrees on, to name a folder by. In: the launcher's variables. Out: seconds since 1970.

Now for a single process; the launcher's own start for its ranks, which begin a second apart. Ranks on several nodes, or started one by one,
have none in common: NoCommonTime says which they are, and the caller which flag to give.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from pathlib import Path

from seatrial.probe.identity import START_TIME_FIELD, rank_and_world_size

PROC = Path("/proc")
# How many ranks this node has, as torchrun and deepspeed say it.
RANKS_OF_NODE = ("LOCAL_WORLD_SIZE", "LOCAL_SIZE")


class NoCommonTime(ValueError):
    """Why there is none, as the end of `ranks …`."""


def shared_start_t(env: Mapping[str, str]) -> float:
    _, world_size = rank_and_world_size(env)
    if world_size == 1:
        return time.time()
    of_node = next((int(env[name]) for name in RANKS_OF_NODE if env.get(name, "").isdecimal()), None)
    if of_node != world_size:
        raise NoCommonTime("on several nodes" if of_node else "started one by one")
    try:
        # Both launchers are the parent of their ranks.
        return _process_start_t(os.getppid())
    except (OSError, ValueError, IndexError, StopIteration):
        raise NoCommonTime("whose launcher /proc does not show") from None


def shared_start_name(env: Mapping[str, str], pattern: str = "%Y%m%d-%H%M%S") -> str:
    """Date and time of it, for a folder."""
    return time.strftime(pattern, time.localtime(shared_start_t(env)))


def _process_start_t(pid: int) -> float:
    """When a process began. Boot time and ticks are whole numbers of the kernel: whoever asks gets the same."""
    after_name = (PROC / str(pid) / "stat").read_text(errors="replace").rpartition(")")[2].split()
    boot_t = next(int(line.split()[1]) for line in (PROC / "stat").read_text().splitlines() if line.startswith("btime"))
    return boot_t + int(after_name[START_TIME_FIELD]) / os.sysconf("SC_CLK_TCK")
