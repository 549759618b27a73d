"""Files are whole or absent, and readers take what is there."""

from __future__ import annotations

import errno
import json
import os
import signal
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest

from seatrial import files
from seatrial.disk.merging import merge_back


def test_write_text_replaces_the_whole_file(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "a.txt"
    files.write_text(path, "old and long")
    files.write_text(path, "new")
    assert path.read_text() == "new"
    assert [child.name for child in path.parent.iterdir()] == ["a.txt"]


def test_failed_write_leaves_the_old_file_and_no_temporary(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_text("old")
    with pytest.raises(RuntimeError), files.written_aside(path) as aside:
        aside.write_text("half")
        raise RuntimeError("power cut")
    assert path.read_text() == "old"
    assert [child.name for child in tmp_path.iterdir()] == ["a.txt"]


def test_a_private_file_is_never_readable_by_others_whatever_stood_there(tmp_path: Path) -> None:
    path = tmp_path / "call.json"
    path.write_text("for everybody")
    path.chmod(0o666)
    files.write_private_json(path, {"token": "t"})
    assert files.read_json(path) == {"token": "t"} and stat.S_IMODE(path.stat().st_mode) == 0o600


@pytest.mark.parametrize(
    ("mask", "mode", "left"),
    [
        (0o077, 0o644, 0o600),
        (0o022, 0o644, 0o644),
        (0o027, 0o700, 0o700),
        (0, 0o600, 0o600),
        (0o002, files.BY_UMASK, 0o664),
        (0o077, files.BY_UMASK, 0o600),
    ],
)
def test_written_files_honour_the_umask(tmp_path: Path, mask: int, mode: int, left: int) -> None:
    before = os.umask(mask)
    try:
        files.write_text(tmp_path / "a", "x", mode)
        files.append_line(tmp_path / "b", "x")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "a").stat().st_mode) == left
    assert stat.S_IMODE((tmp_path / "b").stat().st_mode) == 0o644 & ~mask


@pytest.mark.parametrize("mode", [0o600, 0o700])
def test_a_private_file_is_private_while_it_is_written(tmp_path: Path, mode: int) -> None:
    before = os.umask(0)
    try:
        with files.written_aside(tmp_path / "call.json", mode) as aside:
            assert stat.S_IMODE(aside.stat().st_mode) == mode
    finally:
        os.umask(before)


def test_a_writer_who_puts_a_file_of_its_own_in_place_does_not_change_the_mode(tmp_path: Path) -> None:
    with files.written_aside(tmp_path / "a", 0o600) as aside:
        aside.unlink()
        aside.write_text("another")
        aside.chmod(0o666)
    assert (tmp_path / "a").read_text() == "another" and stat.S_IMODE((tmp_path / "a").stat().st_mode) == 0o600


