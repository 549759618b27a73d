"""A time that every rank of one start agrees on, to name a folder by. In: the launcher's variables. Out: seconds since 1970.

Now for a single process; the launcher's own start for its ranks, which begin a second apart. Ranks on several nodes, or started one by one,
ask rank 0 at the address where they meet anyway; where none was given they have no time in common: NoCommonTime says which they are, and
the caller which flag to give.
"""

from __future__ import annotations

import functools
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from seatrial.probe.identity import START_TIME_FIELD, rank_and_world_size

PROC = Path("/proc")
# How many ranks this node has, as torchrun and deepspeed say it.
RANKS_OF_NODE = ("LOCAL_WORLD_SIZE", "LOCAL_SIZE")
# Where torchrun's agent keeps the store itself, and how often it has started the ranks again: each time is a start of its own.
AGENT_STORE, RESTART_COUNT = "TORCHELASTIC_USE_AGENT_STORE", "TORCHELASTIC_RESTART_COUNT"


class NoCommonTime(ValueError):
    """Why there is none, as the end of `ranks …`."""


def shared_start_t(env: Mapping[str, str]) -> float:
    rank, world_size = rank_and_world_size(env)
    if world_size == 1:
        return time.time()
    of_node = next((int(env[name]) for name in RANKS_OF_NODE if env.get(name, "").isdecimal()), None)
    if of_node != world_size:
        which = "on several nodes" if of_node else "started one by one"
        if not (env.get("MASTER_ADDR") and env.get("MASTER_PORT", "").isdecimal()):
            raise NoCommonTime(which)
        hosts_store = rank == 0 and env.get(AGENT_STORE) != "True"
        return _told_by_rank_0(env["MASTER_ADDR"], int(env["MASTER_PORT"]), rank, hosts_store, env.get(RESTART_COUNT, "0"), which)
    try:
        # Both launchers are the parent of their ranks.
        return _process_start_t(os.getppid())
    except (OSError, ValueError, IndexError, StopIteration):
        raise NoCommonTime("whose launcher /proc does not show") from None


def shared_start_name(env: Mapping[str, str], pattern: str = "%Y%m%d-%H%M%S") -> str:
    """Date and time of it, for a folder."""
    return time.strftime(pattern, time.localtime(shared_start_t(env)))


# Kept to the end: the process group then takes the store that listens there already, and asking again does not ask the network.
@functools.cache
def _store_at(address: str, port: int, hosts_store: bool) -> Any:
    from torch.distributed import TCPStore

    return TCPStore(address, port, is_master=hosts_store, wait_for_workers=False, multi_tenant=True)


def _told_by_rank_0(address: str, port: int, rank: int, hosts_store: bool, restart: str, which: str) -> float:
    """Rank 0's time, through the store at which the ranks of a start meet."""
    key = f"seatrial/start_t/{restart}"
    try:
        store = _store_at(address, port, hosts_store)
        # The first time that is said stays: a folder and a date in it are asked for one after the other.
        told = store.compare_set(key, "", repr(time.time())) if rank == 0 else store.get(key)
    except RuntimeError as error:
        raise NoCommonTime(f"{which} that do not reach rank 0 at {address}:{port} ({str(error).splitlines()[0]})") from error
    return float(told)


def _process_start_t(pid: int) -> float:
    """When a process began. Boot time and ticks are whole numbers of the kernel: whoever asks gets the same."""
    after_name = (PROC / str(pid) / "stat").read_text(errors="replace").rpartition(")")[2].split()
    boot_t = next(int(line.split()[1]) for line in (PROC / "stat").read_text().splitlines() if line.startswith("btime"))
    return boot_t + int(after_name[START_TIME_FIELD]) / os.sysconf("SC_CLK_TCK")
