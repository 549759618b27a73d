"""Files are whole or absent, and readers take what is there."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import filelock
import pytest

from seatrial.core import files
from seatrial.core.durable_writes import append_line_durably
from seatrial.core.files import acquire_lock, size_bytes
from tests.facts import states


def test_write_text_replaces_the_whole_file(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "a.txt"
    files.write_text(path, "old and long")
    files.write_text(path, "new")
    assert path.read_text() == "new"
    assert [child.name for child in path.parent.iterdir()] == ["a.txt"]


def test_failed_write_leaves_the_old_file_and_no_temporary(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_text("old")
    with pytest.raises(RuntimeError), files.atomic_write(path) as temporary:
        temporary.write_text("half")
        raise RuntimeError("power cut")
    assert path.read_text() == "old"
    assert [child.name for child in tmp_path.iterdir()] == ["a.txt"]


@pytest.mark.parametrize("call", ["open", "fstat", "close", "replace"])
def test_an_interrupt_right_after_a_call_leaves_no_temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str) -> None:
    before = getattr(os, call)

    def interrupted(*args: object, **options: object) -> None:
        before(*args, **options)
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(os, call, interrupted)
        with pytest.raises(KeyboardInterrupt), files.atomic_write(tmp_path / "a.json"):
            pass
        with contextlib.suppress(KeyboardInterrupt):
            files.link_relative(tmp_path / "link", tmp_path / "target")
    assert {path.name for path in tmp_path.iterdir()} <= {"a.json", "link"}


def test_a_private_file_is_never_readable_by_others(tmp_path: Path) -> None:
    path = tmp_path / "call.json"
    path.write_text("for everybody")
    path.chmod(0o666)
    before = os.umask(0)
    try:
        with files.atomic_write(path, 0o600) as temporary:
            assert stat.S_IMODE(temporary.stat().st_mode) == 0o600
        files.write_private_json(path, {"token": "t"})
    finally:
        os.umask(before)
    assert files.read_json(path) == {"token": "t"} and stat.S_IMODE(path.stat().st_mode) == 0o600


@pytest.mark.parametrize(
    ("mask", "mode", "left"),
    [
        (0o077, 0o644, 0o600),
        (0o022, 0o644, 0o644),
        (0o002, files.BY_UMASK, 0o664),
    ],
)
def test_written_files_honour_the_umask(tmp_path: Path, mask: int, mode: int, left: int) -> None:
    before = os.umask(mask)
    try:
        files.write_text(tmp_path / "a", "x", mode)
        append_line_durably(tmp_path / "b", "x")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "a").stat().st_mode) == left
    assert stat.S_IMODE((tmp_path / "b").stat().st_mode) == 0o644 & ~mask


def test_a_writer_that_replaces_the_temporary_file_does_not_change_the_mode(tmp_path: Path) -> None:
    with files.atomic_write(tmp_path / "a", 0o600) as temporary:
        temporary.unlink()
        temporary.write_text("another")
        temporary.chmod(0o666)
    assert (tmp_path / "a").read_text() == "another" and stat.S_IMODE((tmp_path / "a").stat().st_mode) == 0o600


def test_nan_is_refused_in_json(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="JSON"):
        files.write_json(tmp_path / "a.json", {"x": float("nan")})
    assert list(tmp_path.iterdir()) == []


def test_tail_lines_splits_progress_bars(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"one\n10%\r20%\rtwo\nthree")
    assert files.tail_lines(path, 2) == ["two", "three"]
    assert files.tail_lines(path, 0) == []
    assert files.tail_lines(tmp_path / "missing", 5) == []


def test_link_is_relative_and_replaces_only_a_link(tmp_path: Path) -> None:
    out, moved = tmp_path / "out", tmp_path / "moved"
    (out / "attempt-1").mkdir(parents=True)
    (out / "attempt-1" / "log").write_text("x")
    for _ in range(2):
        files.link_relative(out / "log", out / "attempt-1" / "log")
    out.rename(moved)
    assert (moved / "log").read_text() == "x"
    (moved / "train.log").write_text("mine")
    with pytest.raises(FileExistsError):
        files.link_relative(moved / "train.log", moved / "log")
    assert (moved / "train.log").read_text() == "mine"


KILLED_WRITER = """
import os, signal, sys
from pathlib import Path
from seatrial.core import files
with files.atomic_write(Path(sys.argv[1]) / "deep" / "run.csv") as temporary:
    temporary.write_text("half")
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_what_killed_writers_left_is_removed(tmp_path: Path) -> None:
    assert subprocess.run([sys.executable, "-c", KILLED_WRITER, str(tmp_path)], check=False).returncode == -signal.SIGKILL
    [left] = tmp_path.rglob(".*.part")
    of_another_host = left.with_name(".run.csv.1@elsewhere.abc.part")
    of_another_host.write_text("")
    old = left.with_name(".old.csv.abc.part")
    old.write_text("")
    os.utime(old, (0, 0))
    folder = left.with_name(".checkpoint.part")
    folder.mkdir()
    with files.atomic_write(tmp_path / "a") as alive:
        assert files.remove_partial_files(tmp_path) == 2
        assert sorted(tmp_path.rglob(".*.part")) == sorted([of_another_host, folder, alive])
    assert files.remove_partial_files(tmp_path, now_t=time.time() + 7200) == 1
    assert files.remove_partial_files(tmp_path / "none") == 0


