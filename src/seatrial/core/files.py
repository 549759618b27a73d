"""Reading and writing files: written to a temporary name and renamed, read tolerantly, locked if the file system has locks.

A reader sees the old text or the new one, never half of either. Torn and foreign lines are skipped. What must survive a failing disk is
written by `core.durable_writes`. Standard library only: the probe uses it inside the training.
"""

from __future__ import annotations

import contextlib
import errno
import io
import json
import os
import re
import stat
import sys
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import filelock

# Results are meant to be read by the team, as far as the user's umask lets them.
READABLE = 0o644
# Datasets and checkpoints that the user goes on working with: by the umask alone, as open() does.
BY_UMASK = 0o666
# Tokens, orders with a plan's variables, and everything in a temporary folder: for the user alone.
PRIVATE = 0o600
PRIVATE_FOLDER = 0o700
# A private file that can be executed: command.sh holds the plan's variables unmasked.
PRIVATE_PROGRAM = 0o700
TAIL_CHUNK_BYTES = 64 * 1024
LARGEST_INDENTED = 1 << 20
"""In characters. Indenting a thousand runs takes Python a second, plain output a tenth of that; one line per row also reads better."""
# A plan of ten thousand runs has 40 MB and a million values; everything else that the project writes is far smaller. Text becomes up to
# thirty times as large in memory when every value is a few bytes, so that values are limited too.
LARGEST_WHOLE_BYTES = 64 << 20
MAX_JSON_VALUES = 3_000_000
# Our own lines have a few hundred bytes; an endless one must not be held in memory.
LONGEST_JSON_LINE = 1 << 20
UNREADABLE = "it cannot be read, or is incomplete"
_PART, _LINK = ".part", ".link"
_PART_OUTDATED_S = 3600.0
_LONGEST_PART_NAME_BYTES, _LONGEST_HOST_NAME = 120, 64
_WRITER = re.compile(r"\.(\d+)@(.+?)\.[^.]*\.(?:part|link)$")
# Errors of a file system without locks.
_NO_LOCKS = frozenset({errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL})


@contextlib.contextmanager
def atomic_write(path: Path, mode: int = READABLE, *, fsync: bool = True) -> Iterator[Path]:
    """A temporary name beside `path`, renamed onto it when the block ends well and removed when it does not. `fsync` False is for a
    caller who writes many small files and syncs them all at once."""
    path.parent.mkdir(parents=True, exist_ok=True)
    # A name may have 255 bytes, and a letter up to four.
    name = os.fsencode(path.name)[:_LONGEST_PART_NAME_BYTES].decode(sys.getfilesystemencoding(), errors="ignore")
    temporary = path.with_name(f".{name}.{_writer()}.{os.urandom(8).hex()}{_PART}")
    with _removed_unless_renamed(temporary):
        # Created with its mode, less the umask: a private file is never readable by others, not even for a moment.
        handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
        try:
            mode_created = os.fstat(handle).st_mode
        finally:
            os.close(handle)
        yield temporary
        # Some writers put a file of their own in its place.
        if os.stat(temporary).st_mode != mode_created:  # noqa: PTH116 (thousands of them)
            temporary.chmod(stat.S_IMODE(mode_created))
        if fsync:
            with open(temporary, "rb") as written:
                os.fsync(written.fileno())
        os.replace(temporary, path)


@contextlib.contextmanager
def _removed_unless_renamed(temporary: Path) -> Iterator[None]:
    """Begins before the file is created: an interrupt may come right after the call that creates it."""
    try:
        yield
    except BaseException:
        # A disk that turned read-only keeps it; the error to raise is that of the write.
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise


