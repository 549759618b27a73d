"""One translation of a folder at a time.

`translating(target)` holds the lock of the campaign that is being made, the one that a campaign's owner holds while it runs. Who comes
second waits. A file system without locks lets both go on, as there is nothing to wait by; what they write is then the same.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import filelock

from seatrial.errors import CampaignError
from seatrial.machine.file_lock import acquired
from seatrial.paths import CampaignPaths

PATIENCE_S = 300.0
"""Longer than the translation of any folder; who holds it longer stands still."""


@contextlib.contextmanager
def translating(target: CampaignPaths) -> Iterator[None]:
    """Nobody else translates into that folder while the block runs."""
    target.folder.mkdir(parents=True, exist_ok=True)
    lock = filelock.FileLock(target.lock)
    try:
        acquired(lock, PATIENCE_S)
    except filelock.Timeout:
        raise CampaignError(
            f"{target.folder} is being written by another process, which holds {target.lock}: wait for it, or end it"
        ) from None
    try:
        yield
    finally:
        lock.release()
