"""Files are whole or absent, and readers take what is there."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from seatrial import files


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


@pytest.mark.parametrize(("mask", "mode", "left"), [(0o077, 0o644, 0o600), (0o022, 0o644, 0o644), (0o027, 0o700, 0o700), (0, 0o600, 0o600)])
def test_written_files_honour_the_umask(tmp_path: Path, mask: int, mode: int, left: int) -> None:
    before = os.umask(mask)
    try:
        files.write_text(tmp_path / "a", "x", mode)
        files.append_line(tmp_path / "b", "x")
        assert files.umask() == mask == files.umask(tmp_path / "no-proc-here")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "a").stat().st_mode) == left
    assert stat.S_IMODE((tmp_path / "b").stat().st_mode) == 0o644 & ~mask


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
    assert files.last_json_line(path) == {"a": 2}
    assert list(files.read_json_lines(tmp_path / "missing")) == []
    assert files.last_json_line(tmp_path / "missing") is None


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
