"""The fallback folder: takes bytes that could not be written to their file, and merges them back.

In: a target, bytes, and the error of its disk. Out: an entry in a private folder of this host, whose first line is a JSON header (target,
error, and enough to recognise the target) and whose rest is the bytes. There are two kinds: bytes to append to the target, and a whole file
to replace it. An entry is written and merged only under its own lock; a process that gets the lock of an entry removed in the meantime
starts over.

Merging returns one `Recovered` per file with an entry. A merged entry is removed; one that cannot be written yet stays. Nothing is appended
twice, however many processes merge and wherever one is killed: what the target holds from the place where the entry began is compared with
the entry before anything is appended. A target that is no longer the same file (another folder under the same name, a file cut short) is
left alone.

Nothing of another campaign is merged. A campaign's folder has an identity, written when it is first used, which an entry carries in its
name and its header: after `rm -rf OUT` a new campaign under the same path has another one. Entries of the version before this one carry
none: they are merged only into a folder that was there before it had an identity and that has the inode it had when they were written.
What is left alone is listed for the user.

Standard library only: the probe uses it inside the training. Plain files and not an SQLite database, which would bring its own locks and
atomic updates: a person can read an entry with `tail`, observers follow it like the file itself, and a half-written one is still
useful.
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
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from seatrial.core.files import PRIVATE, PRIVATE_FOLDER, READABLE, atomic_write, open_file, size_bytes

FALLBACK_DIR = "SEATRIAL_FALLBACK_DIR"
"""Environment variable: the folder to use."""
IDENTITY = ".campaign.json"
"""File in a campaign's folder: `id`, when it was written, and whether the folder was in use before that."""
APPEND, WHOLE = ".append", ".whole"
# An entry that was merged, until that was reported to the user: its header alone.
_MERGED = ".merged"
# The memory disk comes last, for a machine whose only disk is full. It must not use up the memory of the run.
MEMORY_DISK = Path("/dev/shm")
MAX_BYTES_IN_MEMORY = 256 * 1024**2
LOCK_TIMEOUT_S = 5.0
_LOCK_POLL_S = 0.02
_TAIL_BYTES = 4096
_CHUNK_BYTES = 1024 * 1024
_MAX_HEADER_BYTES = 64 * 1024
_MAX_IDENTITY_BYTES = 4096
# Room in the first line for the numbers that are filled in later.
_HEADER_PADDING = b" " * 48
_MAX_NAME_CHARACTERS = 80
# From a file to the folder of its campaign: OUT/run/attempt-1/nodes/NAME/ranks and torchrun's three below that.
_MAX_DEPTH = 9
OF_ANOTHER_CAMPAIGN = "they are of another campaign that had this folder"
OF_UNKNOWN_CAMPAIGN = "an earlier version wrote them, and this is not surely the folder they were written for"


@dataclass(frozen=True, kw_only=True)
class Header:
    """What an entry records about its target."""

    target: str
    error: str
    t: float
    """When the first of its bytes was kept."""
    base_bytes: int
    """Size of the target at that time."""
    tail: str | None
    """Hash of the target's last bytes before `base_bytes`; None when there were none or they could not be read."""
    seen: list[int] | None
    """For a whole file: inode, size and mtime of the file in its place; None without one, or if its disk did not answer."""
    mode: int
    """Permissions of the target, in case it has to be created."""
    folders: list[int | None]
    """Inodes of the target's folder and of those above it; None for one that did not exist yet."""
    start: int | None = None
    """Where the bytes begin in the target, if not at `base_bytes`: others have written to it since."""
    merged_bytes: int | None = None
    """How many bytes were merged; None before that."""
    campaign: str | None = None
    """Identity of the target's campaign; empty for a file outside one, None in entries of an earlier version."""


@dataclass(frozen=True, kw_only=True)
class Identity:
    """Identity of a campaign's folder."""

    id: str
    adopted: bool
    """The folder was in use before it had an identity."""


@dataclass(frozen=True, kw_only=True)
class Recovered:
    """Bytes of one file that were kept in the fallback folder while its disk failed."""

    file: str
    """Relative to the folder that was merged."""
    bytes: int
    error: str
    """What the disk reported."""
    t: float
    merged: bool
    kept_at: str = ""
    """The entry, while it is not merged."""
    host: str = ""
    """The host of the entry."""
    why: str = ""
    """Why it is not merged."""
    foreign: bool = False
    """It belongs to another campaign and is never merged."""


