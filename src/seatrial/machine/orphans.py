"""Finds and kills what a run left when its agent was killed: processes, and shared-memory segments under /dev/shm.

Used by the harness that lost the agent (on another host through `seatrial.agent --end`), by a later harness, and by the agent of a later
attempt on the same host. Every process of an attempt was started with SEATRIAL_RUN_DIR=<attempt folder>; its children, and those of the
pids that the agent reported, belong to the attempt too, whatever their environment. A harness that is a subreaper becomes the parent of all
of them when the agent dies. Processes that a person started with an attempt's command.sh have <attempt folder>/by-hand there and are never
touched. Linux only.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import socket
import stat
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from pathlib import Path

from seatrial.core.files import read_json
from seatrial.core.paths import ATTEMPT_NAME, BY_HAND, AttemptPaths
from seatrial.core.private_files import NotPrivateError, read_private_json
from seatrial.machine.processes import AGENT_MODULE, PROC, ZOMBIE, list_own_pids, list_pids, read_cmdline, read_environ, read_process
from seatrial.records.events import ENV_RUN_DIR

KILL_TIMEOUT_S = 5.0
SCAN_EVERY_S = 0.1
# A shared-memory segment may be this much newer than an attempt's last write and still be its own.
SEGMENT_MARGIN_S = 60.0
SHARED_MEMORY = Path("/dev/shm")
# torch, NCCL, gloo, CUDA, DeepSpeed, UCX and Open MPI; Python's own and joblib's. Others may be intended to outlive their process.
SEGMENT_PREFIXES = (
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
# torch writes the pid of the creator into the name.
_CREATOR = re.compile(r"torch_(?P<pid>\d+)_")
_RUN_DIR = f"{ENV_RUN_DIR}=".encode()

PathFilter = Callable[[bytes], bool]
"""Whether a process that names this path is wanted."""


def kill_orphans(folder: Path, known: Mapping[int, int], adopted: Callable[[], set[int]] = set) -> set[int]:
    """KILL the processes of an attempt until none is left or the time is up, then remove their shared memory; returns the pids."""
    killed = _kill_until_gone(_OrphanKiller(belongs_to_attempt(folder), known, adopted))
    _remove_segments(folder)
    return killed


def kill_leftovers(campaign: Path, attempt: Path, go_on: Callable[[], bool] = lambda: True) -> set[int]:
    """Kill what every other attempt of the campaign has left on this host; shared memory stays, since its owner is unknown.

    Only for a caller who knows that `attempt` is the current one; `go_on` is called before each scan to check that it still is.
    """
    return _kill_until_gone(_OrphanKiller(belongs_to_other_attempt(campaign, attempt), {}, set), go_on)


def find_leftovers(campaign: Path, attempt: Path) -> list[int]:
    """What `kill_leftovers` would kill."""
    return find_processes(belongs_to_other_attempt(campaign, attempt), {})


def belongs_to_attempt(folder: Path) -> PathFilter:
    """Paths in an attempt's folder, except what a person started by hand."""
    return _below(re.escape(os.fsencode(folder)))


def belongs_to_other_attempt(campaign: Path, attempt: Path) -> PathFilter:
    """Paths of the campaign's attempts except this one, and those of another Slurm job that are not over: where Slurm lets two jobs share
    a node, both live. A campaign within another's folder is not one of its attempts."""
    any_attempt, this_one = _below(re.escape(os.fsencode(campaign)) + b"/[^/]+/" + ATTEMPT_NAME.encode()), belongs_to_attempt(attempt)
    depth = len(campaign.parts) + 2
    return lambda path: any_attempt(path) and not this_one(path) and not _is_of_another_job(Path(*Path(os.fsdecode(path)).parts[:depth]))


def _is_of_another_job(folder: Path) -> bool:
    attempt = AttemptPaths(folder)
    job = read_json(attempt.job)
    of_another = isinstance(job, dict) and job.get("job") not in (None, os.environ.get("SLURM_JOB_ID"))
    return of_another and not attempt.outcome.exists()


