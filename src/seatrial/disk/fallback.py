"""Where bytes go that could not be written where they belong: a private folder of this host, one entry for each file.

In: a target, bytes, and the error its disk gave. Out: an entry whose first line is a JSON header (target, error, and enough to know
the target again) and whose rest is the bytes. Two kinds: what is to be appended to the target, and a whole file that is to replace it.
An entry is written and merged only under its own lock, and whoever holds the lock of a file that has meanwhile gone starts anew.
Standard library only: the probe uses it inside the training.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import stat
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from seatrial.disk.modes import PRIVATE, PRIVATE_FOLDER
from seatrial.records.own_variables import FALLBACK_DIR

VARIABLE = FALLBACK_DIR
APPEND, WHOLE = ".append", ".whole"
# The memory disk comes last: where the one disk of a machine is full, it is all there is. It must not eat the memory of the run.
MEMORY_DISK = Path("/dev/shm")
MOST_BYTES_IN_MEMORY = 256 * 1024**2
LOCK_PATIENCE_S = 5.0
_LOCK_POLL_S = 0.02
TAIL_BYTES = 4096
_LONGEST_HEADER_BYTES = 64 * 1024
_LONGEST_NAME = 80


@dataclass(frozen=True, kw_only=True)
class Header:
    """What an entry knows of its target."""

    target: str
    error: str
    t: float
    """When the first of its bytes was kept."""
    base_bytes: int
    """How long the target was then."""
    tail: str | None
    """A digest of the target's last bytes before `base_bytes`; None when there were none or they could not be read."""
    seen: list[int] | None
    """Of a whole file: inode, size and mtime of what stood there; None when nothing did, or it could not be told."""
    mode: int
    """What the target may be read by, where it has to be made."""
    folders: list[int | None]
    """The inodes of the target's folder and of those above it; None where there was none yet."""


def roots() -> list[Path]:
    """The folders to try, in order: the one the user names, else two that every host has."""
    named = os.environ.get(VARIABLE)
    if named:
        return [Path(named)]
    # Not `tempfile.gettempdir`: it tries the folders out, so that it names another one while a disk is full.
    private = f"seatrial-fallback-{os.getuid()}"
    return [Path(os.environ.get("TMPDIR") or "/tmp") / private, MEMORY_DISK / private]


def fallback_root() -> Path:
    """The first folder that is tried: $SEATRIAL_FALLBACK_DIR, else a private one under the temporary folder."""
    return roots()[0]


def usable(root: Path, *, make: bool = True) -> Path:
    """`root`, made private where it was not there. OSError when it is another user's, a link, or others may write into it."""
    if make and not os.path.lexists(root):
        root.parent.mkdir(parents=True, exist_ok=True)
        with contextlib.suppress(FileExistsError):
            root.mkdir(mode=PRIVATE_FOLDER)
    found = root.lstat()
    if not stat.S_ISDIR(found.st_mode):
        raise NotADirectoryError(errno.ENOTDIR, "is no folder", str(root))
    if found.st_uid != os.geteuid() or found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise PermissionError(errno.EPERM, "belongs to another user or others may write into it", str(root))
    return root


def real(path: Path) -> Path:
    """The path without links in its folders, so that one file has one name."""
    return Path(os.path.realpath(path.parent)) / path.name


def entry_path(root: Path, target: Path, kind: str) -> Path:
    """The entry's name: unique for the target, and still legible."""
    import hashlib

    digest = hashlib.sha256(os.fsencode(target)).hexdigest()[:20]
    return root / f"{digest}-{target.name[:_LONGEST_NAME]}{kind}"


def entries_of(target: Path, kind: str, among: list[Path] | None = None) -> list[Path]:
    """The target's entries in the order in which they were begun."""
    found = [entry_path(root, target, kind) for root in (among or roots())]
    return [entry for entry in found if os.path.lexists(entry)]


def keep(target: Path, data: bytes, error: str, mode: int, among: list[Path] | None = None) -> bool:
    """Add the bytes to the target's entry; False when no folder takes them. `target` is `real`."""
    where = among or roots()
    begun = entries_of(target, APPEND, where)
    # What follows must not lie before what was kept last.
    first = where.index(begun[-1].parent) if begun else 0
    for root in where[first:]:
        with contextlib.suppress(OSError):
            entry = entry_path(usable(root), target, APPEND)
            most_bytes = MOST_BYTES_IN_MEMORY if root.is_relative_to(MEMORY_DISK) else None
            _add(entry, data, lambda: describe(target, error, mode), most_bytes)
            return True
    return False


def keep_whole(target: Path, data: bytes, error: str, mode: int, among: list[Path] | None = None) -> bool:
    """Keep a whole file; a later one takes its place. `target` is `real`."""
    for root in among or roots():
        with contextlib.suppress(OSError):
            entry = entry_path(usable(root), target, WHOLE)
            with locked(entry):
                put(entry, _header_line(describe(target, error, mode, whole=True)) + data)
            return True
    return False


