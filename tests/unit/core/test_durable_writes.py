"""Nothing that is written is lost, torn, doubled or out of order, whatever the disk does meanwhile."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import shutil
import stat
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from seatrial.core import fallback
from seatrial.core.durable_writes import AppendFile, append_line_durably, write_json_durably, write_text_durably
from seatrial.core.fallback import (
    FALLBACK_DIR,
    Recovered,
    discard_spilled_lines,
    fallback_entry,
    fallback_folders,
    find_identity,
    identify_campaign,
    merge_fallback,
    merge_file,
    spill_file,
)
from seatrial.core.files import PRIVATE, read_json

pytestmark = pytest.mark.usefixtures("fallback_folder")
FULL = "No space left on device"
REAL_WRITE = os.write


class Disk:
    """Makes writes to one file fail, after half of the first one went in; other files are as they are."""

    def __init__(self, target: Path) -> None:
        self.target, self.error, self.takes_half = target, 0, False

    def write(self, handle: int, data: bytes) -> int:
        if not self.error or os.readlink(f"/proc/self/fd/{handle}") != str(self.target):  # noqa: PTH115
            return REAL_WRITE(handle, data)
        if self.takes_half and len(data) > 1:
            self.takes_half = False
            return REAL_WRITE(handle, bytes(data)[: len(data) // 2])
        raise OSError(self.error, os.strerror(self.error))

    def fail(self, error: int = errno.ENOSPC, *, takes_half: bool = True) -> None:
        self.error, self.takes_half = error, takes_half

    def mend(self) -> None:
        self.error = 0


def open_file(path: Path, now_m: float = 0.0) -> AppendFile:
    return AppendFile(path, sleep=lambda _: None, monotonic=lambda: now_m)


def kept_lines(home: Path, *lines: bytes, before: bytes = b"before\n") -> Path:
    """A file with lines in the fallback folder, as left by a writer that has gone."""
    target = home / "a.jsonl"
    target.write_bytes(before)
    assert fallback.spill_bytes(target, b"".join(lines), FULL, 0o644)
    return target


@pytest.fixture
def home(tmp_path: Path) -> Path:
    (tmp_path / "out").mkdir()
    return tmp_path / "out"


@pytest.fixture
def disk(home: Path, monkeypatch: pytest.MonkeyPatch) -> Disk:
    one = Disk(home / "a.jsonl")
    monkeypatch.setattr(os, "write", one.write)
    return one


def test_on_a_good_disk_lines_go_to_their_file(home: Path, fallback_folder: Path) -> None:
    path = home / "deep" / "a.jsonl"
    file = AppendFile(path)
    assert file.offset_bytes == 0 and not path.parent.exists(), "opened at the first write"
    assert file.append(b"one\n") and file.append(b"two\n", fsync=True) and file.append(b"")
    assert file.close() and file.close()
    assert path.read_bytes() == b"one\ntwo\n" and not fallback_folder.exists()
    assert (file.offset_bytes, file.lost_bytes, file.fallback_bytes, file.last_error) == (8, 0, 0, "")


@pytest.mark.parametrize("error", [errno.ENOSPC, errno.ESTALE])
def test_an_error_that_passes_costs_nothing(disk: Disk, error: int) -> None:
    waits = iter([lambda: None, disk.mend])
    file = AppendFile(disk.target, sleep=lambda _: next(waits)())
    disk.fail(error)
    assert file.append(b"one line\n")
    assert disk.target.read_bytes() == b"one line\n"
    assert (file.fallback_bytes, file.last_error) == (0, os.strerror(error))


def test_a_sync_that_fails_doubles_nothing(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    errors = [errno.ENOSPC]

    def fsync(_: int) -> None:
        if errors:
            raise OSError(errors.pop(), "for a moment")

    monkeypatch.setattr(os, "fsync", fsync)
    file = open_file(home / "a.jsonl")
    assert file.append(b"one line\n", fsync=True) and (home / "a.jsonl").read_bytes() == b"one line\n"


def test_on_a_disk_that_stays_full_lines_are_kept_until_they_are_merged(home: Path, disk: Disk) -> None:
    file = open_file(disk.target)
    assert file.append(b"one\n")
    disk.fail()
    assert file.append(b"two two\n") and file.append(b"three\n")
    assert disk.target.read_bytes() == b"one\n", "no line is torn"
    assert (file.offset_bytes, file.fallback_bytes, file.lost_bytes) == (18, 14, 0)
    kept = fallback_entry(disk.target)
    assert kept and kept.read_bytes().split(b"\n", 1)[1] == b"two two\nthree\n" and stat.S_IMODE(kept.stat().st_mode) == 0o600
    [stays] = merge_fallback(home)
    assert (stays.file, stays.bytes, stays.error, stays.merged, stays.kept_at, stays.why) == ("a.jsonl", 14, FULL, False, str(kept), FULL)
    assert disk.target.read_bytes() == b"one\n"
    disk.mend()
    assert file.append(b"four\n") and disk.target.read_bytes() == b"one\n", "order before speed"
    [merged] = merge_fallback(home)
    assert merged == Recovered(file="a.jsonl", bytes=19, error=FULL, t=stays.t, merged=True)
    assert file.append(b"five\n")
    assert disk.target.read_bytes() == b"one\ntwo two\nthree\nfour\nfive\n"
    assert merge_fallback(home) == [] and fallback_entry(disk.target) is None


def test_the_writer_merges_its_lines_itself_and_that_is_still_reported(home: Path, disk: Disk, fallback_folder: Path) -> None:
    now_m = [0.0]
    file = AppendFile(disk.target, sleep=lambda _: None, monotonic=lambda: now_m[0])
    disk.fail()
    assert file.append(b"one\n")
    disk.mend()
    assert file.append(b"two\n") and not disk.target.read_bytes(), "not at once"
    now_m[0] = 6.0
    assert file.append(b"three\n") and disk.target.read_bytes() == b"one\ntwo\nthree\n"
    assert [(one.file, one.bytes, one.merged) for one in merge_fallback(home)] == [("a.jsonl", 8, True)]
    assert merge_fallback(home) == [] and list(fallback_folder.iterdir()) == []


def test_what_was_merged_is_reported_again_when_the_report_failed(home: Path) -> None:
    target = kept_lines(home, b"one\n")

    def fail(_: list[Recovered]) -> None:
        raise OSError(errno.EIO, "the report could not be written")

    with pytest.raises(OSError, match="report"):
        merge_fallback(home, fail)
    reported: list[list[Recovered]] = []
    (again,) = merge_fallback(home, reported.append)
    assert reported == [[again]] and (again.file, again.bytes, again.error, again.merged) == ("a.jsonl", 4, FULL, True)
    assert target.read_bytes() == b"before\none\n" and merge_fallback(home, reported.append) == [] and len(reported) == 1


def test_half_a_line_that_cannot_be_truncated_is_completed(home: Path, disk: Disk, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.ftruncate

    def refuse(handle: int, size: int) -> None:
        if os.readlink(f"/proc/self/fd/{handle}") == str(disk.target):  # noqa: PTH115
            raise OSError(errno.EIO, "no")
        real(handle, size)

    monkeypatch.setattr(os, "ftruncate", refuse)
    file = open_file(disk.target)
    disk.fail()
    assert file.append(b"12345678\n") and disk.target.read_bytes() == b"1234"
    disk.mend()
    merge_fallback(home)
    assert disk.target.read_bytes() == b"12345678\n" and file.offset_bytes == 9


def test_without_a_fallback_folder_lost_bytes_are_counted_and_later_lines_are_whole(disk: Disk, fallback_folder: Path) -> None:
    fallback_folder.write_text("a file where the folder should be")
    waits: list[float] = []
    file = AppendFile(disk.target, sleep=waits.append)
    disk.fail()
    assert not file.append(b"one\n") and not file.append(b"two\n")
    assert len(waits) == 2, "a training is not held up again and again"
    assert (file.lost_bytes, file.offset_bytes) == (8, 0)
    disk.mend()
    assert file.append(b"three\n") and disk.target.read_bytes() == b"three\n"


@pytest.mark.parametrize("kind", ["link", "open to all", "another user's"])
def test_a_fallback_folder_that_is_not_ours_alone_is_refused(home: Path, disk: Disk, fallback_folder: Path, kind: str) -> None:
    if kind == "link":
        (home / "theirs").mkdir(mode=0o700)
        fallback_folder.symlink_to(home / "theirs")
    elif kind == "open to all":
        fallback_folder.mkdir()
        fallback_folder.chmod(0o777)
    else:
        if os.geteuid() != 0:
            pytest.skip("giving a folder away needs root")
        fallback_folder.mkdir(mode=0o700)
        os.chown(fallback_folder, 12345, 12345)
    disk.fail()
    file = open_file(disk.target)
    assert not file.append(b"secret\n") and file.lost_bytes == 7
    assert list(fallback_folder.iterdir()) == [] and merge_fallback(home) == []


def test_default_folders_are_private_and_memory_comes_last(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, disk: Disk) -> None:
    monkeypatch.delenv(FALLBACK_DIR)
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    name = f"seatrial-fallback-{os.getuid()}"
    assert fallback_folders() == [tmp_path / name, Path("/dev/shm") / name]
    disk.fail()
    assert open_file(disk.target).append(b"one\n")
    assert stat.S_IMODE((tmp_path / name).stat().st_mode) == 0o700


def test_when_the_first_folder_fills_up_the_second_is_used_and_order_is_kept(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target, folders = home / "a.jsonl", [tmp_path / "first", tmp_path / "second"]
    monkeypatch.setattr(fallback, "fallback_folders", lambda: folders)
    assert fallback.spill_bytes(target, b"one\n", FULL, 0o644)
    # A folder in the entry's place, while the second is begun: it cannot be written.
    first = fallback.entry_path(folders[0], target, fallback.APPEND)
    first.rename(tmp_path / "kept")
    first.mkdir()
    assert fallback.spill_bytes(target, b"two\n", FULL, 0o644)
    first.rmdir()
    (tmp_path / "kept").rename(first)
    assert fallback.spill_bytes(target, b"three\n", FULL, 0o644)
    assert [one.merged for one in merge_fallback(home)] == [True, True]
    assert target.read_bytes() == b"one\ntwo\nthree\n"


def test_memory_is_not_filled_without_bound(home: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(fallback, "MEMORY_DISK", tmp_path)
    monkeypatch.setattr(fallback, "MAX_BYTES_IN_MEMORY", 1000)
    monkeypatch.setenv(FALLBACK_DIR, str(tmp_path / "m"))
    assert fallback.spill_bytes(home / "a", b"x" * 500, FULL, 0o644)
    assert not fallback.spill_bytes(home / "a", b"x" * 600, FULL, 0o644)


def test_a_forked_child_writes_nothing(home: Path) -> None:
    file = AppendFile(home / "a")
    assert file.append(b"parent\n")
    child = os.fork()
    if child == 0:
        os._exit(int(file.append(b"child\n")) + 2 * int(not file.close()))
    assert os.waitpid(child, 0)[1] == 0
    assert file.append(b"parent\n") and (home / "a").read_bytes() == b"parent\nparent\n"


ACTS = st.lists(st.sampled_from(["write", "fail", "mend", "merge", "wait", "new writer"]), max_size=40)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(acts=ACTS)
def test_in_any_sequence_the_file_holds_every_line_once_and_in_order(acts: list[str], tmp_path_factory: pytest.TempPathFactory) -> None:
    home = tmp_path_factory.mktemp("out")
    disk, now_m, lines = Disk(home / "a.jsonl"), [0.0], []

    def writer() -> AppendFile:
        return AppendFile(disk.target, sleep=lambda _: None, monotonic=lambda: now_m[0])

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "write", disk.write)
        patch.setenv(FALLBACK_DIR, f"{home}-fallback")
        file = writer()
        for act in [*acts, "mend", "merge"]:
            if act == "write":
                lines.append(b'{"line": %d}\n' % len(lines))
                assert file.append(lines[-1])
            elif act == "fail":
                disk.fail()
            elif act == "mend":
                disk.mend()
            elif act == "merge":
                merge_fallback(home)
            elif act == "wait":
                now_m[0] += 10.0
            else:
                file.close()
                file = writer()
            assert file.offset_bytes == sum(map(len, lines))
        file.close()
    assert (disk.target.read_bytes() if lines else b"") == b"".join(lines)


KILLED = """
import os, signal, sys
from pathlib import Path
from seatrial.core import fallback
fallback._CHUNK_BYTES = 1000

