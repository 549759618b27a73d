"""Files as the whole project writes and reads them.

Whole files are written aside and renamed, so a reader sees the old text or the new one and never half of either.
Append-only files get whole lines in one write. Readers take what is there: a torn last line is the caller's to skip.
What must not be lost is written by `append_line` and the `…_surely` functions: on a bad disk it goes elsewhere (seatrial.disk.append).
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import re
import stat
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, BinaryIO

from seatrial.disk.append import AppendFile, forget, put_aside, tried
from seatrial.disk.modes import BY_UMASK as BY_UMASK
from seatrial.disk.modes import PRIVATE, READABLE

TAIL_CHUNK_BYTES = 64 * 1024
LARGEST_INDENTED = 1 << 20
"""Characters. Python indents a thousand runs in a second, and writes them plain in a tenth of one; a row on a line also reads better."""
LARGEST_JSON_BYTES = 256 << 20
# A line of ours has a few hundred bytes; one without end must not be held in memory whole.
LONGEST_JSON_LINE = 1 << 20
_PART, _LINK = ".part", ".link"
_PART_OUTDATED_S = 3600.0
_LONGEST_PART_NAME_BYTES, _LONGEST_HOST_NAME = 120, 64
_WRITER = re.compile(r"\.(\d+)@(.+?)\.[^.]*\.(?:part|link)$")


@contextlib.contextmanager
def written_aside(path: Path, mode: int = READABLE, *, to_disk: bool = True) -> Iterator[Path]:
    """A temporary name beside `path`, renamed onto it when the block ends well and removed when it does not. `to_disk` False is for a
    caller of many small files who asks the disk to keep all of them himself, in one go."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{_part_name(path)}.{_writer()}.{os.urandom(8).hex()}{_PART}")
    # Made with its mode, from which the kernel takes the umask: a private file is never readable by others, not even for a moment.
    handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
    try:
        made = os.fstat(handle).st_mode
    finally:
        os.close(handle)
    try:
        yield temporary
        # Some writers put a file of their own in its place.
        if os.stat(temporary).st_mode != made:  # noqa: PTH116 (thousands of them)
            temporary.chmod(stat.S_IMODE(made))
        if to_disk:
            with open(temporary, "rb") as written:
                os.fsync(written.fileno())
        os.replace(temporary, path)
    except BaseException:
        # A disk that turned read-only keeps it; why the writing failed is then said, not why the removing did.
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise


def sweep_parts(folder: Path, now_t: float | None = None, *, foreign: bool = True) -> int:
    """Remove what killed writers left half-written under `folder`: files of dead processes of this host, and any older than an hour.
    How many went. `foreign` False is for folders that others fill too: what does not bear the name of a writer of ours stays."""
    old_t = (time.time() if now_t is None else now_t) - _PART_OUTDATED_S
    swept = 0
    for ending in (_PART, _LINK):
        for path in folder.rglob(f".*{ending}"):
            if not (foreign or _WRITER.search(path.name)):
                continue
            with contextlib.suppress(OSError):
                found = path.lstat()
                if not stat.S_ISDIR(found.st_mode) and (_is_left_by_the_dead(path) or found.st_mtime < old_t):
                    path.unlink()
                    swept += 1
    return swept


def _part_name(path: Path) -> str:
    """As much of a file's name as leaves room for the rest: a name may have 255 bytes, and a letter may have four."""
    return os.fsencode(path.name)[:_LONGEST_PART_NAME_BYTES].decode(sys.getfilesystemencoding(), errors="ignore")


def _writer() -> str:
    """Who writes a temporary file, for whoever finds it later: on a shared disk a pid alone says nothing."""
    return f"{os.getpid()}@{os.uname().nodename[:_LONGEST_HOST_NAME]}"


def _is_left_by_the_dead(path: Path) -> bool:
    found = _WRITER.search(path.name)
    if not found or found[2] != os.uname().nodename[:_LONGEST_HOST_NAME]:
        return False
    return not Path("/proc", found[1]).exists()


def write_text(path: Path, text: str, mode: int = READABLE) -> None:
    """Write `text` as the whole of `path`, atomically."""
    with written_aside(path, mode) as temporary:
        # A caller's variable may hold bytes that are no text: spelled out (in JSON as it reads back), for one of them must not end a run.
        temporary.write_text(text, encoding="utf-8", errors="backslashreplace")


def write_json(path: Path, value: Any, mode: int = READABLE) -> None:
    """Write `value` as indented JSON, atomically."""
    write_text(path, json_text(value), mode)