def _below(pattern: bytes) -> PathFilter:
    compiled = re.compile(pattern + rb"(?!/" + BY_HAND.encode() + rb"(?:/|\Z))(?:/.*)?", re.DOTALL)
    return lambda path: compiled.fullmatch(path) is not None


def find_processes(
    wanted: PathFilter, known: Mapping[int, int], *, roots: Collection[int] = (), among: Iterable[int] | None = None
) -> list[int]:
    """Living processes that name a wanted path, that `known` maps to their start ticks, or that are `roots`, and all their children. Never
    this process or its ancestors."""
    stats = ((pid, read_process(str(PROC), pid)) for pid in (list_own_pids() if among is None else among))
    living = {pid: found for pid, found in stats if found is not None and found.state != ZOMBIE}
    named = {pid for pid, ticks in known.items() if pid in living and living[pid].started_ticks == ticks}
    named |= {pid for pid in living if _names_path(wanted, pid)}
    ancestors = _list_ancestors()
    family = _with_children({*named, *roots} - ancestors, {pid: found.parent for pid, found in living.items()})
    return sorted((family & living.keys()) - ancestors)


def _kill_until_gone(killer: _OrphanKiller, go_on: Callable[[], bool] = lambda: True) -> set[int]:
    deadline_m = time.monotonic() + KILL_TIMEOUT_S
    while go_on() and killer.kill_all() and time.monotonic() < deadline_m:
        # A process that forks whenever it is killed is caught only by scanning faster than it forks.
        full_scan_m = time.monotonic() + SCAN_EVERY_S
        while killer.kill_new() and time.monotonic() < full_scan_m:
            continue
        time.sleep(SCAN_EVERY_S)
    return killer.killed


class _OrphanKiller:
    """Scans for wanted processes repeatedly and kills them."""

    def __init__(self, wanted: PathFilter, known: Mapping[int, int], adopted: Callable[[], set[int]]) -> None:
        self._wanted, self._known, self._adopted = wanted, known, adopted
        self._seen: set[int] = set()
        self.killed: set[int] = set()

    def kill_all(self) -> bool:
        """Kill all wanted processes; whether there were any."""
        self._seen = list_own_pids()
        return self._kill_among(self._seen)

    def kill_new(self) -> bool:
        """The same among new processes only, in a tenth of the time; whether there were any new ones, wanted or not."""
        present = list_pids()
        new, self._seen = present - self._seen, present
        return self._kill_among(new) or bool(new)

    def _kill_among(self, pids: set[int]) -> bool:
        # While an adopted process forks, there is always another one, if only as a zombie.
        adopted = self._adopted()
        found = {pid for pid in adopted if not _is_reaped(pid)}
        _kill(found)
        found.update(find_processes(self._wanted, self._known, roots=adopted | self.killed, among=pids))
        _kill(found)
        self.killed |= found
        return bool(adopted or found)


def _kill(pids: Iterable[int]) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGKILL)


def _names_path(wanted: PathFilter, pid: int) -> bool:
    """Whether it names a wanted path, in its environment or in the argv of an agent that outlived its harness while suspended."""
    if any(variable.startswith(_RUN_DIR) and wanted(variable[len(_RUN_DIR) :]) for variable in read_environ(pid)):
        return True
    argv = read_cmdline(pid)
    return AGENT_MODULE.encode() in argv and any(argument.endswith(b".json") and wanted(argument) for argument in argv)


def _list_ancestors() -> set[int]:
    """This process, its parent, and so on."""
    ancestors: set[int] = set()
    pid = os.getpid()
    while pid > 0 and pid not in ancestors:
        ancestors.add(pid)
        found = read_process(str(PROC), pid)
        pid = found.parent if found is not None else 0
    return ancestors