def killed_at(name, *, after):
    real = getattr(fallback, name)

    def act(*arguments):
        if after:
            real(*arguments)
        os.kill(os.getpid(), signal.SIGKILL)

    setattr(fallback, name, act)

step = sys.argv[2]
if step == "part appended":
    killed_at("_write_all", after=True)
else:
    killed_at({"start known": "_check_room", "appended": "_mark_merged", "marked": "_mark_merged"}[step], after=step == "marked")
fallback.merge_fallback(Path(sys.argv[1]))
"""


def kill_a_merge(home: Path, step: str) -> None:
    assert subprocess.run([sys.executable, "-c", KILLED, str(home), step], check=False).returncode == -9


@pytest.mark.parametrize("step", ["start known", "part appended", "appended", "marked"])
@pytest.mark.parametrize("others", [b"", b"from another host\n"])
@pytest.mark.parametrize("in_campaign", [False, True])
def test_when_a_merge_is_killed_nothing_is_lost_or_doubled(home: Path, step: str, others: bytes, in_campaign: bool) -> None:
    if in_campaign:
        identify_campaign(home, adopted=False)
    lines = [b'{"n": %d}\n' % number for number in range(500)]
    target = kept_lines(home, *lines)
    with open(target, "ab") as file:
        file.write(others)
    kill_a_merge(home, step)
    assert [one.merged for one in merge_fallback(home)] == [True]
    assert target.read_bytes() == b"before\n" + others + b"".join(lines)
    assert merge_fallback(home) == []


def test_lines_of_others_after_a_killed_merge_are_kept_and_ours_are_whole(home: Path) -> None:
    lines = [b'{"n": %d}\n' % number for number in range(500)]
    target = kept_lines(home, *lines)
    kill_a_merge(home, "part appended")
    with open(target, "ab") as file:
        file.write(b"from another host\n")
    merge_fallback(home)
    text = target.read_bytes()
    whole = [line + b"\n" for line in text.split(b"\n") if line.startswith(b'{"n"') and line.endswith(b"}")]
    assert sorted(whole, key=len) == sorted(lines, key=len) and b"from another host\n" in text


def test_many_merges_at_once_merge_once(home: Path) -> None:
    lines = [b'{"n": %d}\n' % number for number in range(50_000)]
    target = kept_lines(home, *lines)
    found: list[Recovered] = []
    threads = [threading.Thread(target=lambda: found.extend(merge_fallback(home))) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert target.read_bytes() == b"before\n" + b"".join(lines)
    assert {(one.bytes, one.merged) for one in found} == {(sum(map(len, lines)), True)}


def test_a_folder_that_was_moved_gets_its_lines(home: Path, tmp_path: Path) -> None:
    kept_lines(home, b"one\n")
    assert fallback.spill_bytes(home / "attempt-1" / "new.jsonl", b"two\n", FULL, 0o644)
    home.rename(tmp_path / "moved")
    stays = merge_fallback(home)
    assert [(one.file, one.merged) for one in stays] == [("a.jsonl", False), ("attempt-1/new.jsonl", False)]
    assert not home.exists()
    assert [(one.file, one.merged) for one in merge_fallback(tmp_path / "moved")] == [("a.jsonl", True), ("attempt-1/new.jsonl", True)]
    assert (tmp_path / "moved" / "a.jsonl").read_bytes() == b"before\none\n"
    assert (tmp_path / "moved" / "attempt-1" / "new.jsonl").read_bytes() == b"two\n"


@pytest.mark.parametrize("content", [b"another file that happens to have this name\n", b"", None])
def test_another_file_under_the_same_name_is_left_alone(home: Path, content: bytes | None) -> None:
    target = kept_lines(home, b"one\n")
    shutil.rmtree(home)
    home.mkdir()
    if content is not None:
        target.write_bytes(content)
    assert [one.merged for one in merge_fallback(home)] == [False]
    assert target.exists() == (content is not None) and (content is None or target.read_bytes() == content)
    discard_spilled_lines(target)
    assert merge_fallback(home) == []


def begin_campaign(home: Path, *, adopted: bool = False) -> None:
    shutil.rmtree(home, ignore_errors=True)
    home.mkdir()
    identify_campaign(home, adopted=adopted)


@pytest.mark.parametrize("file", ["run_manifest.tsv", "mb8_r1/attempt-1/events_rank0.jsonl"])
@pytest.mark.parametrize("held", [b"", b"header\n"])
def test_nothing_of_a_removed_campaign_gets_into_the_next_one_under_its_name(home: Path, file: str, held: bytes) -> None:
    """Reproduced: a full disk, rm -rf OUT, the same command. Neither inode nor content distinguishes the two."""
    begin_campaign(home)
    target = home / file
    if held:
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(held)
    assert fallback.spill_bytes(target, b"of the old one\n", FULL, PRIVATE) and fallback.spill_file(home / "plan.json", b"old", FULL)
    old = fallback_entry(target)
    begin_campaign(home)
    if held:
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(held)
    assert fallback_entry(target) is None, "observers would read it as the new run's own"
    assert fallback.spill_bytes(target, b"of the new one\n", FULL, PRIVATE)
    found = merge_fallback(home)
    assert [(one.file, one.merged) for one in found if not one.foreign] == [(file, True)]
    assert {one.file for one in found if one.foreign and not one.merged} == {file, "plan.json"}
    assert target.read_bytes() == held + b"of the new one\n" and not (home / "plan.json").exists()
    assert old is not None and old.read_bytes().endswith(b"of the old one\n")


def test_a_writer_whose_folder_was_removed_keeps_its_lines_for_the_old_campaign(home: Path, disk: Disk) -> None:
    begin_campaign(home)
    writer = open_file(disk.target)
    disk.fail()
    writer.append(b"0\n")
    shutil.rmtree(home)
    assert writer.append(b"1\n")
    begin_campaign(home)
    assert [(one.merged, one.foreign, one.bytes) for one in merge_fallback(home)] == [(False, True, 4)]


def test_the_identity_is_known_when_its_disk_answers_no_more(home: Path, disk: Disk, monkeypatch: pytest.MonkeyPatch) -> None:
    begin_campaign(home)
    writer = open_file(disk.target)
    writer.append(b"0\n")
    disk.fail(errno.EIO)

    def open_but_the_identity(path: Path, *how: Any, **more: Any) -> Any:
        if path.name == fallback.IDENTITY:
            raise OSError(errno.EIO, "no answer")
        return open_on_disk(path, *how, **more)

    open_on_disk = fallback.open_file
    with monkeypatch.context() as failing:
        failing.setattr(fallback, "open_file", open_but_the_identity)
        assert writer.append(b"1\n") and fallback.spill_file(home / "outcome.json", b"{}", "bad")
    disk.mend()
    assert [(one.file, one.merged) for one in merge_fallback(home)] == [("a.jsonl", True), ("outcome.json", True)]
    assert disk.target.read_bytes() == b"0\n1\n"


@pytest.mark.parametrize(("adopted", "same_folder", "merged"), [(True, True, True), (True, False, False), (False, True, False)])
def test_lines_that_an_earlier_version_kept_are_merged_only_into_the_very_folder(
    home: Path, adopted: bool, same_folder: bool, merged: bool
) -> None:
    target = home / "mb8_r1" / "a.jsonl"
    assert fallback.spill_bytes(target, b"one\n", FULL, PRIVATE)
    entry = fallback_entry(target)
    assert entry is not None
    first, rest = entry.read_bytes().split(b"\n", 1)
    header = json.loads(first)
    del header["campaign"]
    if not same_folder:
        header["folders"] = [inode and inode + 1 for inode in header["folders"][:2]] + header["folders"][2:]
    entry.write_bytes(json.dumps(header).encode() + b"\n" + rest)
    identify_campaign(home, adopted=adopted)
    [one] = merge_fallback(home)
    assert (one.merged, one.foreign, target.exists()) == (merged, not merged, merged)


def test_a_campaign_keeps_its_identity(home: Path) -> None:
    identify_campaign(home, adopted=True)
    first = find_identity(home / "mb8_r1" / "attempt-1" / "a")
    identify_campaign(home, adopted=False)
    assert first is not None and find_identity(home / "a") == first
    assert find_identity(home.parent / "a") is None


def test_other_folders_are_not_touched(home: Path, tmp_path: Path) -> None:
    kept_lines(home, b"one\n")
    (tmp_path / "out2").mkdir()
    assert merge_fallback(tmp_path / "out2") == [] and merge_fallback(home / "deeper") == []
    assert [one.file for one in merge_fallback(tmp_path)] == ["out/a.jsonl"]


def test_through_a_link_to_the_folder_it_is_the_same_file(home: Path, tmp_path: Path, disk: Disk) -> None:
    (tmp_path / "link").symlink_to(home)
    disk.fail()
    assert open_file(tmp_path / "link" / "a.jsonl").append(b"one\n")
    disk.mend()
    assert [one.file for one in merge_fallback(tmp_path / "link")] == ["a.jsonl"]


def test_damaged_entries_are_passed_over(home: Path, fallback_folder: Path) -> None:
    kept_lines(home, b"one\n")
    torn = b'{"target": "half a hea'
    for name, content in (("x.append", b""), ("y.append", torn), ("z.whole", b"[1]\n"), ("n.merged", b"{"), ("m.merged", b"[]")):
        (fallback_folder / name).write_bytes(content)
    (fallback_folder / "d.append").mkdir()
    assert [one.merged for one in merge_fallback(home)] == [True]


def test_nothing_is_left_of_an_entry_that_could_not_be_begun(home: Path, fallback_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(handle: int, data: bytes) -> int:
        raise OSError(errno.ENOSPC, FULL)

    monkeypatch.setattr(os, "write", full)
    file = open_file(home / "a.jsonl")
    assert not file.append(b"one\n") and file.lost_bytes == 4
    assert list(fallback_folder.iterdir()) == [] and fallback_entry(home / "a.jsonl") is None


def test_an_entry_that_is_merged_while_its_writer_waits_for_the_lock_is_begun_again(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = kept_lines(home, b"one\n")
    real_lock = fcntl.flock

    def lock_after_a_merge(handle: int, how: int) -> None:
        monkeypatch.setattr(fcntl, "flock", real_lock)
        assert merge_file(target)
        real_lock(handle, how)

    monkeypatch.setattr(fcntl, "flock", lock_after_a_merge)
    assert fallback.spill_bytes(target, b"two\n", FULL, 0o644)
    merge_fallback(home)
    assert target.read_bytes() == b"before\none\ntwo\n"


def test_a_header_cut_short_by_a_kill_is_written_again(home: Path) -> None:
    target = kept_lines(home, b"one\n")
    entry = fallback_entry(target)
    assert entry
    entry.write_bytes(entry.read_bytes()[:20])
    assert fallback.spill_bytes(target, b"two\n", FULL, 0o644)
    merge_fallback(home)
    assert target.read_bytes() == b"before\ntwo\n"


def test_a_target_that_cannot_be_written_keeps_its_lines_and_others_are_merged(home: Path) -> None:
    target, other = home / "deep" / "a.jsonl", home / "b.jsonl"
    assert fallback.spill_bytes(target, b"one\n", FULL, PRIVATE) and fallback.spill_bytes(other, b"other\n", FULL, PRIVATE)
    target.mkdir(parents=True)
    assert not merge_file(target)
    merged, stays = sorted(merge_fallback(home), key=lambda one: one.file)
    assert (merged.file, merged.merged, other.read_bytes()) == ("b.jsonl", True, b"other\n")
    assert not stays.merged and stays.host == os.uname().nodename and Path(stays.kept_at).exists() and stays.why
    target.rmdir()
    assert merge_file(target) and merge_file(target), "nothing is left to merge"
    assert target.read_bytes() == b"one\n" and target.stat().st_mode & 0o777 == PRIVATE


def test_a_whole_file_is_put_in_its_place(home: Path) -> None:
    path = home / "attempt-1" / "outcome.json"
    assert spill_file(path, b"old", "bad") and spill_file(path, b"new", "bad", 0o600)
    assert [(one.file, one.bytes, one.error, one.merged) for one in merge_fallback(home)] == [("attempt-1/outcome.json", 3, "bad", True)]
    assert path.read_bytes() == b"new" and stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [child.name for child in path.parent.iterdir()] == ["outcome.json"] and merge_fallback(home) == []


@pytest.mark.parametrize(("later", "holds"), [("nothing", b"kept"), ("replaced", b"newest"), ("overwritten", b"newest")])
def test_a_kept_file_replaces_an_older_one_and_no_newer_one(home: Path, later: str, holds: bytes) -> None:
    path = home / "outcome.json"
    path.write_bytes(b"old")
    assert spill_file(path, b"kept", "bad")
    if later == "replaced":
        path.unlink()
    if later != "nothing":
        path.write_bytes(b"newest")
    assert [one.merged for one in merge_fallback(home)] == [True] * (later == "nothing") and path.read_bytes() == holds


def test_a_line_for_a_full_disk_is_kept_and_merged(home: Path, full_disk: Callable[[Path], None]) -> None:
    full_disk(home / "lines")
    waits: list[float] = []
    assert append_line_durably(home / "lines", "one", waits.append) and append_line_durably(home / "lines", "two", waits.append)
    assert len(waits) == 2, "the second goes straight to where the first is"
    (home / "lines").unlink()
    assert append_line_durably(home / "lines", "three")
    assert (home / "lines").read_text() == "one\ntwo\nthree\n"
    assert [(one.file, one.error) for one in merge_fallback(home)] == [("lines", FULL)]


@pytest.mark.parametrize("written_again", [False, True])
def test_a_whole_file_is_kept_until_it_can_be_written(home: Path, written_again: bool) -> None:
    path = home / "run" / "outcome.json"
    # A file in the folder's place stands for a disk that does not let the folder be created.
    path.parent.write_text("")
    assert write_json_durably(path, {"outcome": "old"})
    path.parent.unlink()
    if written_again:
        assert write_text_durably(path, '{"outcome": "new"}')
    assert [(one.file, one.merged) for one in merge_fallback(home)] == ([] if written_again else [("run/outcome.json", True)])
    assert read_json(path) == {"outcome": "new" if written_again else "old"}


def test_what_can_be_written_nowhere_is_reported_as_lost(tmp_path: Path, fallback_folder: Path) -> None:
    fallback_folder.write_text("")
    (tmp_path / "file").write_text("")
    assert not write_text_durably(tmp_path / "file" / "a", "x")
    assert not append_line_durably(tmp_path / "file" / "b", "x")


def test_a_failing_rename_is_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    waits: list[float] = []
    real, errors = os.replace, [errno.EIO, errno.ENOSPC]

    def replace(source: Path, target: Path) -> None:
        if errors:
            raise OSError(errors.pop(), "for a moment")
        real(source, target)

    monkeypatch.setattr(os, "replace", replace)
    assert write_text_durably(tmp_path / "a", "x", sleep=waits.append)
    assert (tmp_path / "a").read_text() == "x" and len(waits) == 2 and sum(waits) < 0.5
    assert [child.name for child in tmp_path.iterdir()] == ["a"]