def fallback_folders() -> list[Path]:
    """The folders to try, in order: $SEATRIAL_FALLBACK_DIR, else a private one in the temporary folder and one in memory."""
    named = os.environ.get(FALLBACK_DIR)
    if named:
        return [Path(named)]
    # Not `tempfile.gettempdir`: it tests the folders, so that it returns another one while a disk is full.
    private = f"seatrial-fallback-{os.getuid()}"
    return [Path(os.environ.get("TMPDIR") or "/tmp") / private, MEMORY_DISK / private]


def checked_folder(root: Path, *, create: bool = True) -> Path:
    """`root`, created private where it does not exist. OSError when it is another user's, a link, or others may write into it."""
    if create and not os.path.lexists(root):
        root.parent.mkdir(parents=True, exist_ok=True)
        with contextlib.suppress(FileExistsError):
            root.mkdir(mode=PRIVATE_FOLDER)
    found = root.lstat()
    if not stat.S_ISDIR(found.st_mode):
        raise NotADirectoryError(errno.ENOTDIR, "is not a folder", str(root))
    if found.st_uid != os.geteuid() or found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise PermissionError(errno.EPERM, "belongs to another user or others may write into it", str(root))
    return root


def real(path: Path) -> Path:
    """The path without links in its folders, so that one file has one name. Functions that take a `target` expect this form."""
    return Path(os.path.realpath(path.parent)) / path.name


# Campaigns this process has written to, by folder: valid even if the disk stops answering or the folder is removed.
_known: dict[Path, str] = {}


def identify_campaign(folder: Path, *, adopted: bool) -> None:
    """Give a campaign's folder its identity, unless it has one; the caller owns the folder. OSError when it cannot be written."""
    import uuid

    path = folder / IDENTITY
    if _read_identity(path) is None:
        _write(path, json.dumps({"id": uuid.uuid4().hex, "t": time.time(), "adopted": adopted}).encode() + b"\n", READABLE)
    campaign_of(real(path))


def find_identity(target: Path) -> tuple[Path, Identity] | None:
    """The folder of the campaign that a file is in, and its identity; None outside a campaign, and where its disk does not answer."""
    for folder in list(target.parents)[:_MAX_DEPTH]:
        found = _read_identity(folder / IDENTITY)
        if found is not None:
            return folder, found
    return None


def campaign_of(target: Path) -> str:
    """The identity of a file's campaign, empty outside one. Cached, so that it is also known when the disk fails."""
    found = find_identity(target)
    if found is not None:
        _known[found[0]] = found[1].id
        return found[1].id
    return next((_known[folder] for folder in target.parents if folder in _known), "")


def _read_identity(path: Path) -> Identity | None:
    try:
        with open_file(path) as source:
            stored = json.loads(source.read(_MAX_IDENTITY_BYTES))
        return Identity(id=str(stored["id"]), adopted=bool(stored["adopted"])) if stored["id"] else None
    except (OSError, ValueError, TypeError, KeyError):
        return None


def spill_bytes(target: Path, data: bytes, error: str, mode: int) -> bool:
    """Add the bytes to the target's entry; False when no folder takes them."""
    folders = fallback_folders()
    begun = entries_of(target, APPEND)
    # Later bytes must not come before those that were kept last.
    first = folders.index(begun[-1].parent) if begun else 0
    for root in folders[first:]:
        with contextlib.suppress(OSError):
            entry = entry_path(checked_folder(root), target, APPEND)
            max_bytes = MAX_BYTES_IN_MEMORY if root.is_relative_to(MEMORY_DISK) else None
            _add(entry, data, lambda: _describe(target, error, mode), max_bytes)
            return True
    return False


def spill_file(path: Path, data: bytes, error: str, mode: int = READABLE) -> bool:
    """Keep a whole file that could not be written, replacing one kept before; merging moves it to `path`, unless a newer one is there."""
    target = real(path)
    for root in fallback_folders():
        with contextlib.suppress(OSError):
            entry = entry_path(checked_folder(root), target, WHOLE)
            with _locked(entry):
                _write(entry, _header_line(_describe(target, error, mode, whole=True)) + data)
            return True
    return False


def discard_spilled_file(path: Path, kind: str = WHOLE) -> None:
    """Drop a whole file that was kept for `path`: a newer one was written to its place."""
    for entry in entries_of(real(path), kind):
        with contextlib.suppress(OSError), _locked(entry):
            entry.unlink(missing_ok=True)


def discard_spilled_lines(path: Path) -> None:
    """Drop what was kept to be appended to `path`: the whole file was written again from its sources."""
    discard_spilled_file(path, APPEND)


def fallback_entry(path: Path) -> Path | None:
    """The entry with the newest bytes to append to a file (after its header line); None when there is none."""
    entries = entries_of(real(path), APPEND)
    return entries[-1] if entries else None


