"""Bringing what was kept elsewhere back to where it belongs, once the disk is well.

In: a folder. Out: one `Recovered` for each file in it of which something was kept; what is merged is gone from the fallback folder, what
cannot be written yet stays there. Nothing is appended twice, however often and by however many this is done and wherever it is
killed: what follows in the target after the place where the entry began is compared with the entry before anything is added.
A target that is not the file it was (another folder under the same name, a file cut short) is left alone.
Standard library only.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from seatrial.disk import fallback
from seatrial.disk.fallback import APPEND, WHOLE, Header
from seatrial.disk.sizes import size_bytes

_CHUNK_BYTES = 1024 * 1024
_MARK, _NOTE = ".from", ".merged"


@dataclass(frozen=True, kw_only=True)
class Recovered:
    """Bytes of one file that were kept elsewhere while its disk failed."""

    file: str
    """Relative to the folder asked for."""
    bytes: int
    error: str
    """What the disk said when it failed."""
    t: float
    merged: bool
    kept_at: str = ""
    """Where they lie, while they are not merged."""
    host: str = ""
    """On which host that is."""
    why: str = ""
    """Why they are not merged."""


def _nothing(_: object) -> None:
    pass


def merge_back(
    folder: Path,
    told: Callable[[list[Recovered]], None] = _nothing,
    among: list[Path] | None = None,
    fault: Callable[[str], None] = _nothing,
) -> list[Recovered]:
    """Merge everything kept for files under `folder`. `told` gets the list before the last trace of what was merged is removed: when
    it raises, the next call tells it again. `fault` is called between the steps with their names."""
    home = Path(os.path.realpath(folder))
    roots = among or fallback.roots()
    found, blocked = [], set()
    for entry, header, file in _entries_under(home, roots):
        if file in blocked:
            one: Recovered | None = _stays(entry, header, file, "what was kept before it is not merged")
        else:
            one = _merge_entry(entry, home / file, file, fault)
        if one:
            found.append(one)
            blocked |= set() if one.merged else {file}
    notes = _notes_under(home, roots)
    found += [note for note in notes.values() if note not in found]
    if found:
        told(found)
    for path in notes:
        path.unlink(missing_ok=True)
    return sorted(found, key=lambda one: (one.file, one.t))


def merge_file(target: Path, among: list[Path] | None = None) -> bool:
    """Merge what was kept to be appended to one file (`real`), by whoever writes it; True when nothing is left of it elsewhere."""
    for entry in fallback.entries_of(target, APPEND, among):
        one = _merge_entry(entry, target, target.name)
        if one and not one.merged:
            return False
    return True


def _entries_under(home: Path, roots: list[Path]) -> list[tuple[Path, Header, str]]:
    """Every entry of this folder, those of one file in the order in which they were begun."""
    found = []
    for entry in (path for root in roots for path in fallback.listed(root, APPEND, WHOLE)):
        header = _header(entry)
        file = _file_under(header, home) if header else None
        if header and file:
            found.append((entry, header, file))
    return found


def _header(entry: Path) -> Header | None:
    with contextlib.suppress(OSError), open(entry, "rb") as source:
        read = fallback.read_header(source.fileno())
        return read[0] if read else None
    return None


def _file_under(header: Header, home: Path) -> str | None:
    """The target's name below `home`: by its path, or where the folder was moved, by the folder's own number."""
    target = Path(header.target)
    if target.is_relative_to(home):
        return str(target.relative_to(home))
    inode = fallback.inode(home)
    if inode is not None and inode in header.folders:
        file = target.relative_to(target.parents[header.folders.index(inode)])
        # A number alone proves little: another file system counts from the start too.
        return str(file) if _is_same(header, home / file) else None
    return None


def _is_same(header: Header, target: Path) -> bool:
    """Whether `target` is the file, or would be in the folder, for which the entry was begun."""
    if header.base_bytes and header.tail:
        return fallback.tail_digest(target, header.base_bytes) == header.tail
    if header.base_bytes and size_bytes(target) < header.base_bytes:
        return False
    for folder, was in zip(target.parents, header.folders, strict=False):
        if was is not None:
            return fallback.inode(folder) == was
    return False


def _merge_entry(entry: Path, target: Path, file: str, fault: Callable[[str], None] = _nothing) -> Recovered | None:
    """Merge one entry and remove it; None when there was nothing in it, or what it held is out of date."""
    header = _header(entry)
    try:
        with fallback.locked(entry) as handle:
            read = fallback.read_header(handle) if handle is not None else None
            if read is None or handle is None:
                if handle is not None:
                    entry.unlink()
                return None
            header, begin = read
            if not _is_same(header, target):
                raise OSError(errno.ESTALE, "its folder is gone, or is not the one it was")
            if entry.suffix == APPEND:
                _append(entry, handle, begin, header, target, fault)
            elif not _replace(handle, begin, header, target):
                entry.unlink()
                return None
            merged = Recovered(file=file, bytes=os.fstat(handle).st_size - begin, error=header.error, t=header.t, merged=True)
            _leave_note(entry, header, merged)
            fault("noted")
            entry.unlink()
            _beside(entry, _MARK).unlink(missing_ok=True)
            return merged
    except OSError as error:
        return _stays(entry, header, file, error.strerror or str(error)) if header else None


def _append(entry: Path, handle: int, begin: int, header: Header, target: Path, fault: Callable[[str], None]) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    out = os.open(target, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, header.mode)
    try:
        length, size = os.fstat(handle).st_size - begin, os.fstat(out).st_size
        start = _start(entry, header, size)
        done = _already_there(handle, begin, out, start)
        if not done and size > start:
            # Others have written since: from here on this is where to look for our own bytes.
            start = size
            _set_mark(entry, header, start)
        fault("marked")
        _check_room(target, length - done)
        try:
            _copy(handle, begin + done, out, fault)
            os.fsync(out)
        except OSError:
            _cut_back(out, start + done, length - done)
            raise
        fault("appended")
    finally:
        os.close(out)


def _already_there(handle: int, begin: int, out: int, start: int) -> int:
    """How many of the entry's bytes an earlier merge has appended: whole lines where something else follows them."""
    done = 0
    while True:
        ours, theirs = os.pread(handle, _CHUNK_BYTES, begin + done), os.pread(out, _CHUNK_BYTES, start + done)
        equal = _num_equal(ours, theirs)
        done += equal
        if equal < _CHUNK_BYTES:
            break
    entry_ends, target_ends = equal == len(ours), equal == len(theirs)
    if entry_ends or target_ends:
        return done
    return done - equal + ours[:equal].rfind(b"\n") + 1


