"""One campaign folder has one owner at a time.

`owned(paths)` holds a lock for as long as the block runs and writes who holds it; a second harness is told who that is. The lock is
the operating system's, so a dead holder's lock is free. `seatrial stop` asks the owner through a request that names its token: a
request left over from an earlier owner names another token and is ignored.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import socket
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass

import filelock

from seatrial import files
from seatrial.errors import CampaignError, RefusedError
from seatrial.paths import CampaignPaths
from seatrial.records.codec import from_json, to_json

LOCK_PATIENCE_S = 1.0


@dataclass(frozen=True, kw_only=True)
class Owner:
    """Who runs a campaign."""

    pid: int
    host: str
    token: str
    since_t: float


def read_owner(paths: CampaignPaths) -> Owner | None:
    """Who holds the folder now; None when nobody does."""
    stored = files.read_json(paths.owner)
    if stored is None or not _is_locked(paths):
        return None
    return from_json(Owner, stored)


@contextlib.contextmanager
def owned(paths: CampaignPaths) -> Iterator[Owner]:
    """Hold the folder while the block runs."""
    _make_folder(paths)
    lock = filelock.FileLock(paths.lock)
    try:
        # Somebody who only asks whether it is held (`_is_locked`) holds it for an instant.
        lock.acquire(timeout=LOCK_PATIENCE_S)
    except filelock.Timeout:
        raise CampaignError(_busy(paths)) from None
    owner = Owner(pid=os.getpid(), host=socket.gethostname(), token=uuid.uuid4().hex, since_t=time.time())
    try:
        files.write_json(paths.owner, to_json(owner))
        yield owner
    finally:
        paths.owner.unlink(missing_ok=True)
        paths.stop_request.unlink(missing_ok=True)
        lock.release()


def ask_to_stop(paths: CampaignPaths) -> Owner | None:
    """Leave a request for the present owner to stop; None when nobody owns the folder."""
    owner = read_owner(paths)
    if owner is not None:
        files.write_json(paths.stop_request, {"token": owner.token})
    return owner


def asked_to_stop(paths: CampaignPaths, owner: Owner) -> bool:
    """Whether a stop request for this very owner lies in the folder."""
    request = files.read_json(paths.stop_request)
    return isinstance(request, dict) and request.get("token") == owner.token


def _make_folder(paths: CampaignPaths) -> None:
    try:
        paths.folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RefusedError(f"the output folder {paths.folder} cannot be made: {error.strerror}; choose another with --out") from error
    if not os.access(paths.folder, os.W_OK | os.X_OK):
        raise RefusedError(f"the output folder {paths.folder} cannot be written to; choose another with --out or mend its permissions")


def _is_locked(paths: CampaignPaths) -> bool:
    """Whether somebody holds the lock, asked through a handle that can write nothing."""
    if not paths.lock.exists():
        return False
    with open(paths.lock, "rb") as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


def _busy(paths: CampaignPaths) -> str:
    stored = files.read_json(paths.owner) or {}
    who = f"process {stored.get('pid')} on {stored.get('host')}" if stored else "another process"
    return f"{paths.folder} is in use by {who}: wait for it, stop it with `seatrial stop {paths.folder}`, or choose another folder"