def _is_reaped(pid: int) -> bool:
    """Whether an adopted process has ended; its exit code is collected, so that no zombie stays."""
    try:
        return os.waitpid(pid, os.WNOHANG)[0] == pid
    except ChildProcessError:
        return True


def _with_children(found: Iterable[int], parents: Mapping[int, int]) -> set[int]:
    family = set(found)
    while more := {pid for pid, parent in parents.items() if parent in family} - family:
        family |= more
    return family


def _remove_segments(folder: Path) -> None:
    """Remove segments on the order's own host that are not newer than the last write of its agent."""
    attempt = AttemptPaths(folder)
    with contextlib.suppress(OSError):
        for path in (attempt.agent_order, *attempt.nodes.glob(f"*/{attempt.agent_order.name}")):
            order = None
            # Another user's list would make segments of this user look abandoned.
            with contextlib.suppress(NotPrivateError):
                order = read_private_json(path)
            if isinstance(order, dict) and order.get("host") == socket.gethostname() and isinstance(order.get("shared_memory"), list):
                written = [file.lstat().st_mtime for parent in {folder, path.parent} for file in parent.iterdir()]
                newest_t = max(written, default=0.0) + SEGMENT_MARGIN_S
                for segment in find_abandoned_segments(order["shared_memory"], newest_t=newest_t):
                    segment.unlink(missing_ok=True)


def list_segments(root: Path = SHARED_MEMORY) -> tuple[str, ...]:
    """Names of shared-memory segments of known kinds."""
    try:
        return tuple(sorted(name for name in os.listdir(root) if name.startswith(SEGMENT_PREFIXES)))  # noqa: PTH208
    except OSError:
        return ()


def find_abandoned_segments(
    before: Collection[str], *, newest_t: float | None = None, root: Path = SHARED_MEMORY, proc: Path = PROC
) -> list[Path]:
    """Unused segments created since `before` was listed (and not after `newest_t`, where that is known).

    Libraries unlink them at the end, which a killed process never does. Only files of this user and of libraries that create them per run;
    while another campaign runs on this host, only those whose name has the pid of a creator that is gone.
    """
    new = [root / name for name in list_segments(root) if name not in before]
    candidates = [path for path in new if _is_own_file(path, newest_t)]
    # Listed after the segments, so that every creator is in the list. Without /proc nothing counts as abandoned.
    pids = list_pids(proc)
    if candidates and another_agent_runs(pids, proc):
        candidates = [path for path in candidates if _CREATOR.match(path.name)]
    if not candidates or not pids:
        return []
    used = {path for pid in pids for path in _list_used(str(root), proc / str(pid))}
    creators = {path: _CREATOR.match(path.name) for path in candidates}
    return [path for path, creator in creators.items() if str(path) not in used and not (creator and int(creator["pid"]) in pids)]


def another_agent_runs(pids: set[int], proc: Path) -> bool:
    return any(AGENT_MODULE.encode() in read_cmdline(pid, proc) for pid in pids - {os.getpid()})


def _is_own_file(path: Path, newest_t: float | None) -> bool:
    try:
        status = path.lstat()
    except OSError:
        return False
    return stat.S_ISREG(status.st_mode) and status.st_uid == os.getuid() and (newest_t is None or status.st_ctime <= newest_t)


def _list_used(root: str, process: Path) -> Iterator[str]:
    """Every path below `root` that the process has open or mapped; what cannot be read belongs to other users."""
    with contextlib.suppress(OSError):
        for line in (process / "maps").read_bytes().splitlines():
            _, found, path = line.partition(f" {root}/".encode())
            if found:
                yield f"{root}/{os.fsdecode(path)}"
    descriptors: list[str] = []
    with contextlib.suppress(OSError):
        descriptors = os.listdir(process / "fd")  # noqa: PTH208 (many of them)
    for descriptor in descriptors:
        with contextlib.suppress(OSError):
            target = os.readlink(f"{process}/fd/{descriptor}")  # noqa: PTH115
            if target.startswith(f"{root}/"):
                yield target
