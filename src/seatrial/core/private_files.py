"""Files that lead to a command or a key (agent.json, call.json, .gate.json): trusted only if no other user can have written them.

    order = read_private_json(path)          # None: no such file, or torn; NotPrivateError: written by another user, or open to others

The file is opened once, without following a link, and owner and mode of the open file decide: what is renamed or linked meanwhile changes
nothing. A disk that shows all files with one owner (root_squash, all_squash) or one mode (vfat, object stores) is recognised by a new file
of our own; for many hosts the second is refused before the start (`preflight.hosts`).
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import stat
import tempfile
from pathlib import Path
from typing import Any

# An order has the environment of its ranks, which the kernel limits to less.
LARGEST_BYTES = 16 << 20
_OTHERS = 0o077


class NotPrivateError(Exception):
    """Another user may have written this file, or can read it."""


def read_private_json(path: Path) -> Any | None:
    """The JSON in `path`; None when there is no such file, it cannot be read or it is torn."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise NotPrivateError(f"{path} is a link; remove it, and see who put it there") from error
        return None
    with os.fdopen(fd, "rb") as source:
        if problem := _problem(path, os.fstat(fd)):
            raise NotPrivateError(f"{path} {problem}")
        try:
            return json.loads(source.read(LARGEST_BYTES).decode("utf-8"))
        except (OSError, ValueError, RecursionError):
            return None


def _problem(path: Path, found: os.stat_result) -> str:
    if not stat.S_ISREG(found.st_mode):
        return "is not a regular file. Find out who created it, then remove it"
    if not is_own(found, path.parent):
        return f"belongs to user {found.st_uid}, and this is user {os.geteuid()}; remove it, or run as the user whose campaign it is"
    if not is_private(found) and not _shows_one_mode(found, path.parent):
        return f"is open to other users (mode {stat.S_IMODE(found.st_mode):04o}); remove it, and see who could have changed it"
    return ""


def _shows_one_mode(found: os.stat_result, folder: Path) -> bool:
    """Whether a file for this user alone looks like that there."""
    created = new_private_file(folder)
    return created is not None and created.st_mode == found.st_mode


def is_own(found: os.stat_result, folder: Path) -> bool:
    """Whether a file in `folder` belongs to this user, or to the owner that our own new files there get."""
    if found.st_uid == os.geteuid():
        return True
    created = new_private_file(folder)
    return created is not None and found.st_uid == created.st_uid


def new_private_file(folder: Path) -> os.stat_result | None:
    """Owner and mode that a file for this user alone gets in `folder`, found by one without a name; None where none can be created."""
    with contextlib.suppress(OSError), tempfile.TemporaryFile(dir=folder) as created:
        return os.fstat(created.fileno())
    return None


def is_private(found: os.stat_result) -> bool:
    return not found.st_mode & _OTHERS


def is_world_writable(folder: Path) -> bool:
    """Whether any user can put files there, or folders of runs to come; False where it cannot be seen."""
    with contextlib.suppress(OSError):
        return bool(folder.stat().st_mode & stat.S_IWOTH)
    return False


def world_writable_text(folder: Path) -> str:
    return f"{folder} can be written by every user, who could then command the agents of all hosts: chmod o-w {folder}"
