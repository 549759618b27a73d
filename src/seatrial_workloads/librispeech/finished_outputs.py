"""Which outputs are whole, and what they were made from. In and out: `prepared.tsv`, one line for each output.

    rel_path	num_samples	size_bytes	source_size_bytes	source_mtime_ns
    dev-clean/84/121123/84-121123-0000.flac	83840	76011	91207	1731628800000000000

While a tree is being prepared lines are appended every few seconds, each time after the disk has been asked to keep what they speak of: a
line is never there without its file, not even after a power cut. An output is believed when its line is there, it has the size that stands
in it, and its source still has its own. At the end the file is written anew, sorted.
"""

from __future__ import annotations

import ctypes
import errno
import os
import stat
import threading
from collections import deque
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import NamedTuple

from seatrial.files import BY_UMASK, write_text

HEADER = "rel_path\tnum_samples\tsize_bytes\tsource_size_bytes\tsource_mtime_ns"
FLUSH_EVERY_S = 2.0


class Source(NamedTuple):
    """By what one sees that a source has changed."""

    size_bytes: int
    mtime_ns: int


class Output(NamedTuple):
    num_samples: int
    size_bytes: int
    source: Source


def source_of(path: Path) -> Source:
    """An OSError where there is no file, or one that would be waited for without end, as a pipe is."""
    found = path.stat()
    if not stat.S_ISREG(found.st_mode):
        raise OSError(errno.EINVAL, "is no ordinary file", str(path))
    return Source(found.st_size, found.st_mtime_ns)


def read_outputs(path: Path) -> dict[str, Output]:
    """Every output there is a whole line of; a torn line counts for nothing."""
    try:
        lines = path.read_text(encoding="utf-8", errors="replace").split("\n")
    except OSError:
        return {}
    outputs = {}
    for line in lines[1:]:
        fields = line.split("\t")
        if len(fields) == 5 and all(number.isdecimal() for number in fields[1:]):
            num_samples, size_bytes, *source = map(int, fields[1:])
            outputs[fields[0]] = Output(num_samples, size_bytes, Source(*source))
    return outputs


def write_outputs(path: Path, outputs: Mapping[str, Output]) -> None:
    """Write all of them, sorted, atomically."""
    lines = (HEADER, *(_line(name, output) for name, output in sorted(outputs.items())))
    write_text(path, "".join(f"{line}\n" for line in lines), BY_UMASK)


def _line(rel_path: str, output: Output) -> str:
    return "\t".join(map(str, (rel_path, output.num_samples, output.size_bytes, *output.source)))


class Appender:
    """Appends lines from a thread of its own, since asking the disk may take seconds."""

    def __init__(self, path: Path, flush_every_s: float = FLUSH_EVERY_S) -> None:
        self._path, self._flush_every_s = path, flush_every_s
        # Filled by one thread, emptied by the other.
        self._lines: deque[str] = deque()
        self._is_over = threading.Event()
        self._error: OSError | None = None
        self._thread = threading.Thread(target=self._run, name="prepared.tsv", daemon=True)

    def __enter__(self) -> Appender:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._is_over.set()
        self._thread.join()
        if self._error and kind is None:
            raise self._error

    def add(self, rel_path: str, output: Output) -> None:
        """Append its line soon; an OSError when earlier ones could not be."""
        if self._error:
            raise self._error
        self._lines.append(_line(rel_path, output))

    def _run(self) -> None:
        try:
            while not self._is_over.wait(self._flush_every_s):
                self._flush()
            self._flush()
        except OSError as error:
            self._error = error

    def _flush(self) -> None:
        lines = [self._lines.popleft() for _ in range(len(self._lines))]
        if not lines:
            return
        handle = os.open(self._path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            keep_all(handle)
            end = os.lseek(handle, 0, os.SEEK_END)
            # Behind a line that was torn, which a line break makes one by itself.
            head = f"{HEADER}\n" if end == 0 else "" if os.pread(handle, 1, end - 1) == b"\n" else "\n"
            _write_all(handle, "".join((head, *(f"{line}\n" for line in lines))).encode())
        finally:
            os.close(handle)


def keep_all(handle: int) -> None:
    """Ask the disk of this open file to keep every file written so far: one question for all, where fsync would be one for each."""
    syncfs = getattr(ctypes.CDLL(None), "syncfs", None)
    if syncfs is None or syncfs(handle) != 0:
        os.sync()


def _write_all(handle: int, data: bytes) -> None:
    while data:
        data = data[os.write(handle, data) :]