def drop(target: Path, kind: str) -> None:
    """Forget what was kept for a file (`real`): it is out of date."""
    for entry in entries_of(target, kind):
        with contextlib.suppress(OSError), locked(entry):
            entry.unlink(missing_ok=True)


def describe(target: Path, error: str, mode: int, *, whole: bool = False) -> Header:
    """What is known of the target now, as far as its disk lets us see."""
    found = _stat(target)
    base = found.st_size if found and not whole else 0
    return Header(
        target=str(target),
        error=error,
        t=time.time(),
        base_bytes=base,
        tail=tail_digest(target, base),
        mode=mode,
        seen=[found.st_ino, found.st_size, found.st_mtime_ns] if found and whole else None,
        folders=[inode(folder) for folder in target.parents],
    )


def tail_digest(target: Path, end_bytes: int) -> str | None:
    """A digest of the bytes before `end_bytes`; None when there are none, or fewer than that."""
    import hashlib

    if end_bytes <= 0:
        return None
    try:
        with open(target, "rb") as source:
            source.seek(max(0, end_bytes - TAIL_BYTES))
            tail = source.read(min(TAIL_BYTES, end_bytes))
    except OSError:
        return None
    return hashlib.sha256(tail).hexdigest() if len(tail) == min(TAIL_BYTES, end_bytes) else None


def inode(folder: Path) -> int | None:
    """A folder's own number, which it keeps when it is moved; None where there is no such folder."""
    found = _stat(folder)
    return found.st_ino if found and stat.S_ISDIR(found.st_mode) else None


def kept_bytes(entry: Path) -> int:
    """How many bytes of its target an entry holds."""
    try:
        with open(entry, "rb") as source:
            read = read_header(source.fileno())
            return os.fstat(source.fileno()).st_size - read[1] if read else 0
    except OSError:
        return 0


def listed(root: Path, *endings: str) -> list[Path]:
    """What lies in a fallback folder; [] when there is none, or it is not to be trusted."""
    try:
        return sorted(path for path in usable(root, make=False).iterdir() if path.suffix in endings)
    except OSError:
        return []


def read_header(handle: int) -> tuple[Header, int] | None:
    """The header of an open entry and where its bytes begin; None when it is not whole."""
    line, end, _ = os.pread(handle, _LONGEST_HEADER_BYTES, 0).partition(b"\n")
    try:
        fields: dict[str, Any] = json.loads(line)
        return (Header(**fields), len(line) + 1) if end else None
    except (ValueError, TypeError):
        return None


@contextlib.contextmanager
def locked(entry: Path, patience_s: float = LOCK_PATIENCE_S) -> Iterator[int | None]:
    """The open entry with its lock held, or None when there is no such file. OSError when another holds it too long."""
    give_up_m = time.monotonic() + patience_s
    while True:
        try:
            handle = os.open(entry, os.O_RDWR | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW)
        except FileNotFoundError:
            yield None
            return
        try:
            _lock(handle, give_up_m)
            if _still_there(entry, handle):
                yield handle
                return
        finally:
            os.close(handle)


def write_all(handle: int, data: bytes) -> None:
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(handle, rest) :]


def put(path: Path, data: bytes, mode: int = PRIVATE) -> None:
    """Write a whole file aside, and rename it once it is on the disk. As files.written_aside does, which stands on this folder."""
    aside = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        handle = os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW, mode)
        try:
            write_all(handle, data)
            os.fsync(handle)
        finally:
            os.close(handle)
        os.replace(aside, path)
    finally:
        with contextlib.suppress(OSError):
            aside.unlink()


def _add(entry: Path, data: bytes, header: Callable[[], Header], most_bytes: int | None) -> None:
    os.close(os.open(entry, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, PRIVATE))
    with locked(entry) as handle:
        if handle is None:
            raise FileNotFoundError(errno.ENOENT, "went away", str(entry))
        # A header that is not whole has nothing after it: whoever began it was killed.
        begin = b"" if read_header(handle) else _header_line(header())
        size = 0 if begin else os.fstat(handle).st_size
        if most_bytes is not None and size + len(data) > most_bytes:
            raise OSError(errno.EFBIG, "as much as may lie in memory does", str(entry))
        os.ftruncate(handle, size)
        try:
            write_all(handle, begin + data)
        except OSError:
            os.ftruncate(handle, size)
            if not size:
                entry.unlink()
            raise


def _header_line(header: Header) -> bytes:
    return json.dumps(vars(header)).encode() + b"\n"


def _lock(handle: int, give_up_m: float) -> None:
    while True:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            if time.monotonic() > give_up_m:
                raise
        time.sleep(_LOCK_POLL_S)


def _still_there(entry: Path, handle: int) -> bool:
    try:
        return os.path.samestat(entry.stat(follow_symlinks=False), os.fstat(handle))
    except FileNotFoundError:
        return False


def _stat(path: Path) -> os.stat_result | None:
    try:
        return path.stat()
    except OSError:
        return None