def entry_path(root: Path, target: Path, kind: str) -> Path:
    """The entry's name: unique for the target and its campaign, and still legible."""
    import hashlib

    campaign = campaign_of(target)
    digest = hashlib.sha256(os.fsencode(target) + (f"\0{campaign}".encode() if campaign else b"")).hexdigest()[:20]
    return root / f"{digest}-{target.name[:_MAX_NAME_CHARACTERS]}{kind}"


def entries_of(target: Path, kind: str) -> list[Path]:
    """The target's entries, oldest first."""
    # Without a folder, the usual case, the campaign need not be looked up.
    found = [entry_path(root, target, kind) for root in fallback_folders() if root.is_dir()]
    return [entry for entry in found if os.path.lexists(entry)]


def spilled_bytes(target: Path) -> int:
    """How many bytes are kept to be appended to the target."""
    return sum(found[1] for entry in entries_of(target, APPEND) if (found := _read_entry(entry)))


def merge_fallback(folder: Path, report: Callable[[list[Recovered]], None] | None = None) -> list[Recovered]:
    """Merge everything kept for files under `folder`. `report` is called with the list before the last trace of a merge is removed: if it
    raises, the next call reports the same files again."""
    home = Path(os.path.realpath(folder))
    found: list[Recovered] = []
    blocked: set[str] = set()
    for entry, header, file in _entries_under(home):
        if why := _why_foreign(header, home / file, home):
            found.append(replace(_unmerged(entry, header, file, why), foreign=True))
            continue
        if file in blocked:
            one: Recovered | None = _unmerged(entry, header, file, "what was kept before it is not merged")
        else:
            one = _merge_entry(entry, header, home / file, file)
        if one and not one.merged:
            found.append(one)
            blocked.add(file)
    merged = _merged_under(home)
    found += merged.values()
    if found and report:
        report(found)
    for path in merged:
        path.unlink(missing_ok=True)
    return sorted(found, key=lambda one: (one.file, one.t))


def merge_file(target: Path) -> bool:
    """Merge what was kept to be appended to one file, on behalf of its writer; True when nothing of it is left in the fallback folder."""
    for entry in entries_of(target, APPEND):
        read = _read_entry(entry)
        if read and _why_foreign(read[0], target, target.parent):
            return False
        one = _merge_entry(entry, read[0], target, target.name) if read else None
        if one and not one.merged:
            return False
    return True


def _describe(target: Path, error: str, mode: int, *, whole: bool = False) -> Header:
    """Facts about the target now, as far as its disk answers."""
    found = _stat(target)
    base = found.st_size if found and not whole else 0
    return Header(
        target=str(target),
        error=error,
        t=time.time(),
        base_bytes=base,
        tail=_tail_hash(target, base),
        mode=mode,
        seen=[found.st_ino, found.st_size, found.st_mtime_ns] if found and whole else None,
        folders=[_inode(folder) for folder in target.parents],
        campaign=campaign_of(target),
    )


def _tail_hash(target: Path, end_bytes: int) -> str | None:
    """Hash of the bytes before `end_bytes`; None when there are none, or fewer than that."""
    import hashlib

    if end_bytes <= 0:
        return None
    try:
        with open(target, "rb") as source:
            source.seek(max(0, end_bytes - _TAIL_BYTES))
            tail = source.read(min(_TAIL_BYTES, end_bytes))
    except OSError:
        return None
    return hashlib.sha256(tail).hexdigest() if len(tail) == min(_TAIL_BYTES, end_bytes) else None


def _inode(folder: Path) -> int | None:
    """A folder's inode, which it keeps when it is moved; None where there is no such folder."""
    found = _stat(folder)
    return found.st_ino if found and stat.S_ISDIR(found.st_mode) else None


def _stat(path: Path) -> os.stat_result | None:
    try:
        return path.stat()
    except OSError:
        return None


def _header_line(header: Header) -> bytes:
    return json.dumps(vars(header)).encode() + _HEADER_PADDING + b"\n"


def _read_header(handle: int) -> tuple[Header, int] | None:
    """The header of an open entry and where its bytes begin; None when it is torn."""
    line, end, _ = os.pread(handle, _MAX_HEADER_BYTES, 0).partition(b"\n")
    try:
        fields: dict[str, Any] = json.loads(line)
        return (Header(**fields), len(line) + 1) if end else None
    except (ValueError, TypeError):
        return None


def _update_header(handle: int, begin: int, header: Header) -> None:
    """Replace the header in place, which needs no room on the disk; not where an older version left no padding."""
    line = json.dumps(vars(header)).encode()
    if len(line) < begin:
        os.pwrite(handle, line.ljust(begin - 1), 0)


