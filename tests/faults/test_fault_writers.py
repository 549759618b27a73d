"""Every writer on a disk that fills up, turns read-only or fails, and is well again: nothing is lost, torn, doubled or out of order."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from seatrial import files
from seatrial.agent.merge import LogFile
from seatrial.collect.recovered import recover, recovered_cautions
from seatrial.disk.append import AppendFile, kept_elsewhere
from seatrial.disk.merging import merge_back
from seatrial.observe.row_file import RowFile
from seatrial.probe.line_file import LineFile
from tests.stubs import eio

pytestmark = [pytest.mark.faults, pytest.mark.usefixtures("fallback_folder")]
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="mounting a small tmpfs needs root")
ROOT = Path(__file__).parents[2]
LINES = 300


class SmallDisk:
    """A file system of 64 KiB that can be filled and turned read-only."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir()
        _mount("-t", "tmpfs", "-o", "size=64k", "tmpfs", str(folder))

    def fill(self) -> None:
        with open(self.folder / "ballast", "ab", buffering=0) as ballast:
            try:
                while True:
                    ballast.write(b"\0" * 4096)
            except OSError:
                pass

    def make_room(self) -> None:
        (self.folder / "ballast").unlink()

    def turn_read_only(self) -> None:
        _mount("-o", "remount,ro", str(self.folder))

    def turn_writable(self) -> None:
        _mount("-o", "remount,rw", str(self.folder))


def _mount(*words: str) -> None:
    subprocess.run(["mount", *words], check=True)


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[SmallDisk]:
    one = SmallDisk(tmp_path / "disk")
    yield one
    subprocess.run(["umount", "-l", str(one.folder)], check=True)


@dataclass(frozen=True)
class Writer:
    """One of the project's writers: how it is opened, and what the file then holds of `count` lines."""

    name: str
    open: Callable[[Path], tuple[Callable[[int], object], Callable[[], object]]]
    holds: Callable[[int], str]


def _text(count: int) -> str:
    return "".join(f"line {number} {'x' * 40}\n" for number in range(count))


def _line(number: int) -> str:
    return f"line {number} {'x' * 40}"


def _append_file(path: Path) -> tuple[Callable[[int], object], Callable[[], object]]:
    file = AppendFile(path)
    return lambda number: file.append(f"{_line(number)}\n".encode()), file.close


def _row_file(path: Path) -> tuple[Callable[[int], object], Callable[[], object]]:
    file = RowFile(path, ("number", "word"))
    return lambda number: file.append([{"number": number, "word": "x" * 40}]), file.close


def _line_file(path: Path) -> tuple[Callable[[int], object], Callable[[], object]]:
    file = LineFile(path)
    return lambda number: file.write([_line(number)]), file.close


def _log_file(path: Path) -> tuple[Callable[[int], object], Callable[[], object]]:
    file = LogFile(path)
    return lambda number: file.append(f"{_line(number)}\n".encode()), file.close


WRITERS = [
    Writer("AppendFile", _append_file, _text),
    Writer("append_line", lambda path: (lambda number: files.append_line(path, _line(number)), lambda: None), _text),
    Writer("RowFile", _row_file, lambda count: "number,word\n" + "".join(f"{number},{'x' * 40}\n" for number in range(count))),
    Writer("LineFile", _line_file, _text),
    Writer("LogFile", _log_file, _text),
]
every_writer = pytest.mark.parametrize("writer", WRITERS, ids=lambda writer: writer.name)


@needs_root
@every_writer
def test_a_full_disk_in_each_writer(disk: SmallDisk, writer: Writer) -> None:
    path = disk.folder / "attempt-1" / "file"
    write, close = writer.open(path)
    for number in range(100):
        write(number)
    disk.fill()
    for number in range(100, LINES):
        write(number)
    assert kept_elsewhere(path), "it did not notice"
    whole = path.read_text()
    assert whole.endswith("\n") and writer.holds(LINES).startswith(whole), "no line is torn"
    assert [one.merged for one in recover(disk.folder)] == [False]
    disk.make_room()
    assert [one.merged for one in recover(disk.folder)] == [True]
    write(LINES)
    close()
    assert path.read_text() == writer.holds(LINES + 1)
    [caution] = recovered_cautions(path.parent)
    assert "(No space left on device) and merged back." in caution.text


