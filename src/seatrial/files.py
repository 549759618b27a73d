"""Files as the whole project writes and reads them.

Whole files are written aside and renamed, so a reader sees the old text or the new one and never half of either.
Append-only files get whole lines in one write. Readers take what is there: a torn last line is the caller's to skip.
"""

from __future__ import annotations

import contextlib
import json
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

TAIL_CHUNK_BYTES = 64 * 1024
# Results are meant to be read by the team, as far as the user's umask lets them.
READABLE = 0o644
_OWN_STATUS = Path("/proc/self/status")


@contextlib.contextmanager
def written_aside(path: Path, mode: int = READABLE) -> Iterator[Path]:
    """A temporary name beside `path`, renamed onto it when the block ends well and removed when it does not."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".part")
    os.close(handle)
    temporary = Path(name)
    try:
        yield temporary
        # Until now it was 0600, so that a private file is never readable by others, not even for a moment.
        temporary.chmod(mode & ~umask())
        with open(temporary, "rb") as written:
            os.fsync(written.fileno())
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def umask(status: Path = _OWN_STATUS) -> int:
    """This process's umask, read where the kernel shows it: to ask by `os.umask` is to change it for every other thread."""
    with contextlib.suppress(OSError, ValueError):
        for line in status.read_text(encoding="ascii", errors="replace").splitlines():
            name, _, value = line.partition(":")
            if name == "Umask":
                return int(value, 8)
    # A file another thread makes in this moment is private rather than open.
    current = os.umask(0o077)
    os.umask(current)
    return current


def write_text(path: Path, text: str, mode: int = READABLE) -> None:
    """Write `text` as the whole of `path`, atomically."""
    with written_aside(path, mode) as temporary:
        temporary.write_text(text, encoding="utf-8")


def write_json(path: Path, value: Any, mode: int = READABLE) -> None:
    """Write `value` as indented JSON, atomically. NaN has no place in JSON and is an error of ours."""
    write_text(path, json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False) + "\n", mode)


def read_json(path: Path) -> Any | None:
    """The JSON in `path`, or None when there is no such file or it is not whole."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError, json.JSONDecodeError, UnicodeDecodeError):
        return None


def append_line(path: Path, line: str) -> None:
    """Append one line in one write, on disk when this returns."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    try:
        os.write(handle, (line + "\n").encode())
        os.fsync(handle)
    finally:
        os.close(handle)


def read_json_lines(path: Path) -> Iterator[dict[str, Any]]:
    """Every whole JSON object of a .jsonl file; torn or foreign lines are passed over."""
    if not path.is_file():
        return
    with open(path, encoding="utf-8", errors="replace") as source:
        for line in source:
            with contextlib.suppress(json.JSONDecodeError):
                value = json.loads(line)
                if isinstance(value, dict):
                    yield value


def last_json_line(path: Path) -> dict[str, Any] | None:
    """The newest whole JSON object of a .jsonl file, reading only its end."""
    for line in reversed(tail_lines(path, 2)):
        with contextlib.suppress(json.JSONDecodeError):
            value = json.loads(line)
            if isinstance(value, dict):
                return value
    return None


def tail_lines(path: Path, count: int, max_bytes: int = TAIL_CHUNK_BYTES) -> list[str]:
    """The last `count` lines (at most `max_bytes` of them), [] when there is no such file."""
    try:
        with open(path, "rb") as source:
            size = source.seek(0, os.SEEK_END)
            source.seek(max(0, size - max_bytes))
            text = source.read().decode("utf-8", errors="replace")
    except (FileNotFoundError, NotADirectoryError):
        return []
    lines = text.replace("\r", "\n").splitlines()
    return lines[-count:] if count > 0 else []


def link_relative(link: Path, target: Path) -> None:
    """Make `link` a relative symlink to `target`, replacing whatever link stood there."""
    aside = link.with_name(f".{link.name}.{os.getpid()}.link")
    aside.unlink(missing_ok=True)
    aside.symlink_to(os.path.relpath(target, link.parent))
    os.replace(aside, link)
