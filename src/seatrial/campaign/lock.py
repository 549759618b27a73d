"""The lock on a campaign's folder: one owner at a time, on any host; and the request to stop the owner.

`hold_lock(paths)` holds the operating system's lock while the block runs. `.owner.json` names the `Owner` (host, boot, process) and has a
heartbeat that is raised every few seconds. A dead holder's lock is free, and its `.owner.json` is ignored on its own host. A holder on
another host, whose lock may not be visible from here, is watched for one lease: the folder is taken over unless its heartbeat rises. Where
the file system has no locks, the heartbeat alone decides.

`seatrial stop` writes a request that names the owner's token: a request left over from an earlier owner names another token and is
ignored. An owner that finds another's token in the folder (it was suspended for too long and replaced) stops too.
"""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
import stat
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import BinaryIO

import filelock

from seatrial.core import files
from seatrial.core.errors import CampaignError, RefusedError
from seatrial.core.fallback import identify_campaign
from seatrial.core.files import acquire_lock
from seatrial.core.paths import CampaignPaths
from seatrial.core.private_files import is_own, is_private
from seatrial.machine.processes import PROC, read_boot_id, read_process
from seatrial.records.codec import from_json_or_none, to_json

log = logging.getLogger(__name__)

# By the other host's file time, whose clock may differ from ours; used only by `stop` and `watch`, where an error is harmless.
FRESH_S = 60.0
# A process that only checks the lock holds it for an instant.
LOCK_TIMEOUT_S = 1.0
HEARTBEAT_S = 5.0
# Three heartbeats: a network file system may show one late.
LEASE_S = 15.0
POLL_S = 0.5
# In a folder without locks two owners may both write; by then the overwritten one can see it.
SETTLE_S = 1.0


@dataclass(frozen=True, kw_only=True)
class Owner:
    """Who runs a campaign."""

    pid: int
    host: str
    token: str
    since_t: float
    boot_id: str = ""
    """The kernel's: the same for containers of one machine, another after every boot."""
    start_ticks: int = 0
    """When the process began; together with its pid this identifies one process uniquely."""
    beat: int = field(default=0, compare=False)


@dataclass(frozen=True, kw_only=True)
class Clock:
    """The clock by which another owner is watched; tests pass their own."""

    monotonic: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep


def read_owner(paths: CampaignPaths) -> Owner | None:
    """The current owner of the folder, or None. Takes no lock."""
    stored = stored_owner(paths)
    if stored is None:
        return None
    locked = is_locked(paths)
    if locked or (locked is None and is_running_here(stored)) or (not is_same_boot(stored) and _is_fresh(paths, time.time())):
        return stored
    return None


def request_stop(paths: CampaignPaths) -> Owner | None:
    """Request the current owner to stop; None where there is none."""
    owner = read_owner(paths)
    if owner is not None:
        try:
            files.write_json(paths.stop_request, {"token": owner.token})
        except OSError as error:
            who = f"process {owner.pid} on {owner.host}"
            raise CampaignError(f"{paths.stop_request} cannot be written ({error.strerror}): send TERM to {who} instead") from error
    return owner


def is_stop_requested(paths: CampaignPaths, owner: Owner) -> bool:
    """Whether there is a stop request for this owner, or another owner has replaced it."""
    request = files.read_json(paths.stop_request)
    if isinstance(request, dict) and request.get("token") == owner.token:
        return True
    present = stored_owner(paths)
    return present is not None and present.token != owner.token


def new_owner() -> Owner:
    """This process as an owner, with a new token."""
    pid = os.getpid()
    return Owner(
        pid=pid,
        host=os.uname().nodename,
        token=uuid.uuid4().hex,
        since_t=time.time(),
        boot_id=read_boot_id(PROC),
        start_ticks=_start_ticks(pid),
    )


def stored_owner(paths: CampaignPaths) -> Owner | None:
    """The owner in `.owner.json`, dead or alive."""
    return from_json_or_none(Owner, files.read_json(paths.owner))