def _read_entry(entry: Path) -> tuple[Header, int] | None:
    """The header of an entry and the number of bytes after it; None when it cannot be read."""
    with contextlib.suppress(OSError), open(entry, "rb") as source:
        read = _read_header(source.fileno())
        return (read[0], os.fstat(source.fileno()).st_size - read[1]) if read else None
    return None


@contextlib.contextmanager
def _locked(entry: Path, *, create: bool = False) -> Iterator[int | None]:
    """The open entry with its lock held, or None when there is no such file. OSError when another process holds it too long."""
    deadline_m = time.monotonic() + LOCK_TIMEOUT_S
    while True:
        try:
            handle = os.open(entry, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW | (os.O_CREAT if create else 0), PRIVATE)
        except FileNotFoundError:
            yield None
            return
        try:
            _lock(handle, deadline_m)
            if _is_current(entry, handle):
                yield handle
                return
        finally:
            os.close(handle)


def _lock(handle: int, deadline_m: float) -> None:
    while True:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            if time.monotonic() > deadline_m:
                raise
        time.sleep(_LOCK_POLL_S)


def _is_current(entry: Path, handle: int) -> bool:
    """Whether the open file is still the one under its name."""
    try:
        return os.path.samestat(entry.stat(follow_symlinks=False), os.fstat(handle))
    except FileNotFoundError:
        return False


def _add(entry: Path, data: bytes, header: Callable[[], Header], max_bytes: int | None) -> None:
    with _locked(entry, create=True) as handle:
        assert handle is not None
        # A torn header has nothing after it: its writer was killed.
        begin = b"" if _read_header(handle) else _header_line(header())
        size = 0 if begin else os.fstat(handle).st_size
        if max_bytes is not None and size + len(data) > max_bytes:
            raise OSError(errno.EFBIG, "the in-memory fallback is full", str(entry))
        os.ftruncate(handle, size)
        os.lseek(handle, size, os.SEEK_SET)
        try:
            _write_all(handle, begin + data)
        except OSError:
            os.ftruncate(handle, size)
            if not size:
                entry.unlink()
            raise


def _write_all(handle: int, data: bytes) -> None:
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(handle, rest) :]


def _write(path: Path, data: bytes, mode: int = PRIVATE) -> None:
    with atomic_write(path, mode) as temporary:
        temporary.write_bytes(data)


def _listed(*endings: str) -> Iterator[tuple[Path, Header, int]]:
    """The files with these endings in the fallback folders, oldest first: header, and bytes after it. Folders that are missing or not to be
    trusted, and damaged files, are skipped."""
    for root in fallback_folders():
        with contextlib.suppress(OSError):
            for path in sorted(path for path in checked_folder(root, create=False).iterdir() if path.suffix in endings):
                if read := _read_entry(path):
                    yield path, *read


def _entries_under(home: Path) -> list[tuple[Path, Header, str]]:
    """Every entry for a file of this folder, with the file's name; those of one file oldest first."""
    # An inode alone proves little: another file system has the same numbers.
    found = ((entry, header, _file_under(home, header, partial(_is_same, header))) for entry, header, _ in _listed(APPEND, WHOLE))
    return [(entry, header, file) for entry, header, file in found if file]


def _file_under(home: Path, header: Header, is_there: Callable[[Path], bool]) -> str | None:
    """The target's name below `home`: by its path or, where the folder was moved, by the folder's inode and `is_there`."""
    path = Path(header.target)
    if path.is_relative_to(home):
        return str(path.relative_to(home))
    inode = _inode(home)
    if inode is None or inode not in header.folders:
        return None
    file = path.relative_to(path.parents[header.folders.index(inode)])
    return str(file) if is_there(home / file) else None


def _is_same(header: Header, target: Path) -> bool:
    """Whether `target` is the file, or would be in the folder, for which the entry was begun."""
    if header.base_bytes and header.tail:
        return _tail_hash(target, header.base_bytes) == header.tail
    if header.base_bytes and size_bytes(target) < header.base_bytes:
        return False
    for folder, was in zip(target.parents, header.folders, strict=False):
        if was is not None:
            return _inode(folder) == was
    return False


def _why_foreign(header: Header, target: Path, home: Path) -> str:
    """Why an entry does not belong to the present campaign of `target`; empty if it does. `home` is the folder that is merged."""
    found = find_identity(target)
    if header.campaign is not None:
        return "" if header.campaign == (found[1].id if found is not None else "") else OF_ANOTHER_CAMPAIGN
    if found is not None and not found[1].adopted:
        return OF_UNKNOWN_CAMPAIGN
    folder = found[0] if found is not None else home
    depth = list(target.parents).index(folder)
    was = header.folders[depth] if depth < len(header.folders) else None
    return "" if was is not None and was == _inode(folder) else OF_UNKNOWN_CAMPAIGN