def test_nan_is_refused_in_json(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="JSON"):
        files.write_json(tmp_path / "a.json", {"x": float("nan")})
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("content", [b"", b"{", b"\xff\xfe", b"[1"])
def test_read_json_gives_none_for_what_is_not_whole(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "a.json"
    path.write_bytes(content)
    assert files.read_json(path) is None
    assert files.read_json(tmp_path / "missing.json") is None


def test_json_lines_pass_over_torn_and_foreign_lines(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(b'{"a": 1}\nrubbish \xff\n[1]\n{"a": 2}\n{"a": 3')
    assert list(files.read_json_lines(path)) == [{"a": 1}, {"a": 2}]
    assert files.last_json_lines(path, 2) == [{"a": 2}]
    assert list(files.read_json_lines(tmp_path / "missing")) == []
    assert files.last_json_lines(tmp_path / "missing", 2) == []


def test_tail_lines_splits_progress_bars(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"one\n10%\r20%\rtwo\nthree")
    assert files.tail_lines(path, 2) == ["two", "three"]
    assert files.tail_lines(path, 0) == []
    assert files.tail_lines(tmp_path / "missing", 5) == []


def test_append_line_adds_whole_lines(tmp_path: Path) -> None:
    path = tmp_path / "a" / "lines"
    files.append_line(path, "one")
    files.append_line(path, "two")
    assert path.read_text() == "one\ntwo\n"


def test_link_is_relative_and_can_be_moved_with_its_folder(tmp_path: Path) -> None:
    (tmp_path / "out" / "attempt-1").mkdir(parents=True)
    (tmp_path / "out" / "attempt-1" / "log").write_text("x")
    files.link_relative(tmp_path / "out" / "log", tmp_path / "out" / "attempt-1" / "log")
    files.link_relative(tmp_path / "out" / "log", tmp_path / "out" / "attempt-1" / "log")
    (tmp_path / "out").rename(tmp_path / "moved")
    assert (tmp_path / "moved" / "log").read_text() == "x"


def test_a_line_for_a_full_disk_is_kept_and_merged(tmp_path: Path, fallback_folder: Path) -> None:
    home = tmp_path / "out"
    home.mkdir()
    (home / "lines").symlink_to("/dev/full")
    waits: list[float] = []
    assert files.append_line(home / "lines", "one", waits.append) and files.append_line(home / "lines", "two", waits.append)
    assert len(waits) == 2, "the second goes straight to where the first is"
    (home / "lines").unlink()
    assert files.append_line(home / "lines", "three")
    assert (home / "lines").read_text() == "one\ntwo\nthree\n"
    assert [(one.file, one.error) for one in merge_back(home)] == [("lines", "No space left on device")]


def test_a_whole_file_is_surely_somewhere(tmp_path: Path, fallback_folder: Path) -> None:
    path = tmp_path / "out" / "run" / "outcome.json"
    (tmp_path / "out").mkdir()
    # A file in the folder's place stands for a disk that does not let the folder be made.
    path.parent.write_text("")
    assert files.write_json_surely(path, {"outcome": "ok"}, 0o600)
    path.parent.unlink()
    assert [(one.file, one.merged) for one in merge_back(tmp_path / "out")] == [("run/outcome.json", True)]
    assert files.read_json(path) == {"outcome": "ok"} and stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_file_written_well_makes_the_kept_one_out_of_date(tmp_path: Path, fallback_folder: Path) -> None:
    path = tmp_path / "out" / "verdict.json"
    (tmp_path / "out").write_text("")
    assert files.write_text_surely(path, "old")
    (tmp_path / "out").unlink()
    assert files.write_text_surely(path, "new")
    assert merge_back(tmp_path / "out") == [] and path.read_text() == "new"


def test_what_can_be_written_nowhere_is_said(tmp_path: Path, fallback_folder: Path) -> None:
    fallback_folder.write_text("")
    (tmp_path / "out").write_text("")
    assert not files.write_text_surely(tmp_path / "out" / "a", "x")
    assert not files.append_line(tmp_path / "out" / "b", "x")


def test_a_disk_in_trouble_is_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    waits: list[float] = []
    real, errors = os.replace, [errno.EIO, errno.ENOSPC]

    def replace(source: Path, target: Path) -> None:
        if errors:
            raise OSError(errors.pop(), "for a moment")
        real(source, target)

    monkeypatch.setattr(os, "replace", replace)
    assert files.write_text_surely(tmp_path / "a", "x", sleep=waits.append)
    assert (tmp_path / "a").read_text() == "x" and len(waits) == 2 and sum(waits) < 0.5
    assert [child.name for child in tmp_path.iterdir()] == ["a"]


KILLED_WRITER = """
import os, signal, sys
from pathlib import Path
from seatrial import files
with files.written_aside(Path(sys.argv[1]) / "deep" / "run.csv") as aside:
    aside.write_text("half")
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_what_killed_writers_left_is_swept(tmp_path: Path) -> None:
    assert subprocess.run([sys.executable, "-c", KILLED_WRITER, str(tmp_path)], check=False).returncode == -signal.SIGKILL
    [left] = tmp_path.rglob(".*.part")
    of_another_host = left.with_name(".run.csv.1@elsewhere.abc.part")
    of_another_host.write_text("")
    old = left.with_name(".old.csv.abc.part")
    old.write_text("")
    os.utime(old, (0, 0))
    folder = left.with_name(".checkpoint.part")
    folder.mkdir()
    with files.written_aside(tmp_path / "a") as alive:
        assert files.sweep_parts(tmp_path) == 2
        assert sorted(tmp_path.rglob(".*.part")) == sorted([of_another_host, folder, alive])
    assert files.sweep_parts(tmp_path, now_t=time.time() + 7200) == 1
    assert files.sweep_parts(tmp_path / "none") == 0


def test_in_a_folder_of_others_only_what_bears_a_writers_name_is_swept(tmp_path: Path) -> None:
    of_ours = [tmp_path / ".a.flac.1@elsewhere.abc.part", tmp_path / ".log.1@elsewhere.x.link"]
    of_others = [tmp_path / name for name in (".mydownload.part", ".keep.link", ".a.flac.123.part", ".me@home.part", ".7@home.part")]
    for path in (*of_ours, *of_others):
        path.write_text("mine")
        os.utime(path, (0, 0))
    assert files.sweep_parts(tmp_path, foreign=False) == len(of_ours)
    assert sorted(tmp_path.iterdir()) == sorted(of_others)
    assert files.sweep_parts(tmp_path) == len(of_others)


def test_what_is_no_link_is_not_replaced_by_one(tmp_path: Path) -> None:
    (tmp_path / "train.log").write_text("mine")
    with pytest.raises(FileExistsError):
        files.link_relative(tmp_path / "train.log", tmp_path / "other")
    assert (tmp_path / "train.log").read_text() == "mine"


def test_a_large_document_has_an_item_a_line_and_reads_back_the_same() -> None:
    value = {"rows": [{"n": number, "text": "ä" * 50} for number in range(20_000)], "none": [], "one": {"a": [1, 2]}}
    text = files.json_text(value)
    assert json.loads(text) == value
    assert text.count("\n") == 20_000 + 6
    assert files.json_text({"small": [1]}) == '{\n  "small": [\n    1\n  ]\n}\n'


@pytest.mark.parametrize("name", ["名" * 85, "x" * 255, "🚢" * 63])
def test_a_name_of_any_length_that_a_disk_takes_can_be_written(tmp_path: Path, name: str) -> None:
    files.write_text(tmp_path / name, "whole")
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [(name, "whole")]


@pytest.mark.parametrize(("name", "kept"), [("x" + "名" * 80, "x" + "名" * 39), ("🚢" * 31, "🚢" * 30), ("a" * 119 + "é", "a" * 119)])
def test_a_long_name_is_cut_between_letters(tmp_path: Path, name: str, kept: str) -> None:
    with files.written_aside(tmp_path / name) as aside:
        assert aside.name.startswith(f".{kept}.{os.getpid()}@")
        assert aside.name.encode()


@pytest.mark.parametrize(("to_disk", "asked"), [(True, 1), (False, 0)])
def test_the_disk_is_waited_for_unless_the_caller_does_that(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, to_disk: bool, asked: int
) -> None:
    waited: list[int] = []
    monkeypatch.setattr(files.os, "fsync", waited.append)
    with files.written_aside(tmp_path / "a", to_disk=to_disk) as aside:
        aside.write_text("whole")
    assert len(waited) == asked and (tmp_path / "a").read_text() == "whole"
