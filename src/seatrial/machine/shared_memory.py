"""Shared-memory segments under /dev/shm that a run left when it was killed: libraries unlink them at their own end, which never came.

In: the names that were there before the run. Out: the files that are new, belong to this user, carry the name of a library that
makes them for one run, and are open or mapped in no living process; while another campaign runs on this host, only those whose names
tell a maker that is gone. Nothing is removed here.
"""

from __future__ import annotations

import contextlib
import os
import re
import stat
from collections.abc import Collection, Iterator
from pathlib import Path

from seatrial.machine.proc_files import PROC, command_words, listed_pids
from seatrial.machine.running_agents import AGENT

SHARED_MEMORY = Path("/dev/shm")
# torch, NCCL, gloo, CUDA, DeepSpeed, UCX and Open MPI; Python's own and joblib's. Anything else may be meant to outlive its maker.
PREFIXES = (
    "torch_",
    "nccl-",
    "gloo",
    "cuda.shm.",
    "deepspeed_",
    "ucx_shm_posix_",
    "vader_segment.",
    "sm_segment.",
    "psm_",
    "pym-",
    "mp-",
    "sem.mp-",
    "sem.loky-",
    "loky-",
)
# torch writes the pid of the maker into the name.
_MAKER = re.compile(r"torch_(?P<pid>\d+)_")


def present(root: Path = SHARED_MEMORY) -> tuple[str, ...]:
    """Names of known kinds that are there now."""
    try:
        return tuple(sorted(name for name in os.listdir(root) if name.startswith(PREFIXES)))  # noqa: PTH208
    except OSError:
        return ()


def left_behind(before: Collection[str], *, newest_t: float | None = None, root: Path = SHARED_MEMORY, proc: Path = PROC) -> list[Path]:
    """Files made since `before` was taken (not after `newest_t`, where that is known) that nobody uses."""
    new = [root / name for name in present(root) if name not in before]
    candidates = [path for path in new if _is_own_file(path, newest_t) and not _maker_lives(path.name, proc)]
    if candidates and _another_agent_runs(proc):
        # Whose a segment is can then be told only where its maker's pid stands in the name.
        candidates = [path for path in candidates if _MAKER.match(path.name)]
    if not candidates:
        return []
    used = set(_used(str(root), proc))
    return [path for path in candidates if str(path) not in used]


def _is_own_file(path: Path, newest_t: float | None) -> bool:
    try:
        status = path.lstat()
    except OSError:
        return False
    return stat.S_ISREG(status.st_mode) and status.st_uid == os.getuid() and (newest_t is None or status.st_ctime <= newest_t)


def _another_agent_runs(proc: Path) -> bool:
    """Whether another campaign is under way on this host, whose segments come and go meanwhile."""
    return any(AGENT.encode() in command_words(pid, proc) for pid in listed_pids(proc) - {os.getpid()})


def _maker_lives(name: str, proc: Path) -> bool:
    maker = _MAKER.match(name)
    return maker is not None and (proc / maker["pid"]).is_dir()


def _used(root: str, proc: Path) -> Iterator[str]:
    """Every path below `root` that a process has open or mapped; what cannot be read belongs to other users."""
    for pid in listed_pids(proc):
        yield from _mapped(root, proc / str(pid))
        yield from _open(root, proc / str(pid))


def _mapped(root: str, process: Path) -> Iterator[str]:
    try:
        lines = (process / "maps").read_bytes().splitlines()
    except OSError:
        return
    for line in lines:
        _, found, path = line.partition(f" {root}/".encode())
        if found:
            yield f"{root}/{os.fsdecode(path)}"


def _open(root: str, process: Path) -> Iterator[str]:
    try:
        handles = os.listdir(process / "fd")  # noqa: PTH208 (many of them)
    except OSError:
        return
    for handle in handles:
        with contextlib.suppress(OSError):
            target = os.readlink(f"{process}/fd/{handle}")  # noqa: PTH115
            if target.startswith(f"{root}/"):
                yield target