def is_locked(paths: CampaignPaths) -> bool | None:
    """Whether the lock is held, tested through a read-only descriptor; None where the file system has no locks."""
    try:
        with _open_lock(paths) as handle:
            fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except FileNotFoundError:
        return False
    except BlockingIOError:
        return True
    except OSError:
        return None
    return False


def _open_lock(paths: CampaignPaths) -> BinaryIO:
    """Open the lock file for reading, without following a link or waiting for a pipe: in a folder of several users it may be
    anything."""
    return os.fdopen(os.open(paths.lock, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC), "rb")


def is_same_boot(owner: Owner) -> bool:
    """Whether the owner runs under this kernel, so that its locks and pids are visible here."""
    here = read_boot_id(PROC)
    return owner.boot_id == here if owner.boot_id and here else owner.host == os.uname().nodename


def is_running_here(owner: Owner) -> bool:
    """Whether that process runs under this kernel."""
    return is_same_boot(owner) and bool(owner.start_ticks) and _start_ticks(owner.pid) == owner.start_ticks


def _is_fresh(paths: CampaignPaths, now_t: float) -> bool:
    try:
        return abs(now_t - paths.owner.stat().st_mtime) < FRESH_S
    except OSError:
        return False


def _start_ticks(pid: int) -> int:
    """0 when there is no such process, or only a zombie."""
    process = read_process(str(PROC), pid)
    return 0 if process is None or process.state in "ZX" else process.started_ticks


@contextlib.contextmanager
def hold_lock(paths: CampaignPaths, warn: Callable[[str], None] = log.warning, clock: Clock | None = None) -> Iterator[Owner]:
    """Hold the folder while the block runs; `warn` is called when that takes a while."""
    clock = clock or Clock()
    _create_folder(paths)
    with _os_lock(paths) as has_lock:
        _refuse_if_owned(paths, has_lock, warn, clock)
        owner = new_owner()
        try:
            # A campaign of an earlier version has a plan and no identity yet.
            identify_campaign(paths.folder, adopted=paths.plan.exists())
            files.write_json(paths.owner, to_json(owner))
        except OSError as error:
            raise _unwritable(paths.owner, error) from error
        if not has_lock:
            clock.sleep(SETTLE_S)
            present = stored_owner(paths)
            if present is not None and present.token != owner.token:
                raise CampaignError(_in_use(paths, present))
        heartbeat = OwnerHeartbeat(paths, owner)
        try:
            heartbeat.start()
            yield owner
        finally:
            heartbeat.stop()
            _release(paths, owner)


class OwnerHeartbeat:
    """Raises the heartbeat in `.owner.json` while the owner lives. Disk errors are ignored."""

    def __init__(self, paths: CampaignPaths, owner: Owner, every_s: float = HEARTBEAT_S) -> None:
        self._paths, self._owner, self._every_s = paths, owner, every_s
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="seatrial-owner", daemon=True)

    def start(self) -> None:
        # Where the limit on threads is reached, the lock holds without a heartbeat.
        with contextlib.suppress(RuntimeError):
            self._thread.start()

    def stop(self) -> None:
        self._stopping.set()
        if self._thread.ident is not None:
            # An unresponsive network disk must not delay the end.
            self._thread.join(LOCK_TIMEOUT_S)

    def _run(self) -> None:
        while not self._stopping.wait(self._every_s):
            self.raise_once()

    def raise_once(self) -> None:
        present = stored_owner(self._paths)
        if self._stopping.is_set() or (present is not None and present.token != self._owner.token):
            return
        self._owner = replace(self._owner, beat=self._owner.beat + 1)
        try:
            files.write_json(self._paths.owner, to_json(self._owner))
        except OSError:
            # A full disk still allows a new file time.
            with contextlib.suppress(OSError):
                os.utime(self._paths.owner)