def _num_equal(ours: bytes, theirs: bytes) -> int:
    """How many bytes the two begin with in common."""
    both = min(len(ours), len(theirs))
    if ours[:both] == theirs[:both]:
        return both
    return next(at for at in range(both) if ours[at] != theirs[at])


def _copy(handle: int, at: int, out: int, fault: Callable[[str], None]) -> None:
    while chunk := os.pread(handle, _CHUNK_BYTES, at):
        fallback.write_all(out, chunk)
        at += len(chunk)
        fault("part appended")


def _cut_back(out: int, size: int, most_bytes: int) -> None:
    """Take back the part that went in, unless others have written after it; the next merge copes with either."""
    with contextlib.suppress(OSError):
        if size < os.fstat(out).st_size <= size + most_bytes:
            os.ftruncate(out, size)


def _check_room(target: Path, needed_bytes: int) -> None:
    """OSError when the disk cannot hold it: not to take, for a moment and in vain, the last room that others need."""
    disk = os.statvfs(target.parent)
    if disk.f_blocks and disk.f_bavail * disk.f_frsize < needed_bytes:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def _replace(handle: int, begin: int, header: Header, target: Path) -> bool:
    """Put a whole file in its place; False when a newer one stands there."""
    try:
        found = target.stat()
        is_newer = [found.st_ino, found.st_size, found.st_mtime_ns] != header.seen and (
            header.seen is not None or found.st_mtime > header.t
        )
    except FileNotFoundError:
        is_newer = False
    if is_newer:
        return False
    target.parent.mkdir(parents=True, exist_ok=True)
    fallback.put(target, os.pread(handle, os.fstat(handle).st_size - begin, begin), header.mode)
    return True


def _start(entry: Path, header: Header, size: int) -> int:
    """Where the entry's bytes begin in the target, if any are there."""
    with contextlib.suppress(OSError, ValueError):
        t, _, at = _beside(entry, _MARK).read_text(encoding="ascii").partition(" ")
        if float(t) == header.t and int(at) <= size:
            return int(at)
    return header.base_bytes


def _set_mark(entry: Path, header: Header, start: int) -> None:
    with contextlib.suppress(OSError):
        fallback.put(_beside(entry, _MARK), f"{header.t!r} {start}".encode())


def _leave_note(entry: Path, header: Header, merged: Recovered) -> None:
    """What was merged, for whoever tells the user; the name is the same when a killed merge is done again."""
    said = {"target": header.target, "folders": header.folders, "bytes": merged.bytes, "error": merged.error, "t": merged.t}
    with contextlib.suppress(OSError):
        fallback.put(_beside(entry, f".{int(header.t * 1e6)}{_NOTE}"), json.dumps(said).encode())


def _notes_under(home: Path, roots: list[Path]) -> dict[Path, Recovered]:
    found = {}
    for path in (path for root in roots for path in fallback.listed(root, _NOTE)):
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
            said = json.loads(path.read_bytes())
            file = _noted_file(Path(said["target"]), said["folders"], home)
            if file:
                found[path] = Recovered(file=file, bytes=said["bytes"], error=said["error"], t=said["t"], merged=True)
    return found


def _noted_file(target: Path, folders: list[int | None], home: Path) -> str | None:
    if target.is_relative_to(home):
        return str(target.relative_to(home))
    inode = fallback.inode(home)
    if inode is None or inode not in folders:
        return None
    file = target.relative_to(target.parents[folders.index(inode)])
    return str(file) if (home / file).exists() else None


def _stays(entry: Path, header: Header, file: str, why: str) -> Recovered:
    kept = fallback.kept_bytes(entry)
    host = os.uname().nodename
    return Recovered(file=file, bytes=kept, error=header.error, t=header.t, merged=False, kept_at=str(entry), host=host, why=why)


def _beside(entry: Path, ending: str) -> Path:
    return entry.with_name(entry.name + ending)
