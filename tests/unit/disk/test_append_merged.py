"""What was kept elsewhere comes back once, whole and in order: killed in between, many at once, moved, damaged."""

from __future__ import annotations

import errno
import os
import shutil
import stat
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from seatrial.disk import fallback
from seatrial.disk.append import forget_lines, kept_elsewhere, put_aside
from seatrial.disk.merging import Recovered, merge_back
from tests.unit.disk.failing_disk import FULL, Disk, kept_lines, opened

KILLED = """
import os, signal, sys
from pathlib import Path
from seatrial.disk import merging
merging._CHUNK_BYTES = 1000

def fault(step):
    if step == sys.argv[2]:
        os.kill(os.getpid(), signal.SIGKILL)

merging.merge_back(Path(sys.argv[1]), fault=fault)
"""


@pytest.mark.parametrize("step", ["marked", "part appended", "appended", "noted"])
@pytest.mark.parametrize("others", [b"", b"from another host\n"])
def test_killed_in_the_middle_of_merging_nothing_is_lost_or_doubled(home: Path, step: str, others: bytes) -> None:
    lines = [b'{"n": %d}\n' % number for number in range(500)]
    target = kept_lines(home, *lines)
    with open(target, "ab") as file:
        file.write(others)
    killed = subprocess.run([sys.executable, "-c", KILLED, str(home), step], check=False)
    assert killed.returncode == -9
    assert [one.merged for one in merge_back(home)] == [True]
    assert target.read_bytes() == b"before\n" + others + b"".join(lines)
    assert merge_back(home) == []


def test_lines_of_others_after_a_broken_merge_are_kept_and_ours_are_whole(home: Path) -> None:
    lines = [b'{"n": %d}\n' % number for number in range(500)]
    target = kept_lines(home, *lines)
    subprocess.run([sys.executable, "-c", KILLED, str(home), "part appended"], check=False)
    with open(target, "ab") as file:
        file.write(b"from another host\n")
    merge_back(home)
    text = target.read_bytes()
    whole = [line + b"\n" for line in text.split(b"\n") if line.startswith(b'{"n"') and line.endswith(b"}")]
    assert sorted(whole, key=len) == sorted(lines, key=len) and b"from another host\n" in text


def test_many_that_merge_at_once_merge_once(home: Path) -> None:
    lines = [b'{"n": %d}\n' % number for number in range(50_000)]
    target = kept_lines(home, *lines)
    told: list[Recovered] = []
    threads = [threading.Thread(target=lambda: told.extend(merge_back(home))) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert target.read_bytes() == b"before\n" + b"".join(lines)
    assert {(one.bytes, one.merged) for one in told} == {(sum(map(len, lines)), True)}


def test_a_folder_that_was_moved_gets_its_lines(home: Path, tmp_path: Path) -> None:
    kept_lines(home, b"one\n")
    assert fallback.keep(home / "attempt-1" / "new.jsonl", b"two\n", FULL, 0o644)
    home.rename(tmp_path / "moved")
    assert [(one.file, one.merged, one.why) for one in merge_back(home)] == [
        ("a.jsonl", False, "its folder is gone, or is not the one it was"),
        ("attempt-1/new.jsonl", False, "its folder is gone, or is not the one it was"),
    ]
    assert not home.exists()
    assert [(one.file, one.merged) for one in merge_back(tmp_path / "moved")] == [("a.jsonl", True), ("attempt-1/new.jsonl", True)]
    assert (tmp_path / "moved" / "a.jsonl").read_bytes() == b"before\none\n"
    assert (tmp_path / "moved" / "attempt-1" / "new.jsonl").read_bytes() == b"two\n"


@pytest.mark.parametrize("content", [b"another file that happens to have this name\n", b"", None])
def test_another_file_under_the_same_name_is_left_alone(home: Path, content: bytes | None) -> None:
    target = kept_lines(home, b"one\n")
    shutil.rmtree(home)
    home.mkdir()
    if content is not None:
        target.write_bytes(content)
    assert [one.merged for one in merge_back(home)] == [False]
    assert target.exists() == (content is not None) and (content is None or target.read_bytes() == content)
    forget_lines(target)
    assert merge_back(home) == []


def test_other_folders_are_not_touched(home: Path, tmp_path: Path) -> None:
    kept_lines(home, b"one\n")
    (tmp_path / "out2").mkdir()
    assert merge_back(tmp_path / "out2") == [] and merge_back(home / "deeper") == []
    assert [one.file for one in merge_back(tmp_path)] == ["out/a.jsonl"]


def test_through_a_link_to_the_folder_it_is_the_same_file(home: Path, tmp_path: Path, disk: Disk) -> None:
    (tmp_path / "link").symlink_to(home)
    disk.fail()
    assert opened(tmp_path / "link" / "a.jsonl").append(b"one\n")
    disk.mend()
    assert [one.file for one in merge_back(tmp_path / "link")] == ["a.jsonl"]


def test_rubbish_in_the_fallback_folder_harms_nobody(home: Path, fallback_folder: Path) -> None:
    kept_lines(home, b"one\n")
    for name, content in (("x.append", b""), ("y.append", b"\xff\x00"), ("z.whole", b"[1]\n"), ("n.merged", b"{"), ("m.merged", b"[]")):
        (fallback_folder / name).write_bytes(content)
    (fallback_folder / "d.append").mkdir()
    assert [one.merged for one in merge_back(home)] == [True]


def test_nothing_is_left_of_an_entry_that_could_not_be_begun(home: Path, fallback_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(handle: int, data: bytes) -> int:
        raise OSError(errno.ENOSPC, FULL)

    monkeypatch.setattr(os, "write", full)
    file = opened(home / "a.jsonl")
    assert not file.append(b"one\n") and file.lost_bytes == 4
    assert list(fallback_folder.iterdir()) == [] and kept_elsewhere(home / "a.jsonl") is None


def test_a_header_cut_short_by_a_kill_is_begun_anew(home: Path) -> None:
    target = kept_lines(home, b"one\n")
    entry = kept_elsewhere(target)
    assert entry
    entry.write_bytes(entry.read_bytes()[:20])
    assert fallback.keep(target, b"two\n", FULL, 0o644)
    merge_back(home)
    assert target.read_bytes() == b"before\ntwo\n"


def test_a_whole_file_takes_its_place(home: Path) -> None:
    path = home / "attempt-1" / "outcome.json"
    assert put_aside(path, b"old", OSError(errno.EIO, "bad")) and put_aside(path, b"new", OSError(errno.EIO, "bad"), 0o600)
    assert [(one.file, one.bytes, one.error, one.merged) for one in merge_back(home)] == [("attempt-1/outcome.json", 3, "bad", True)]
    assert path.read_bytes() == b"new" and stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [child.name for child in path.parent.iterdir()] == ["outcome.json"] and merge_back(home) == []


def test_a_whole_file_that_is_out_of_date_is_dropped(home: Path) -> None:
    path = home / "outcome.json"
    path.write_bytes(b"old")
    assert put_aside(path, b"kept", OSError(errno.EIO, "bad"))
    path.unlink()
    path.write_bytes(b"newest")
    assert merge_back(home) == [] and path.read_bytes() == b"newest"


def test_a_whole_file_replaces_the_one_that_stood_there(home: Path) -> None:
    path = home / "progress.json"
    path.write_bytes(b"old")
    assert put_aside(path, b"kept", OSError(errno.EIO, "bad"))
    assert [one.merged for one in merge_back(home)] == [True] and path.read_bytes() == b"kept"
