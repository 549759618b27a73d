"""Every writer on a disk that fills up, turns read-only or fails, and recovers: nothing is lost, torn, doubled or out of order.

Errors of single calls (transient ones, fsync, rename) are in tests/unit/core/test_durable_writes.py.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from seatrial.agent.output import LogFile
from seatrial.collect.attempt_files import recover_files, recovered_cautions
from seatrial.core.durable_writes import AppendFile, append_line_durably
from seatrial.core.fallback import fallback_entry, merge_fallback
from seatrial.machine.sampler import CsvWriter
from seatrial.probe.writer import LineFile
from tests.faults.disk import Disk, needs_root
from tests.stubs import eio

pytestmark = [pytest.mark.faults, pytest.mark.usefixtures("fallback_folder")]
ROOT = Path(__file__).parents[2]
LINES = 300
Opened = tuple[Callable[[int], object], Callable[[], object]]
"""Functions that write the line of a number, and that close the file."""


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Disk]:
    one = Disk(tmp_path / "disk", "64k")
    yield one
    one.close()


@dataclass(frozen=True)
class Writer:
    """One of the project's writers: how it is opened, and what the file then holds of `count` lines."""

    name: str
    open: Callable[[Path], Opened]
    holds: Callable[[int], str]


def _line(number: int) -> str:
    return f"line {number} {'x' * 40}"


def _text(count: int) -> str:
    return "".join(f"{_line(number)}\n" for number in range(count))


def _append_file(path: Path) -> Opened:
    file = AppendFile(path)
    return lambda number: file.append(f"{_line(number)}\n".encode()), file.close


def _csv_writer(path: Path) -> Opened:
    file = CsvWriter(path, ("number", "word"))
    return lambda number: file.append([{"number": number, "word": "x" * 40}]), file.close


def _line_file(path: Path) -> Opened:
    file = LineFile(path)
    return lambda number: file.write([_line(number)]), file.close


def _log_file(path: Path) -> Opened:
    file = LogFile(path)
    return lambda number: file.append(f"{_line(number)}\n".encode()), file.close


WRITERS = [
    Writer("AppendFile", _append_file, _text),
    Writer("append_line", lambda path: (lambda number: append_line_durably(path, _line(number)), lambda: None), _text),
    Writer("CsvWriter", _csv_writer, lambda count: "number,word\n" + "".join(f"{number},{'x' * 40}\n" for number in range(count))),
    Writer("LineFile", _line_file, _text),
    Writer("LogFile", _log_file, _text),
]
every_writer = pytest.mark.parametrize("writer", WRITERS, ids=lambda writer: writer.name)


@needs_root
@every_writer
def test_a_full_disk_in_each_writer(disk: Disk, writer: Writer) -> None:
    path = disk.folder / "attempt-1" / "file"
    write, close = writer.open(path)
    for number in range(100):
        write(number)
    disk.fill()
    for number in range(100, LINES):
        write(number)
    assert fallback_entry(path), "it did not notice"
    whole = path.read_text()
    assert whole.endswith("\n") and writer.holds(LINES).startswith(whole), "no line is torn"
    assert [one.merged for one in recover_files(disk.folder)] == [False]
    disk.free()
    assert [one.merged for one in recover_files(disk.folder)] == [True]
    write(LINES)
    close()
    assert path.read_text() == writer.holds(LINES + 1)
    [caution] = recovered_cautions(path.parent)
    assert "(No space left on device) and merged back." in caution.text


@needs_root
@every_writer
def test_a_disk_turned_read_only_in_each_writer(disk: Disk, writer: Writer) -> None:
    path = disk.folder / "file"
    write, close = writer.open(path)
    write(0)
    # Only files that are opened from now on fail.
    close()
    disk.set_writable(False)
    write, close = writer.open(path)
    for number in range(1, 20):
        write(number)
    assert [(one.merged, one.why) for one in merge_fallback(disk.folder)] == [(False, "Read-only file system")]
    disk.set_writable(True)
    assert [(one.merged, one.error) for one in merge_fallback(disk.folder)] == [(True, "Read-only file system")]
    write(20)
    close()
    assert path.read_text() == writer.holds(21)


SCRIPT = """
import json, os, sys
from pathlib import Path
from tests.faults.test_fault_writers import WRITERS
from seatrial.core.fallback import merge_fallback

home, name = Path(sys.argv[1]), sys.argv[2]
write, close = next(writer for writer in WRITERS if writer.name == name).open(home / "file")
for number in range(20):
    write(number)
close()
bad = [one.merged for one in merge_fallback(home)]
os.environ.pop("EIO_PATH")
print(json.dumps([bad, [one.merged for one in merge_fallback(home)], (home / "file").read_text()]))
"""


@eio.needs_compiler
@every_writer
def test_an_input_output_error_in_each_writer(tmp_path: Path, writer: Writer) -> None:
    env = {**os.environ, **eio.environment("file", calls=("open", "write")), "PYTHONPATH": str(ROOT)}
    argv = [sys.executable, "-c", SCRIPT, str(tmp_path), writer.name]
    done = subprocess.run(argv, env=env, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == [[False], [True], writer.holds(20)]
