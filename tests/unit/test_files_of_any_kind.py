"""Readers of the project's files before what is no file, or not whole."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from seatrial import files

pytestmark = pytest.mark.timeout(60)


def loop(path: Path) -> None:
    path.symlink_to(path.name)


def pipe(path: Path) -> None:
    os.mkfifo(path)


def device(path: Path) -> None:
    path.symlink_to("/dev/zero")


def written(path: Path, data: bytes) -> None:
    path.write_bytes(data)


TEXTS = {
    "nothing": b"",
    "NUL": b"\0" * 100,
    "nested without end": b"[" * 100_000,
    "5000 digits": b"7" * 5000,
    "a torn object": b'{"a": 1',
}
KINDS: dict[str, Callable[[Path], object]] = {"folder": Path.mkdir, "pipe": pipe, "loop": loop, "device": device}
KINDS |= {name: partial(written, data=data) for name, data in TEXTS.items()}


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_no_whole_json_is_none(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "file"
    KINDS[kind](path)
    assert files.read_json(path) is None
    assert list(files.read_json_lines(path)) == []
    assert files.last_json_lines(path, 2) == []


@pytest.mark.parametrize("kind", ["folder", "pipe", "loop", "device"])
def test_only_an_ordinary_file_is_opened(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "file"
    KINDS[kind](path)
    with pytest.raises(OSError, match=r"no ordinary file|Too many levels|directory"):
        files.open_file(path)
    assert files.tail_lines(path, 3) == []


def test_a_line_with_bytes_that_are_no_text_keeps_the_rest(tmp_path: Path) -> None:
    path = tmp_path / "lines.jsonl"
    path.write_bytes(b'{"a": "\xff", "b": 2}\n')
    assert files.read_json(path) is None
    assert list(files.read_json_lines(path)) == files.last_json_lines(path, 2) == [{"a": "\ufffd", "b": 2}]


def test_lines_around_a_damaged_one_are_read(tmp_path: Path) -> None:
    path = tmp_path / "lines.jsonl"
    path.write_bytes(b'{"a": 1}\n' + b'{"a": ' + b"8" * 5000 + b"}\n" + b"x" * (2 << 20) + b'\n[1]\n{"a": 2}\n{"a": 3')
    assert list(files.read_json_lines(path)) == [{"a": 1}, {"a": 2}]


def test_json_larger_than_anything_of_ours_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "LARGEST_JSON_BYTES", 10)
    path = tmp_path / "file.json"
    path.write_text('{"a": 1}')
    assert files.read_json(path) == {"a": 1}
    path.write_text('{"a": 12345}')
    assert files.read_json(path) is None