def remove_partial_files(folder: Path, now_t: float | None = None, *, foreign: bool = True) -> int:
    """Remove the temporary files of killed writers under `folder`: those of dead processes of this host, and any older than an hour.
    Returns how many. `foreign` False is for folders that others fill too: only files named by a writer of ours are removed."""
    old_t = (time.time() if now_t is None else now_t) - _PART_OUTDATED_S
    removed = 0
    for ending in (_PART, _LINK):
        for path in folder.rglob(f".*{ending}"):
            if not (foreign or _WRITER.search(path.name)):
                continue
            with contextlib.suppress(OSError):
                found = path.lstat()
                if not stat.S_ISDIR(found.st_mode) and (_is_writer_dead(path) or found.st_mtime < old_t):
                    path.unlink()
                    removed += 1
    return removed


def _writer() -> str:
    """The writer of a temporary file, to recognise it later: on a shared disk a pid alone is not enough."""
    return f"{os.getpid()}@{os.uname().nodename[:_LONGEST_HOST_NAME]}"


def _is_writer_dead(path: Path) -> bool:
    found = _WRITER.search(path.name)
    if not found or found[2] != os.uname().nodename[:_LONGEST_HOST_NAME]:
        return False
    return not Path("/proc", found[1]).exists()


def write_text(path: Path, text: str, mode: int = READABLE) -> None:
    """Write `text` as the whole of `path`, atomically."""
    with atomic_write(path, mode) as temporary:
        # A variable may hold bytes that are not UTF-8; an error here would end a run.
        temporary.write_text(text, encoding="utf-8", errors="backslashreplace")


def write_json(path: Path, value: Any, mode: int = READABLE) -> None:
    """Write `value` as indented JSON, atomically."""
    write_text(path, json_text(value), mode)


def write_private_json(path: Path, value: Any) -> None:
    """As `write_json`, readable by the user alone."""
    write_json(path, value, PRIVATE)


def json_text(value: Any) -> str:
    """`value` as indented JSON, a large one with one list item per line. ValueError for NaN, which is not JSON."""
    plain = _compact(value)
    if len(plain) > LARGEST_INDENTED and isinstance(value, dict):
        return "{\n" + ",\n".join(f"  {_compact(str(key))}: {_item_by_item(item)}" for key, item in value.items()) + "\n}\n"
    return json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def _item_by_item(value: Any) -> str:
    return "[\n    " + ",\n    ".join(map(_compact, value)) + "\n  ]" if isinstance(value, list) and value else _compact(value)


def _compact(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, allow_nan=False)


def open_file(path: Path, largest_bytes: int | None = None) -> io.BufferedReader:
    """A regular file, opened for reading; OSError for anything else, since a pipe under its name would block for ever, and for a file that
    is too large for its reader, who reads all of it at once."""
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    found = os.fstat(handle)
    if not stat.S_ISREG(found.st_mode):
        os.close(handle)
        raise OSError(errno.EINVAL, "is not a regular file", str(path))
    if largest_bytes is not None and found.st_size > largest_bytes:
        os.close(handle)
        size = f"it has {found.st_size >> 20:,} MiB" if found.st_size >> 20 else f"it has {found.st_size:,} bytes"
        raise OSError(errno.EFBIG, f"{size}, above the limit of {largest_bytes >> 20} MiB", str(path))
    return os.fdopen(handle, "rb")


def read_whole(path: Path) -> bytes:
    """All of a file that is not too large to be read at once; OSError for one that is, and where it cannot be read."""
    with open_file(path, LARGEST_WHOLE_BYTES) as source:
        # A file that is still growing is read up to there too.
        return source.read(LARGEST_WHOLE_BYTES)


def read_json(path: Path) -> Any | None:
    """The JSON in `path`; None when there is no such file, it cannot be read, it is torn or too large."""
    return read_json_or_why(path)[0]