@needs_root
@every_writer
def test_a_disk_turned_read_only_in_each_writer(disk: SmallDisk, writer: Writer) -> None:
    path = disk.folder / "file"
    write, close = writer.open(path)
    write(0)
    # The kernel turns a file system read-only under open files only when it fails; by hand, they are closed first.
    close()
    disk.turn_read_only()
    write, close = writer.open(path)
    for number in range(1, 20):
        write(number)
    assert [(one.merged, one.why) for one in merge_back(disk.folder)] == [(False, "Read-only file system")]
    disk.turn_writable()
    assert [(one.merged, one.error) for one in merge_back(disk.folder)] == [(True, "Read-only file system")]
    write(20)
    close()
    assert path.read_text() == writer.holds(21)


@needs_root
@pytest.mark.parametrize("trouble", ["full", "read-only"])
def test_whole_files_on_a_bad_disk(disk: SmallDisk, trouble: str) -> None:
    path = disk.folder / "outcome.json"
    assert files.write_json_surely(path, {"outcome": "old"})
    disk.fill() if trouble == "full" else disk.turn_read_only()
    assert files.write_json_surely(path, {"outcome": "ok"})
    assert files.read_json(path) == {"outcome": "old"}
    assert trouble == "read-only" or not list(disk.folder.glob(".*.part"))
    assert [one.merged for one in merge_back(disk.folder)] == [False]
    disk.make_room() if trouble == "full" else disk.turn_writable()
    assert [one.merged for one in merge_back(disk.folder)] == [True]
    assert files.read_json(path) == {"outcome": "ok"}


@needs_root
def test_room_that_others_make_is_used_by_the_writer_itself(disk: SmallDisk) -> None:
    now_m = [0.0]
    file = AppendFile(disk.folder / "log", monotonic=lambda: now_m[0])
    disk.fill()
    assert all(file.append(f"{_line(number)}\n".encode()) for number in range(200))
    now_m[0] = 10.0
    assert file.append(b"still no room\n") and (disk.folder / "log").stat().st_size < 8192
    disk.make_room()
    now_m[0] = 20.0
    assert file.append(b"well again\n")
    assert (disk.folder / "log").read_text() == _text(200) + "still no room\nwell again\n"
    assert [one.merged for one in merge_back(disk.folder)] == [True]


SCRIPT = """
import json, os, sys
from pathlib import Path
from tests.faults.test_fault_writers import WRITERS
from seatrial import files
from seatrial.disk.merging import merge_back

home, name = Path(sys.argv[1]), sys.argv[2]
if name == "write_json_surely":
    written = files.write_json_surely(home / "file", {"a": 1})
else:
    write, close = next(writer for writer in WRITERS if writer.name == name).open(home / "file")
    for number in range(20):
        write(number)
    close()
bad = [one.merged for one in merge_back(home)]
os.environ.pop("EIO_PATH")
print(json.dumps([bad, [one.merged for one in merge_back(home)], (home / "file").read_text()]))
"""


def _on_a_bad_disk(home: Path, name: str, bad: dict[str, str]) -> list[object]:
    home.mkdir()
    env = {**os.environ, **bad, "PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, "-c", SCRIPT, str(home), name], env=env, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return list(json.loads(done.stdout))


@eio.needs_compiler
@every_writer
def test_an_input_output_error_in_each_writer(tmp_path: Path, writer: Writer) -> None:
    bad = eio.environment("file", calls=("open", "write"))
    assert _on_a_bad_disk(tmp_path / "out", writer.name, bad) == [[False], [True], writer.holds(20)]


@eio.needs_compiler
@every_writer
def test_an_error_that_passes_costs_nothing(tmp_path: Path, writer: Writer) -> None:
    bad = eio.environment("file", times=2, calls=("write",))
    assert _on_a_bad_disk(tmp_path / "out", writer.name, bad) == [[], [], writer.holds(20)]


@eio.needs_compiler
@pytest.mark.parametrize("error", [errno.EIO, errno.ENOSPC, errno.EDQUOT, errno.ESTALE])
def test_a_network_disk_that_tells_only_when_it_is_asked(tmp_path: Path, error: int) -> None:
    bad = eio.environment("file", error=error, calls=("fsync",))
    assert _on_a_bad_disk(tmp_path / "out", "append_line", bad) == [[False], [True], _text(20)]


@eio.needs_compiler
@pytest.mark.parametrize(("times", "merged"), [(None, [[False], [True]]), (2, [[], []])])
def test_a_rename_that_fails(tmp_path: Path, times: int | None, merged: list[list[bool]]) -> None:
    bad = eio.environment("file", times=times, calls=("rename",))
    assert _on_a_bad_disk(tmp_path / "out", "write_json_surely", bad) == [*merged, '{\n  "a": 1\n}\n']
    assert not list((tmp_path / "out").glob(".*"))
