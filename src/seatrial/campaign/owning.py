"""Taking a campaign's folder: one owner at a time, on whatever host.

`owned(paths)` holds the operating system's lock for as long as the block runs, and `.owner.json` says who holds it, with a beat that is
raised every few seconds. A second harness is told who that is. A holder on another host, whose lock may not be seen from here, is watched
for a while: if it beats it is respected, if not its place is taken. Where the file system has no locks at all, the beat alone decides.
"""

from __future__ import annotations

import contextlib
import logging
import os
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import filelock

from seatrial import files
from seatrial.campaign.owner import Owner, is_locked, is_this_kernel, runs_here, stored_owner, this_process
from seatrial.errors import CampaignError, RefusedError
from seatrial.machine.file_lock import acquired
from seatrial.paths import CampaignPaths
from seatrial.records.codec import to_json

log = logging.getLogger(__name__)

# Somebody who only asks whether the lock is held has it for an instant.
LOCK_PATIENCE_S = 1.0
BEAT_EVERY_S = 5.0
# Three beats: a network file system may show one late.
WATCH_S = 15.0
LOOK_EVERY_S = 0.5
# Two that come at once to a folder without locks both write; the one that was overwritten has seen it by then.
SETTLE_S = 1.0


@dataclass(frozen=True, kw_only=True)
class WatchClock:
    """The times by which another owner is watched, so that tests can pass their own."""

    monotonic: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep


@contextlib.contextmanager
def owned(paths: CampaignPaths, say: Callable[[str], None] = log.warning, clock: WatchClock | None = None) -> Iterator[Owner]:
    """Hold the folder while the block runs; `say` is told when that takes a while."""
    clock = clock or WatchClock()
    _make_folder(paths)
    with _locked(paths) as has_lock:
        _yield_to_another(paths, has_lock, say, clock)
        owner = this_process()
        try:
            _write(paths, owner)
        except OSError as error:
            raise _unwritable(paths.owner, error) from error
        if not has_lock:
            clock.sleep(SETTLE_S)
            _yield_to_newer(paths, owner)
        beat = _Beat(paths, owner)
        try:
            beat.start()
            yield owner
        finally:
            beat.stop()
            _leave(paths, owner)


class _Beat:
    """Raises the beat in `.owner.json` for as long as the owner lives. A disk that takes nothing ends nothing."""

    def __init__(self, paths: CampaignPaths, owner: Owner, every_s: float = BEAT_EVERY_S) -> None:
        self._paths, self._owner, self._every_s = paths, owner, every_s
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="seatrial-owner", daemon=True)

    def start(self) -> None:
        # A limit on threads is no reason to run no campaign: the lock holds without a beat.
        with contextlib.suppress(RuntimeError):
            self._thread.start()

    def stop(self) -> None:
        self._stopping.set()
        if self._thread.ident is not None:
            # A network disk that does not answer must not hold up the end.
            self._thread.join(LOCK_PATIENCE_S)

    def _run(self) -> None:
        while not self._stopping.wait(self._every_s):
            self.raise_once()

    def raise_once(self) -> None:
        present = stored_owner(self._paths)
        if self._stopping.is_set() or (present is not None and present.token != self._owner.token):
            return
        self._owner = replace(self._owner, beat=self._owner.beat + 1)
        try:
            _write(self._paths, self._owner)
        except OSError:
            # A full disk still takes a new time.
            with contextlib.suppress(OSError):
                os.utime(self._paths.owner)


@contextlib.contextmanager
def _locked(paths: CampaignPaths) -> Iterator[bool]:
    """Hold the lock; False where the file system has none to hold."""
    lock = filelock.FileLock(paths.lock)
    has_lock = _acquired(lock, paths)
    try:
        yield has_lock
    finally:
        if has_lock:
            lock.release()


def _acquired(lock: filelock.BaseFileLock, paths: CampaignPaths) -> bool:
    try:
        return acquired(lock, LOCK_PATIENCE_S)
    except filelock.Timeout:
        # Some versions of the library take "no locks here" for "held by another".
        if is_locked(paths) is None:
            return False
        raise CampaignError(_busy(paths, stored_owner(paths))) from None
    except OSError as error:
        raise _unwritable(paths.lock, error) from error


def _yield_to_another(paths: CampaignPaths, has_lock: bool, say: Callable[[str], None], clock: WatchClock) -> None:
    """CampaignError when the owner that `.owner.json` names lives, though its lock did not tell so."""
    stored = stored_owner(paths)
    if stored is None:
        return
    if is_this_kernel(stored):
        # Also with the lock in hand: somebody may have removed its file, and the owner holds one that nobody finds any more.
        if runs_here(stored) and (not has_lock or stored.pid != os.getpid()):
            raise CampaignError(_busy(paths, stored))
        return
    say(f"{paths.owner} names process {stored.pid} on {stored.host}: watching for {WATCH_S:g} s whether it lives")
    if _beats(paths, clock):
        raise CampaignError(_busy(paths, stored))
    say(f"process {stored.pid} on {stored.host} gives no sign of life: its place is taken")


def _beats(paths: CampaignPaths, clock: WatchClock) -> bool:
    """Whether the owner in the file gives a sign of life within the watch; one that leaves meanwhile does not count."""
    first, until_m = _sign(paths), clock.monotonic() + WATCH_S
    while first is not None and clock.monotonic() < until_m:
        clock.sleep(LOOK_EVERY_S)
        now = _sign(paths)
        if now is None:
            return False
        if now != first:
            return True
    return False


def _sign(paths: CampaignPaths) -> tuple[str, int, int] | None:
    """What changes while an owner lives: its beat, or at least the file's time."""
    stored = stored_owner(paths)
    try:
        return (stored.token, stored.beat, paths.owner.stat().st_mtime_ns) if stored else None
    except OSError:
        return None


def _yield_to_newer(paths: CampaignPaths, owner: Owner) -> None:
    present = stored_owner(paths)
    if present is not None and present.token != owner.token:
        raise CampaignError(_busy(paths, present))


def _write(paths: CampaignPaths, owner: Owner) -> None:
    files.write_json(paths.owner, to_json(owner))


def _leave(paths: CampaignPaths, owner: Owner) -> None:
    """Take away what names this owner, as far as the disk lets us; another's is left alone."""
    present = stored_owner(paths)
    if present is not None and present.token != owner.token:
        return
    for path in (paths.owner, paths.stop_request):
        with contextlib.suppress(OSError):
            path.unlink(missing_ok=True)


def _make_folder(paths: CampaignPaths) -> None:
    try:
        paths.folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RefusedError(f"the output folder {paths.folder} cannot be made: {error.strerror}; choose another with --out") from error
    if not os.access(paths.folder, os.W_OK | os.X_OK):
        raise RefusedError(f"the output folder {paths.folder} cannot be written to; choose another with --out or mend its permissions")


def _unwritable(path: Path, error: OSError) -> RefusedError:
    return RefusedError(f"{path} cannot be written: {error.strerror}; mend that, or choose another folder with --out")


def _busy(paths: CampaignPaths, owner: Owner | None) -> str:
    who = f"process {owner.pid} on {owner.host}" if owner else "another process"
    return f"{paths.folder} is in use by {who}: wait for it, stop it with `seatrial stop {paths.folder}`, or choose another folder"