def read_json_or_why(path: Path) -> tuple[Any | None, str]:
    """The JSON and "", or None and the reason."""
    try:
        data = read_whole(path)
        values = sum(map(data.count, (b",", b"[", b"{")))
        if values > MAX_JSON_VALUES:
            return None, f"it has {values:,} values, above the limit of {MAX_JSON_VALUES:,}"
        return json.loads(data.decode("utf-8")), ""
    except OSError as error:
        return None, error.strerror if error.errno == errno.EFBIG and error.strerror else UNREADABLE
    except (ValueError, RecursionError):
        return None, UNREADABLE


def read_json_lines(path: Path) -> Iterator[dict[str, Any]]:
    """Every complete JSON object of a .jsonl file, without torn and foreign lines; nothing from a file that cannot be read."""
    with contextlib.suppress(OSError), open_file(path) as source:
        while line := source.readline(LONGEST_JSON_LINE):
            value = json_object(line)
            if value is not None:
                yield value


def last_json_lines(path: Path, count: int) -> list[dict[str, Any]]:
    """Every complete JSON object among the last `count` lines of a .jsonl file, in order."""
    return [value for line in tail_lines(path, count) if (value := json_object(line)) is not None]


def json_object(line: str | bytes) -> dict[str, Any] | None:
    """The JSON object of one line; None for anything else: torn, nested too deep, a number of ten thousand digits."""
    try:
        value = json.loads(line if isinstance(line, str) else line.decode("utf-8", errors="replace"))
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def tail_lines(path: Path, count: int, max_bytes: int = TAIL_CHUNK_BYTES, start: int = 0) -> list[str]:
    """The last `count` lines (at most `max_bytes` of them, and none before the byte `start`), [] when there is no file that can be read."""
    try:
        with open_file(path) as source:
            size = source.seek(0, os.SEEK_END)
            source.seek(max(start, size - max_bytes))
            text = source.read(max_bytes).decode("utf-8", errors="replace")
    except OSError:
        return []
    lines = text.replace("\r", "\n").splitlines()
    return lines[-count:] if count > 0 else []


def link_relative(link: Path, target: Path) -> None:
    """Point `link` at `target` by a relative path, replacing an earlier link; FileExistsError where something else is there."""
    if os.path.lexists(link) and not link.is_symlink():
        raise FileExistsError(errno.EEXIST, "is not a link", str(link))
    temporary = link.with_name(f".{link.name}.{_writer()}.x{_LINK}")
    temporary.unlink(missing_ok=True)
    with _removed_unless_renamed(temporary):
        temporary.symlink_to(os.path.relpath(target, link.parent))
        os.replace(temporary, link)


LINK_REFUSED = "is a link, and nothing is written through the links of a campaign"


def refuse_links(paths: Iterable[Path]) -> None:
    """OSError for the first of these that is a link. Called before a campaign's folders are written to: in another user's folder a
    link may lead anywhere. (A link in the place of a file that is written whole is replaced, never followed.)"""
    for path in paths:
        if path.is_symlink():
            raise OSError(errno.ELOOP, LINK_REFUSED, str(path))


def refuse_links_out(folder: Path) -> None:
    """OSError if a folder that other programs fill is a link, or holds one that leads out of it."""
    refuse_links([folder])
    inside = folder.resolve()
    for parent, folders, names in os.walk(folder):
        links = (path for name in (*folders, *names) if (path := Path(parent, name)).is_symlink())
        refuse_links(link for link in links if inside not in link.resolve().parents)


def size_bytes(path: Path) -> int:
    """Size of the file; 0 where it is missing or its disk does not answer."""
    try:
        return path.stat().st_size
    except OSError:
        return 0


def acquire_lock(lock: filelock.BaseFileLock, timeout_s: float) -> bool:
    """Take the lock; False where the file system has no locks. filelock.Timeout while another process holds it, OSError where its file
    cannot be written."""
    try:
        lock.acquire(timeout=timeout_s)
    except NotImplementedError:
        return False
    except OSError as error:
        # filelock.Timeout is an OSError too, without a number.
        if error.errno not in _NO_LOCKS:
            raise
        return False
    return True
