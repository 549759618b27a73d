"""Nothing that is appended is lost, torn, doubled or out of order, whatever the disk does meanwhile."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from seatrial.disk import fallback
from seatrial.disk.append import AppendFile, kept_elsewhere
from seatrial.disk.fallback import fallback_root
from seatrial.disk.merging import Recovered, merge_back
from tests.unit.disk.failing_disk import FULL, Disk, kept_lines, opened


def test_on_a_good_disk_lines_go_where_they_belong(home: Path, fallback_folder: Path) -> None:
    file = AppendFile(home / "deep" / "a.jsonl", 0o600)
    assert file.offset_bytes == 0 and not (home / "deep").exists(), "opened at the first write"
    assert file.append(b"one\n") and file.append(b"two\n", to_disk=True) and file.append(b"")
    assert file.close() and file.close()
    assert (home / "deep" / "a.jsonl").read_bytes() == b"one\ntwo\n"
    assert stat.S_IMODE((home / "deep" / "a.jsonl").stat().st_mode) == 0o600
    assert (file.offset_bytes, file.lost_bytes, file.fallback_bytes, file.last_error) == (8, 0, 0, "")
    assert not fallback_folder.exists()


@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EIO, errno.EROFS, errno.ESTALE])
def test_trouble_that_passes_costs_nothing(home: Path, disk: Disk, error: int) -> None:
    waits = iter([lambda: None, disk.mend])
    file = AppendFile(disk.target, sleep=lambda _: next(waits)())
    disk.fail(error)
    assert file.append(b"one line\n")
    assert disk.target.read_bytes() == b"one line\n"
    assert (file.fallback_bytes, file.last_error) == (0, os.strerror(error))


def test_trouble_that_stays_sends_lines_elsewhere_until_they_are_merged(home: Path, disk: Disk) -> None:
    file = opened(disk.target)
    assert file.append(b"one\n")
    disk.fail()
    assert file.append(b"two two\n") and file.append(b"three\n")
    assert disk.target.read_bytes() == b"one\n", "no line is torn"
    assert (file.offset_bytes, file.fallback_bytes, file.lost_bytes) == (18, 14, 0)
    kept = kept_elsewhere(disk.target)
    assert kept and kept.read_bytes().split(b"\n", 1)[1] == b"two two\nthree\n" and stat.S_IMODE(kept.stat().st_mode) == 0o600
    [stays] = merge_back(home)
    assert (stays.file, stays.bytes, stays.error, stays.merged, stays.kept_at, stays.why) == ("a.jsonl", 14, FULL, False, str(kept), FULL)
    assert disk.target.read_bytes() == b"one\n"
    disk.mend()
    assert file.append(b"four\n") and disk.target.read_bytes() == b"one\n", "order before speed"
    [merged] = merge_back(home)
    assert merged == Recovered(file="a.jsonl", bytes=19, error=FULL, t=stays.t, merged=True)
    assert file.append(b"five\n")
    assert disk.target.read_bytes() == b"one\ntwo two\nthree\nfour\nfive\n"
    assert merge_back(home) == [] and kept_elsewhere(disk.target) is None


def test_the_writer_brings_its_lines_back_by_itself_and_that_is_still_told(home: Path, disk: Disk, fallback_folder: Path) -> None:
    now_m = [0.0]
    file = AppendFile(disk.target, sleep=lambda _: None, monotonic=lambda: now_m[0])
    disk.fail()
    assert file.append(b"one\n")
    disk.mend()
    assert file.append(b"two\n") and not disk.target.read_bytes(), "not at once"
    now_m[0] = 6.0
    assert file.append(b"three\n") and disk.target.read_bytes() == b"one\ntwo\nthree\n"
    assert [(one.file, one.bytes, one.merged) for one in merge_back(home)] == [("a.jsonl", 8, True)]
    assert merge_back(home) == [] and list(fallback_folder.iterdir()) == []


def test_what_was_merged_is_told_again_when_the_telling_failed(home: Path) -> None:
    kept_lines(home, b"one\n")

    def fail(_: list[Recovered]) -> None:
        raise OSError(errno.EIO, "the note could not be written")

    with pytest.raises(OSError, match="note"):
        merge_back(home, fail)
    assert [one.bytes for one in merge_back(home)] == [4]


def test_a_new_writer_of_the_same_file_keeps_the_order(home: Path, disk: Disk) -> None:
    disk.fail()
    assert opened(disk.target).append(b"one\n")
    other = opened(disk.target)
    assert other.offset_bytes == 4 and other.append(b"two\n"), "one look is worth a try, which fails"
    disk.mend()
    assert opened(disk.target).append(b"three\n")
    assert disk.target.read_bytes() == b"one\ntwo\nthree\n"


def test_half_a_line_that_cannot_be_taken_back_is_completed(home: Path, disk: Disk, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.ftruncate

    def refuse(handle: int, size: int) -> None:
        if os.readlink(f"/proc/self/fd/{handle}") == str(disk.target):  # noqa: PTH115
            raise OSError(errno.EIO, "no")
        real(handle, size)

    monkeypatch.setattr(os, "ftruncate", refuse)
    file = opened(disk.target)
    disk.fail()
    assert file.append(b"12345678\n") and disk.target.read_bytes() == b"1234"
    disk.mend()
    merge_back(home)
    assert disk.target.read_bytes() == b"12345678\n" and file.offset_bytes == 9


def test_without_a_place_elsewhere_bytes_are_counted_and_the_rest_is_whole(home: Path, disk: Disk, fallback_folder: Path) -> None:
    fallback_folder.write_text("a file where the folder should be")
    waits: list[float] = []
    file = AppendFile(disk.target, sleep=waits.append)
    disk.fail()
    assert not file.append(b"one\n") and not file.append(b"two\n")
    assert len(waits) == 2, "a training is not held up again and again"
    assert (file.lost_bytes, file.offset_bytes) == (8, 0)
    disk.mend()
    assert file.append(b"three\n") and disk.target.read_bytes() == b"three\n"


@pytest.mark.parametrize("kind", ["link", "open to all", "another's"])
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
    file = opened(disk.target)
    assert not file.append(b"secret\n") and file.lost_bytes == 7
    assert list(fallback_folder.iterdir()) == [] and merge_back(home) == []


def test_folders_by_default_are_private_and_memory_comes_last(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv(fallback.VARIABLE)
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    assert fallback_root() == tmp_path / f"seatrial-fallback-{os.getuid()}"
    assert [root.parent for root in fallback.roots()] == [tmp_path, Path("/dev/shm")]
    assert stat.S_IMODE(fallback.usable(fallback_root()).stat().st_mode) == 0o700


def test_when_the_first_folder_fills_up_the_second_goes_on_and_order_is_kept(home: Path, tmp_path: Path) -> None:
    target, roots = home / "a.jsonl", [tmp_path / "first", tmp_path / "second"]
    assert fallback.keep(target, b"one\n", FULL, 0o644, roots)
    # A folder in the entry's place, while the second is begun: it cannot be written.
    first = fallback.entry_path(roots[0], target, fallback.APPEND)
    first.rename(tmp_path / "kept")
    first.mkdir()
    assert fallback.keep(target, b"two\n", FULL, 0o644, roots)
    first.rmdir()
    (tmp_path / "kept").rename(first)
    assert fallback.keep(target, b"three\n", FULL, 0o644, roots)
    assert [one.merged for one in merge_back(home, among=roots)] == [True, True]
    assert target.read_bytes() == b"one\ntwo\nthree\n"


def test_memory_is_not_filled_without_end(home: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(fallback, "MEMORY_DISK", tmp_path)
    monkeypatch.setattr(fallback, "MOST_BYTES_IN_MEMORY", 1000)
    assert fallback.keep(home / "a", b"x" * 500, FULL, 0o644, [tmp_path / "m"])
    assert not fallback.keep(home / "a", b"x" * 600, FULL, 0o644, [tmp_path / "m"])


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
def test_whatever_happens_the_file_holds_every_line_once_and_in_order(acts: list[str], tmp_path_factory: pytest.TempPathFactory) -> None:
    home = tmp_path_factory.mktemp("out")
    roots, disk, now_m, lines = [home.parent / f"{home.name}-fallback"], Disk(home / "a.jsonl"), [0.0], []

    def writer() -> AppendFile:
        return AppendFile(disk.target, sleep=lambda _: None, monotonic=lambda: now_m[0], fallback_root=roots[0])

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "write", disk.write)
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
                merge_back(home, among=roots)
            elif act == "wait":
                now_m[0] += 10.0
            else:
                file.close()
                file = writer()
            assert file.offset_bytes == sum(map(len, lines))
        file.close()
    assert (disk.target.read_bytes() if lines else b"") == b"".join(lines)
