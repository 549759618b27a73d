"""A folder that many processes need is built by one of them. In: a key of its content and a builder. Out: the folder, whole and checked.

    folder = prepare_once(cache / f"alpaca-{content_key(parts)}", build)

It works before any process group exists and on shared file systems that refuse flock: the lock is a file created exclusively, whose
modification time is the owner's heartbeat. An owner loses the lock when its process is gone from this host, or when by this process's own
clock it has sent no heartbeat for STALE_S; while it sends them, others wait, however long it builds. Correctness does not depend on the
lock: the folder is built aside, described by a manifest (size and SHA-256 of every file) written last, and renamed into place, which fails
if it exists. So a whole folder is never moved, even by a builder that was taken for dead. A folder that does not match its manifest is
removed and rebuilt by the owner of the lock. Standard library only.
"""

from __future__ import annotations

import contextlib
import errno
import glob
import hashlib
import json
import os
import shutil
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from seatrial_workloads.common.errors import StartupError

MANIFEST = "manifest.json"
LOCK, PART, BROKEN = ".lock", ".part", ".broken"
HEARTBEAT_S = 2.0
# Many heartbeats: a network file system may show them late, and a busy builder may be slow to send one.
STALE_S = 60.0
POLL_S = 0.1
# For an owner without a heartbeat whose lock cannot be removed.
TIMEOUT_S = 600.0


class PrepareError(StartupError):
    """The folder cannot be prepared."""


@dataclass(frozen=True, kw_only=True)
class Owner:
    """The process that builds, identified by host, boot and PID namespace. Separate from a campaign's owner: workloads import nothing of
    campaign/, and here the heartbeat is the lock file's time."""

    token: str
    host: str
    machine: str
    pid: int
    started: str


@dataclass(frozen=True, kw_only=True)
class Timing:
    """How long to wait, for tests to shorten."""

    heartbeat_s: float = HEARTBEAT_S
    stale_s: float = STALE_S
    poll_s: float = POLL_S
    timeout_s: float = TIMEOUT_S
    """Counted from the last heartbeat seen."""