def test_in_a_folder_of_others_only_what_bears_a_writers_name_is_removed(tmp_path: Path) -> None:
    of_ours = [tmp_path / ".a.flac.1@elsewhere.abc.part", tmp_path / ".log.1@elsewhere.x.link"]
    of_others = [tmp_path / name for name in (".mydownload.part", ".keep.link", ".a.flac.123.part", ".me@home.part", ".7@home.part")]
    for path in (*of_ours, *of_others):
        path.write_text("mine")
        os.utime(path, (0, 0))
    assert files.remove_partial_files(tmp_path, foreign=False) == len(of_ours)
    assert sorted(tmp_path.iterdir()) == sorted(of_others)
    assert files.remove_partial_files(tmp_path) == len(of_others)


def test_a_large_document_has_an_item_a_line_and_reads_back_the_same() -> None:
    value = {"rows": [{"n": number, "text": "ä" * 50} for number in range(20_000)], "none": [], "one": {"a": [1, 2]}}
    text = files.json_text(value)
    assert json.loads(text) == value
    assert text.count("\n") == 20_000 + 6
    assert files.json_text({"small": [1]}) == '{\n  "small": [\n    1\n  ]\n}\n'


@pytest.mark.parametrize(("name", "kept"), [("x" + "名" * 84, "x" + "名" * 39), ("🚢" * 63, "🚢" * 30), ("a" * 255, "a" * 120)])
def test_a_name_of_any_length_that_a_disk_takes_can_be_written(tmp_path: Path, name: str, kept: str) -> None:
    with files.atomic_write(tmp_path / name) as temporary:
        assert temporary.name.startswith(f".{kept}.{os.getpid()}@"), "cut between letters"
    assert [path.name for path in tmp_path.iterdir()] == [name]


@pytest.mark.parametrize("fsync", [True, False])
def test_files_are_synced_unless_the_caller_does_that(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fsync: bool) -> None:
    synced: list[int] = []
    monkeypatch.setattr(files.os, "fsync", synced.append)
    with files.atomic_write(tmp_path / "a", fsync=fsync) as temporary:
        temporary.write_text("whole")
    assert len(synced) == fsync and (tmp_path / "a").read_text() == "whole"


pytestmark = pytest.mark.timeout(60)


