"""What was kept elsewhere, brought back: by its writer, told until it was heard, and never over something newer."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from seatrial.disk import fallback
from seatrial.disk.append import put_aside
from seatrial.disk.merging import Recovered, merge_back, merge_file
from seatrial.disk.modes import PRIVATE, READABLE

FULL = "No space left on device"


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(fallback.VARIABLE, str(tmp_path / "fallback"))
    (tmp_path / "out").mkdir()
    return tmp_path / "out"


def kept(target: Path, lines: bytes, mode: int = READABLE) -> Path:
    assert fallback.keep(target, lines, FULL, mode)
    return target


def test_nothing_was_kept() -> None:
    told: list[list[Recovered]] = []
    assert merge_back(Path("/no/such/folder"), told.append) == [] and told == []


def test_the_writer_brings_its_own_file_back(home: Path) -> None:
    target = kept(home / "a.jsonl", b"one\ntwo\n")
    other = kept(home / "b.jsonl", b"other\n")
    assert merge_file(target) and target.read_bytes() == b"one\ntwo\n" and not other.exists()
    assert merge_file(target) and target.read_bytes() == b"one\ntwo\n", "nothing is left to merge"


def test_a_file_that_must_be_made_anew_has_the_mode_it_was_meant_to_have(home: Path) -> None:
    target = kept(home / "deep" / "secret.jsonl", b"one\n", PRIVATE)
    assert merge_file(target) and target.stat().st_mode & 0o777 == PRIVATE


def test_what_was_merged_is_told_until_somebody_has_heard_it(home: Path) -> None:
    target = kept(home / "a.jsonl", b"one\n")

    def deaf(found: list[Recovered]) -> None:
        raise OSError("the list could not be written")

    with pytest.raises(OSError, match="could not be written"):
        merge_back(home, deaf)
    assert target.read_bytes() == b"one\n"
    heard: list[list[Recovered]] = []
    (again,) = merge_back(home, heard.append)
    assert heard == [[again]] and (again.file, again.bytes, again.error, again.merged) == ("a.jsonl", 4, FULL, True)
    assert target.read_bytes() == b"one\n" and merge_back(home) == []


def test_a_target_that_cannot_be_written_keeps_its_lines_and_their_order(home: Path) -> None:
    target = kept(home / "a.jsonl", b"one\n")
    target.mkdir()
    assert not merge_file(target)
    (stays,) = merge_back(home)
    assert not stays.merged and stays.host == os.uname().nodename and Path(stays.kept_at).exists() and stays.why
    target.rmdir()
    assert [one.merged for one in merge_back(home)] == [True] and target.read_bytes() == b"one\n"


def test_a_whole_file_takes_its_place_unless_a_newer_one_stands_there(home: Path) -> None:
    path = home / "outcome.json"
    assert put_aside(path, b"ours", OSError(28, FULL))
    assert [one.merged for one in merge_back(home)] == [True] and path.read_bytes() == b"ours"
    assert put_aside(path, b"older", OSError(28, FULL))
    path.write_bytes(b"newer than what was kept")
    assert merge_back(home) == [] and path.read_bytes() == b"newer than what was kept"


def test_an_entry_that_is_damaged_is_passed_over(home: Path, tmp_path: Path) -> None:
    kept(home / "a.jsonl", b"one\n")
    (entry,) = (path for root in fallback.roots() for path in fallback.listed(root, fallback.APPEND))
    entry.write_bytes(b'{"target": "half a hea')
    assert merge_back(home) == [] and not (home / "a.jsonl").exists()
