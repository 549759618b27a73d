"""Run folder of a training started by hand: the start time that all ranks share, checks for an earlier or running run and for write
permission, and setting an earlier run's files aside."""

from __future__ import annotations

import functools
import json
import os
import re
import socket
import tempfile
import time
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from seatrial.core.paths import AttemptPaths
from seatrial.probe.identity import START_TIME_FIELD, rank_and_world_size
from seatrial.records.events import ENV_RUN_DIR
from seatrial_workloads.common.errors import StartupError, first_line

PROC = Path("/proc")
# Ranks on this node, as torchrun and deepspeed set it.
LOCAL_WORLD_SIZE_VARIABLES = ("LOCAL_WORLD_SIZE", "LOCAL_SIZE")
# Set where torchrun's agent hosts the store, and how often it has restarted the ranks: each restart has its own start time.
AGENT_STORE, RESTART_COUNT = "TORCHELASTIC_USE_AGENT_STORE", "TORCHELASTIC_RESTART_COUNT"


class NoSharedStartTime(ValueError):
    """The reason, as the end of `ranks …`."""


def shared_start_t(env: Mapping[str, str]) -> float:
    """Start time that is the same on every rank: the launcher's own, or rank 0's over the rendezvous store."""
    rank, world_size = rank_and_world_size(env)
    if world_size == 1:
        return time.time()
    local_world_size = next((int(env[name]) for name in LOCAL_WORLD_SIZE_VARIABLES if env.get(name, "").isdecimal()), None)
    if local_world_size != world_size:
        which = "on several nodes" if local_world_size else "started one by one"
        if not (env.get("MASTER_ADDR") and env.get("MASTER_PORT", "").isdecimal()):
            raise NoSharedStartTime(which)
        hosts_store = rank == 0 and env.get(AGENT_STORE) != "True"
        return _start_t_of_rank_0(env["MASTER_ADDR"], int(env["MASTER_PORT"]), rank, hosts_store, env.get(RESTART_COUNT, "0"), which)
    try:
        # Both launchers are the parent of their ranks.
        return _process_start_t(os.getppid())
    except (OSError, ValueError, IndexError, StopIteration):
        raise NoSharedStartTime("whose launcher /proc does not show") from None


def shared_start_name(env: Mapping[str, str], pattern: str = "%Y%m%d-%H%M%S") -> str:
    """The shared start time, formatted for a folder name."""
    return time.strftime(pattern, time.localtime(shared_start_t(env)))


# Cached for the life of the process: the process group then reuses the store that already listens there.
@functools.cache
def store_at(address: str, port: int, hosts_store: bool) -> Any:
    from torch.distributed import TCPStore

    return TCPStore(address, port, is_master=hosts_store, wait_for_workers=False, multi_tenant=True)


def _start_t_of_rank_0(address: str, port: int, rank: int, hosts_store: bool, restart: str, which: str) -> float:
    """Rank 0's time, through the rendezvous store."""
    key = f"seatrial/start_t/{restart}"
    try:
        store = store_at(address, port, hosts_store)
        # The first value stays: a folder name may contain the time twice.
        start_t = store.compare_set(key, "", repr(time.time())) if rank == 0 else store.get(key)
    except RuntimeError as error:
        raise NoSharedStartTime(f"{which} that do not reach rank 0 at {address}:{port} ({first_line(error)})") from error
    return float(start_t)


def _process_start_t(pid: int) -> float:
    """Start time of a process; boot time and ticks are the kernel's integers, so every rank computes the same."""
    after_name = (PROC / str(pid) / "stat").read_text(errors="replace").rpartition(")")[2].split()
    boot_t = next(int(line.split()[1]) for line in (PROC / "stat").read_text().splitlines() if line.startswith("btime"))
    return boot_t + int(after_name[START_TIME_FIELD]) / os.sysconf("SC_CLK_TCK")


EARLIER = "earlier"
FIRST_EVENTS = "events_rank0.jsonl"
STEP = b'"kind":"step"'


def holds_a_run(run_dir: Path, env: Mapping[str, str] = os.environ) -> bool:
    """Whether the folder has steps of an earlier run; never under the harness (a folder per attempt) or after a torchrun restart."""
    if env.get(ENV_RUN_DIR) or env.get("TORCHELASTIC_RESTART_COUNT", "0") != "0":
        return False
    try:
        return STEP in (run_dir / FIRST_EVENTS).read_bytes()
    except OSError:
        return False


def check_folder_unused(run_dir: Path) -> None:
    """For a trainer started by hand; called by rank 0 before the first step."""
    if holds_a_run(run_dir):
        raise StartupError(f"--run-dir is {run_dir}, which holds an earlier run: use another folder (--resume_from takes the old one)")


def check_no_live_run(run_dir: Path, rank: int, setting: str) -> None:
    """Two runs in one folder would mix their rows. `setting` names what chooses the folder."""
    try:
        last = json.loads(AttemptPaths(run_dir).heartbeat(rank).read_bytes().splitlines()[-1])
        alive = (
            last["msg"] != "done" and last["host"] == socket.gethostname() and last["pid"] != os.getpid() and _is_alive(int(last["pid"]))
        )
    except (OSError, ValueError, LookupError, TypeError):
        return
    if alive:
        raise StartupError(f"{run_dir} is in use by process {last['pid']}: end that run first, or change {setting}")


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except OSError:
        return False
    # A zombie has ended.
    return ") Z " not in Path(f"/proc/{pid}/stat").read_text(errors="replace")


def set_aside(run_dir: Path, own: re.Pattern[str], *, keep: Collection[str] = ()) -> Path | None:
    """Move the files of an earlier run, known by their names, to `earlier/<number>`; None where there are none. Called by rank 0 before any
    rank has opened a file of the new run."""
    found = [path for path in sorted(run_dir.iterdir()) if own.fullmatch(path.name) and path.name not in keep] if run_dir.is_dir() else []
    if not found:
        return None
    numbers = [int(path.name) for path in (run_dir / EARLIER).glob("*") if path.name.isdecimal()]
    folder = run_dir / EARLIER / str(max(numbers, default=0) + 1)
    folder.mkdir(parents=True)
    for path in found:
        path.rename(folder / path.name)
    return folder


def check_writable(folder: Path, named: str) -> None:
    """Create the folder, and a file in it; a StartupError that begins with `named` where that fails."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        reason = f"no file can be written there ({error.strerror or error})"
        raise StartupError(f"{named} is {folder}, and {reason}: use another folder, or change its permissions") from error