def _merge_entry(entry: Path, header: Header, target: Path, file: str) -> Recovered | None:
    """Merge one entry and remove it; None when it is gone, or a whole file that is out of date."""
    try:
        with _locked(entry) as handle:
            read = _read_header(handle) if handle is not None else None
            if read is None or handle is None:
                return None
            header, begin = read
            length = os.fstat(handle).st_size - begin
            if not _is_same(header, target):
                raise OSError(errno.ESTALE, "its folder was removed or replaced")
            if entry.suffix == APPEND:
                _append(handle, begin, length, header, target)
            elif not _replace(handle, begin, length, header, target):
                entry.unlink()
                return None
            _mark_merged(entry, handle, begin, replace(header, merged_bytes=length))
            return _recovered(header, file, length)
    except OSError as error:
        return _unmerged(entry, header, file, error.strerror or str(error))


def _append(handle: int, begin: int, length: int, header: Header, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    out = os.open(target, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, header.mode)
    try:
        size = os.fstat(out).st_size
        start = header.base_bytes if header.start is None else min(header.start, size)
        done = _count_appended(handle, begin, out, start)
        if not done and size > start:
            # Others have written since: from here on our own bytes begin at this place.
            start = size
            _update_header(handle, begin, replace(header, start=start))
        _check_room(target, length - done)
        try:
            at = begin + done
            while chunk := os.pread(handle, _CHUNK_BYTES, at):
                _write_all(out, chunk)
                at += len(chunk)
            os.fsync(out)
        except OSError:
            _cut_back(out, start + done, length - done)
            raise
    finally:
        os.close(out)


def _count_appended(handle: int, begin: int, out: int, start: int) -> int:
    """How many of the entry's bytes an earlier merge has appended: whole lines where something else follows them."""
    done = 0
    while ours := os.pread(handle, _CHUNK_BYTES, begin + done):
        theirs = os.pread(out, len(ours), start + done)
        if ours != theirs:
            equal = next((at for at in range(len(theirs)) if ours[at] != theirs[at]), len(theirs))
            return done + (equal if equal == len(theirs) else ours[:equal].rfind(b"\n") + 1)
        done += len(ours)
    return done


def _check_room(target: Path, needed_bytes: int) -> None:
    """OSError when the disk cannot hold it, before the attempt takes the last room that others need."""
    disk = os.statvfs(target.parent)
    if disk.f_blocks and disk.f_bavail * disk.f_frsize < needed_bytes:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def _cut_back(out: int, size: int, max_bytes: int) -> None:
    """Truncate the part that was appended, unless others have written after it; the next merge copes with either."""
    with contextlib.suppress(OSError):
        if size < os.fstat(out).st_size <= size + max_bytes:
            os.ftruncate(out, size)


def _replace(handle: int, begin: int, length: int, header: Header, target: Path) -> bool:
    """Put a whole file in its place; False when a newer one is there."""
    with contextlib.suppress(FileNotFoundError):
        found = target.stat()
        is_other = [found.st_ino, found.st_size, found.st_mtime_ns] != header.seen
        if is_other and (header.seen is not None or found.st_mtime > header.t):
            return False
    _write(target, os.pread(handle, length, begin), header.mode)
    return True


def _mark_merged(entry: Path, handle: int, begin: int, header: Header) -> None:
    """Rename the entry, so that it is not merged again, and keep its header for the report."""
    os.replace(entry, entry.with_name(f"{entry.name}.{int(header.t * 1e6)}{_MERGED}"))
    _update_header(handle, begin, header)
    os.ftruncate(handle, begin)


def _merged_under(home: Path) -> dict[Path, Recovered]:
    """Merges of files of this folder that are not reported yet."""
    found = {}
    for path, header, length in _listed(_MERGED):
        file = _file_under(home, header, Path.exists)
        if file and not _why_foreign(header, home / file, home):
            found[path] = _recovered(header, file, length if header.merged_bytes is None else header.merged_bytes)
    return found


def _recovered(header: Header, file: str, length: int) -> Recovered:
    return Recovered(file=file, bytes=length, error=header.error, t=header.t, merged=True)


def _unmerged(entry: Path, header: Header, file: str, why: str) -> Recovered:
    read = _read_entry(entry)
    one = _recovered(header, file, read[1] if read else 0)
    return replace(one, merged=False, kept_at=str(entry), host=os.uname().nodename, why=why)