def write_private_json(path: Path, value: Any) -> None:
    """As `write_json`, for the user's own eyes: it is never readable by others, not even for a moment."""
    write_json(path, value, PRIVATE)


def write_text_surely(path: Path, text: str, mode: int = READABLE, sleep: Callable[[float], None] = time.sleep) -> bool:
    """As `write_text`, tried again on a bad disk and then kept elsewhere until the disk is well; False when it is lost."""
    error = tried(lambda: write_text(path, text, mode), sleep)
    if error is not None:
        return put_aside(path, text.encode(errors="backslashreplace"), error, mode)
    forget(path)
    return True


def write_json_surely(path: Path, value: Any, mode: int = READABLE, sleep: Callable[[float], None] = time.sleep) -> bool:
    """As `write_json`, likewise."""
    return write_text_surely(path, json_text(value), mode, sleep)


def json_text(value: Any) -> str:
    """`value` as indented JSON, a large one with each key's list item by item. NaN has no place in JSON and is an error of ours."""
    plain = _compact(value)
    if len(plain) > LARGEST_INDENTED and isinstance(value, dict):
        return "{\n" + ",\n".join(f"  {_compact(str(key))}: {_item_by_item(item)}" for key, item in value.items()) + "\n}\n"
    return json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def _item_by_item(value: Any) -> str:
    return "[\n    " + ",\n    ".join(map(_compact, value)) + "\n  ]" if isinstance(value, list) and value else _compact(value)


def _compact(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, allow_nan=False)


def open_file(path: Path) -> BinaryIO:
    """An ordinary file, to be read; an OSError for anything else, since a pipe under its name would be waited for without end."""
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise OSError(errno.EINVAL, "is no ordinary file", str(path))
    return os.fdopen(handle, "rb")


def read_json(path: Path) -> Any | None:
    """The JSON in `path`, or None when there is no such file, it cannot be read or it is not whole."""
    try:
        with open_file(path) as source:
            # Nothing that the project writes comes near this size.
            if os.fstat(source.fileno()).st_size > LARGEST_JSON_BYTES:
                return None
            return json.loads(source.read().decode("utf-8"))
    except (OSError, ValueError, RecursionError):
        return None


def append_line(path: Path, line: str, sleep: Callable[[float], None] = time.sleep) -> bool:
    """Append one line in one write, on disk when this returns; on a bad disk it is kept elsewhere. False when it is lost."""
    file = AppendFile(path, sleep=sleep)
    try:
        return file.append((line + "\n").encode(errors="backslashreplace"), to_disk=True)
    finally:
        file.close()


def read_json_lines(path: Path) -> Iterator[dict[str, Any]]:
    """Every whole JSON object of a .jsonl file; torn or foreign lines are passed over, and so is a file that cannot be read."""
    with contextlib.suppress(OSError), open_file(path) as source:
        while line := source.readline(LONGEST_JSON_LINE):
            value = json_object(line)
            if value is not None:
                yield value


def last_json_lines(path: Path, count: int) -> list[dict[str, Any]]:
    """Every whole JSON object among the last `count` lines of a .jsonl file, in order."""
    return [value for line in tail_lines(path, count) if (value := json_object(line)) is not None]


def json_object(line: str | bytes) -> dict[str, Any] | None:
    """The JSON object of one line; None for anything else, be it torn, nested without end or a number of ten thousand digits."""
    try:
        value = json.loads(line if isinstance(line, str) else line.decode("utf-8", errors="replace"))
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def tail_lines(path: Path, count: int, max_bytes: int = TAIL_CHUNK_BYTES) -> list[str]:
    """The last `count` lines (at most `max_bytes` of them), [] when there is no file that can be read."""
    try:
        with open_file(path) as source:
            size = source.seek(0, os.SEEK_END)
            source.seek(max(0, size - max_bytes))
            text = source.read(max_bytes).decode("utf-8", errors="replace")
    except OSError:
        return []
    lines = text.replace("\r", "\n").splitlines()
    return lines[-count:] if count > 0 else []


def link_relative(link: Path, target: Path) -> None:
    """Make `link` a relative symlink to `target`, replacing whatever link stood there; what is no link is not ours to replace."""
    if os.path.lexists(link) and not link.is_symlink():
        raise FileExistsError(errno.EEXIST, "is no link", str(link))
    aside = link.with_name(f".{link.name}.{_writer()}.x{_LINK}")
    aside.unlink(missing_ok=True)
    aside.symlink_to(os.path.relpath(target, link.parent))
    os.replace(aside, link)