UNREADABLE: dict[str, Callable[[Path], object]] = {
    "missing": lambda path: None,
    "folder": Path.mkdir,
    "pipe": os.mkfifo,
    "loop": lambda path: path.symlink_to(path.name),
    "device": lambda path: path.symlink_to("/dev/zero"),
}
TEXTS = {"empty": b"", "not UTF-8": b"\xff\xfe", "torn": b'{"a": 1', "nested without end": b"[" * 100_000, "5000 digits": b"7" * 5000}


@pytest.mark.parametrize("kind", [*UNREADABLE, *TEXTS])
def test_what_is_not_complete_json_is_none(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "file"
    UNREADABLE[kind](path) if kind in UNREADABLE else path.write_bytes(TEXTS[kind])
    assert files.read_json(path) is None
    assert list(files.read_json_lines(path)) == files.last_json_lines(path, 2) == []


@pytest.mark.parametrize("kind", UNREADABLE)
def test_only_a_regular_file_is_opened(tmp_path: Path, kind: str) -> None:
    UNREADABLE[kind](tmp_path / "file")
    with pytest.raises(OSError):
        files.open_file(tmp_path / "file")
    assert files.tail_lines(tmp_path / "file", 3) == []


def test_json_lines_skip_torn_and_foreign_lines(tmp_path: Path) -> None:
    path = tmp_path / "lines.jsonl"
    damaged = (b"rubbish \xff", b'{"a": ' + b"8" * 5000 + b"}", b"x" * (2 << 20), b"[1]")
    path.write_bytes(b'{"a": 1}\n' + b"\n".join(damaged) + b'\n{"a": "\xff", "b": 2}\n{"a": 3')
    assert list(files.read_json_lines(path)) == [{"a": 1}, {"a": "\ufffd", "b": 2}]
    assert files.last_json_lines(path, 2) == [{"a": "\ufffd", "b": 2}]


def test_too_large_json_is_not_read_and_the_reason_is_given(tmp_path: Path) -> None:
    path = tmp_path / "file.json"
    path.write_text('{"a": 1}')
    assert files.read_json_or_why(path) == ({"a": 1}, "")
    with path.open("wb") as sparse:
        sparse.truncate(240 << 20)
    value, why = files.read_json_or_why(path)
    assert value is None and states(why, "240 MiB", "64 MiB")
    # As text it is small, and as lists it would be a gigabyte.
    path.write_bytes(b"[" + b"[]," * 5_000_000 + b"[]]")
    value, why = files.read_json_or_why(path)
    assert value is None and states(why, "10,000,002 values", "3,000,000")


def test_size_is_0_where_a_file_cannot_be_read(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"three\n")
    (tmp_path / "loop").symlink_to("loop")
    assert size_bytes(tmp_path / "file") == 6
    assert [size_bytes(tmp_path / name) for name in ("gone", "file/log", "loop", "n" * 300)] == [0] * 4


def test_a_lock_is_held_by_one_process_at_a_time(tmp_path: Path) -> None:
    lock = filelock.FileLock(tmp_path / "lock")
    assert acquire_lock(lock, 0.0) and lock.is_locked
    with pytest.raises(filelock.Timeout):
        acquire_lock(filelock.FileLock(tmp_path / "lock"), 0.0)
    lock.release()


@pytest.mark.parametrize(
    ("error", "is_without_locks"),
    [(NotImplementedError(), True)]
    + [(OSError(number, ""), True) for number in (errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL)]
    + [(OSError(errno.EROFS, ""), False)],
)
def test_a_file_system_without_locks_is_no_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception, is_without_locks: bool
) -> None:
    def acquire(*_: object, **__: object) -> None:
        raise error

    lock = filelock.FileLock(tmp_path / "lock")
    monkeypatch.setattr(lock, "acquire", acquire)
    if is_without_locks:
        assert acquire_lock(lock, 0.0) is False
    else:
        with pytest.raises(OSError) as raised:
            acquire_lock(lock, 0.0)
        assert raised.value is error