def content_key(parts: Mapping[str, Any]) -> str:
    """A key of the content, independent of the order of its parts."""
    text = json.dumps(parts, sort_keys=True, ensure_ascii=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def file_hash(path: Path) -> str:
    with open(path, "rb") as source:
        return hashlib.file_digest(source, "sha256").hexdigest()


def prepare_once(folder: Path, build: Callable[[Path], None], timing: Timing | None = None) -> Path:
    """`folder`, built by `build(aside)` where it is not there or not whole. Safe to call from any number of processes and hosts."""
    timing = timing or Timing()
    waiting = _Waiting(timing, folder)
    while damage_of(folder) is not None:
        try:
            folder.parent.mkdir(parents=True, exist_ok=True)
            lock = _Lock.acquire(folder, timing)
        except OSError as error:
            raise PrepareError(f"{folder} cannot be written ({error.strerror or error}): use a writable cache folder") from error
        if lock is None:
            waiting.for_owner()
            continue
        with lock:
            # Another process may have finished it between the check and the lock.
            if damage_of(folder) is not None:
                _build(folder, build, lock)
    return folder


def damage_of(folder: Path) -> str | None:
    """Why a folder cannot be used; None for a whole one."""
    try:
        manifest = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
        files = dict(manifest["files"])
    except FileNotFoundError:
        return "it is not there" if not folder.is_dir() else f"it has no {MANIFEST}"
    except (OSError, ValueError, KeyError, TypeError):
        return f"its {MANIFEST} cannot be read"
    for name, entry in files.items():
        try:
            if (folder / name).stat().st_size != entry["bytes"] or file_hash(folder / name) != entry["sha256"]:
                return f"{name} is not as it was written"
        except (OSError, KeyError, TypeError):
            return f"{name} cannot be read"
    return None


def _build(folder: Path, build: Callable[[Path], None], lock: _Lock) -> None:
    """Build aside and rename. A builder that lost its lock meanwhile leaves the folder to the new owner."""
    for left in folder.parent.glob(f".{glob.escape(folder.name)}.*"):
        if left.suffix in (PART, BROKEN):
            shutil.rmtree(left, ignore_errors=True)
    aside = folder.with_name(f".{folder.name}.{lock.owner.token}{PART}")
    try:
        if not _remove_damaged(folder, lock):
            return
        aside.mkdir()
        build(aside)
        _write_manifest(aside)
        if not lock.is_lost():
            _publish(aside, folder)
    except OSError as error:
        # Only a new owner removes what another builds.
        if not lock.is_lost():
            raise PrepareError(_why_not_built(folder, error)) from error
    finally:
        shutil.rmtree(aside, ignore_errors=True)


def _why_not_built(folder: Path, error: OSError) -> str:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return f"{folder} could not be written, and nothing of it is left ({error.strerror}): free some space, or use another cache folder"
    return f"{folder} could not be built, and nothing of it is left ({error})"


def _remove_damaged(folder: Path, lock: _Lock) -> bool:
    """Remove a damaged folder; False if it proves whole. It is moved aside first: another builder may have finished it since the check."""
    broken = folder.with_name(f".{folder.name}.{lock.owner.token}{BROKEN}")
    try:
        folder.rename(broken)
    except FileNotFoundError:
        return True
    if damage_of(broken) is None:
        broken.rename(folder)
        return False
    shutil.rmtree(broken, ignore_errors=True)
    return True


def _publish(aside: Path, folder: Path) -> None:
    """Rename into place, unless a folder is there: another builder's, whole or being removed by its owner."""
    try:
        aside.rename(folder)
    except OSError as error:
        if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
            raise
        return
    _flush(folder.parent)


def _write_manifest(folder: Path) -> None:
    entries = {}
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            _flush(path)
            entries[str(path.relative_to(folder))] = {"bytes": path.stat().st_size, "sha256": file_hash(path)}
    (folder / MANIFEST).write_text(json.dumps({"files": entries}, indent=2), encoding="utf-8")
    _flush(folder / MANIFEST)
    _flush(folder)


def _flush(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        # Some network file systems have no fsync for folders.
        with contextlib.suppress(OSError):
            os.fsync(handle)
    finally:
        os.close(handle)


def _lock_path(folder: Path) -> Path:
    return folder.with_name(f".{folder.name}{LOCK}")


class _Lock:
    """The lock on a folder, with its heartbeat. Use as a context manager."""

    def __init__(self, path: Path, owner: Owner, timing: Timing) -> None:
        self.path, self.owner = path, owner
        self._timing, self._end = timing, threading.Event()
        self._thread = threading.Thread(target=self._send_heartbeats, daemon=True)

    @staticmethod
    def acquire(folder: Path, timing: Timing) -> _Lock | None:
        """None where another, living owner has it."""
        path, owner = _lock_path(folder), this_process()
        if _create(path, owner):
            return _Lock(path, owner, timing)
        holder = _read_owner(path)
        if holder is not None and _is_dead(holder):
            _remove_stale(path, holder, _heartbeat(path))
            return _Lock(path, owner, timing) if _create(path, owner) else None
        return None

    def is_lost(self) -> bool:
        """Whether another process, which took this one for dead, has the lock now."""
        holder = _read_owner(self.path)
        return holder is None or holder.token != self.owner.token

    def _send_heartbeats(self) -> None:
        while not self._end.wait(self._timing.heartbeat_s):
            with contextlib.suppress(OSError):
                if not self.is_lost():
                    os.utime(self.path)

    def __enter__(self) -> _Lock:
        self._thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._end.set()
        self._thread.join()
        if not self.is_lost():
            self.path.unlink(missing_ok=True)


class _Waiting:
    """Waits for another builder, and notices when its heartbeat has stopped."""

    def __init__(self, timing: Timing, folder: Path) -> None:
        self._timing, self._folder = timing, folder
        self._path = _lock_path(folder)
        self._seen_at = time.monotonic()
        self._seen: tuple[int, int] | None = None

    def for_owner(self) -> None:
        time.sleep(self._timing.poll_s)
        now = time.monotonic()
        heartbeat = _heartbeat(self._path)
        if heartbeat != self._seen:
            self._seen, self._seen_at = heartbeat, now
            return
        silent_s = now - self._seen_at
        if heartbeat is not None and silent_s > self._timing.stale_s:
            # If it may not be removed here, wait for it until the timeout.
            with contextlib.suppress(OSError):
                _remove_stale(self._path, _read_owner(self._path), heartbeat)
        if silent_s > self._timing.timeout_s:
            holder = _read_owner(self._path)
            who = f"process {holder.pid} on {holder.host}" if holder else "a process that left no name"
            raise PrepareError(
                f"{self._folder} is not ready: {who} has its lock, and has sent no heartbeat for {self._timing.timeout_s:.0f} s: "
                f"end that process, and remove {self._path}"
            )


def _create(path: Path, owner: Owner) -> bool:
    """False where the lock is taken."""
    try:
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
    except FileExistsError:
        return False
    try:
        with open(handle, "w", encoding="utf-8") as file:
            file.write(json.dumps(asdict(owner)))
    except OSError:
        # Others would wait for a lock without an owner.
        path.unlink(missing_ok=True)
        raise
    return True


def _remove_stale(path: Path, holder: Owner | None, heartbeat: tuple[int, int] | None) -> None:
    """Remove a dead owner's lock exactly once: only the process that creates the file named after its token may; a second one would remove
    the next owner's. A lock whose owner was killed before it wrote its name has no holder."""
    claim = path.with_name(f"{path.name}.{holder.token if holder else 'unnamed'}")
    with _claimed(claim) as is_ours:
        if is_ours and _read_owner(path) == holder and _heartbeat(path) == heartbeat:
            path.unlink(missing_ok=True)


@contextlib.contextmanager
def _claimed(claim: Path) -> Iterator[bool]:
    me = this_process()
    if not _create(claim, me):
        holder = _read_owner(claim)
        # Left by a claimant that died, perhaps before it wrote its name; a claim is normally held for a few calls only.
        if (holder is None or _is_dead(holder)) and _is_older(claim, POLL_S):
            claim.unlink(missing_ok=True)
        yield False
        return
    try:
        yield True
    finally:
        claim.unlink(missing_ok=True)


def _is_older(path: Path, seconds: float) -> bool:
    try:
        before = path.stat().st_mtime_ns
        time.sleep(seconds)
        return path.stat().st_mtime_ns == before
    except OSError:
        return False


def _heartbeat(path: Path) -> tuple[int, int] | None:
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_ino, status.st_mtime_ns


def _read_owner(path: Path) -> Owner | None:
    try:
        return Owner(**json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):
        return None


def this_process() -> Owner:
    return Owner(token=uuid.uuid4().hex, host=os.uname().nodename, machine=_machine(), pid=os.getpid(), started=_start_time("self"))


def _machine() -> str:
    """This boot of this host, and the PID namespace: a container's process may not be visible here under its number."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        return f"{boot}:{Path('/proc/self/ns/pid').readlink()}"
    except OSError:
        return ""


def _start_time(pid: int | str) -> str:
    """Clock ticks from boot to the start of a process; empty for a missing process or a zombie."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
        return "" if fields[0] in "ZX" else fields[19]
    except (OSError, IndexError):
        return ""


def _is_dead(owner: Owner) -> bool:
    """Whether a process of this host is gone, or its pid belongs to another one; False for other hosts."""
    if not owner.machine or owner.machine != _machine():
        return False
    return _start_time(owner.pid) != owner.started