@contextlib.contextmanager
def _os_lock(paths: CampaignPaths) -> Iterator[bool]:
    """Hold the lock; False where the file system has no locks."""
    lock = filelock.FileLock(paths.lock, mode=files.PRIVATE)
    has_lock = False
    try:
        _take_lock_file(paths)
        has_lock = acquire_lock(lock, LOCK_TIMEOUT_S)
    except filelock.Timeout:
        # Some versions of the library report a file system without locks as "held by another".
        if is_locked(paths) is not None:
            raise CampaignError(_in_use(paths, stored_owner(paths))) from None
    except OSError as error:
        raise _unwritable(paths.lock, error) from error
    try:
        yield has_lock
    finally:
        if has_lock:
            lock.release()


def _take_lock_file(paths: CampaignPaths) -> None:
    """Replace another user's lock file, and make one of an earlier version private: anyone who can open it could hold it forever.

    The campaign of another user in this folder is still respected: `.owner.json` names it.
    """
    with contextlib.suppress(FileNotFoundError):
        found = paths.lock.lstat()
        if not stat.S_ISREG(found.st_mode) or not is_own(found, paths.folder):
            paths.lock.unlink()
        elif not is_private(found):
            # A file system without modes refuses; there is nothing to do there.
            with contextlib.suppress(PermissionError), _open_lock(paths) as lock:
                os.fchmod(lock.fileno(), files.PRIVATE)


def _refuse_if_owned(paths: CampaignPaths, has_lock: bool, warn: Callable[[str], None], clock: Clock) -> None:
    """CampaignError where the owner in `.owner.json` is alive although the lock was free."""
    stored = stored_owner(paths)
    if stored is None:
        return
    if is_same_boot(stored):
        # Even with the lock held: the owner may hold a lock file that has since been removed.
        if is_running_here(stored) and (not has_lock or stored.pid != os.getpid()):
            raise CampaignError(_in_use(paths, stored))
        return
    warn(f"{paths.owner} names process {stored.pid} on {stored.host}: waiting {LEASE_S:g} s for its heartbeat")
    if _is_alive(paths, clock):
        raise CampaignError(_in_use(paths, stored))
    warn(f"no heartbeat of process {stored.pid} on {stored.host}: taking over")


def _is_alive(paths: CampaignPaths, clock: Clock) -> bool:
    """Whether the owner's heartbeat rises within the lease; False where the owner leaves meanwhile."""
    first, until_m = _last_heartbeat(paths), clock.monotonic() + LEASE_S
    while first is not None and clock.monotonic() < until_m:
        clock.sleep(POLL_S)
        now = _last_heartbeat(paths)
        if now is None:
            return False
        if now != first:
            return True
    return False


def _last_heartbeat(paths: CampaignPaths) -> tuple[str, int, int] | None:
    """Token, heartbeat and file time of the owner, of which one changes while it lives."""
    stored = stored_owner(paths)
    try:
        return (stored.token, stored.beat, paths.owner.stat().st_mtime_ns) if stored else None
    except OSError:
        return None


def _release(paths: CampaignPaths, owner: Owner) -> None:
    """Remove this owner's files as far as the disk allows, and no other owner's."""
    present = stored_owner(paths)
    if present is not None and present.token != owner.token:
        return
    for path in (paths.owner, paths.stop_request):
        with contextlib.suppress(OSError):
            path.unlink(missing_ok=True)


def _create_folder(paths: CampaignPaths) -> None:
    try:
        paths.folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RefusedError(f"output folder {paths.folder} cannot be created: {error.strerror}; choose another with --out") from error
    if not os.access(paths.folder, os.W_OK | os.X_OK):
        raise RefusedError(f"output folder {paths.folder} is not writable; fix its permissions, or choose another with --out")


def _unwritable(path: Path, error: OSError) -> RefusedError:
    return RefusedError(f"{path} cannot be written: {error.strerror}; fix that, or choose another folder with --out")


def _in_use(paths: CampaignPaths, owner: Owner | None) -> str:
    who = f"process {owner.pid} on {owner.host}" if owner else "another process"
    return f"{paths.folder} is in use by {who}: wait for it, stop it with `seatrial stop {paths.folder}`, or choose another folder"
