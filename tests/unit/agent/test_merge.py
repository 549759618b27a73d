from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seatrial.agent.merge import LONGEST_PENDING_BYTES, Lines, LogFile, MergedLog
from seatrial.log_lines import split_rank


def _fed(lines: Lines, *chunks: bytes) -> bytes:
    return b"".join(lines.feed(chunk) for chunk in chunks) + lines.finish()


@pytest.mark.parametrize(
    ("chunks", "merged"),
    [
        ((b"a\nb\n",), b"[rank3]: a\n[rank3]: b\n"),
        ((b"step ", b"1", b"\n"), b"[rank3]: step 1\n"),
        ((b"no end",), b"[rank3]: no end\n"),
        ((b"\n",), b"[rank3]: \n"),
        ((b"a\r\nb\r\n",), b"[rank3]: a\r\n[rank3]: b\r\n"),
        ((b"a\r", b"\nb\n"), b"[rank3]: a\r\n[rank3]: b\n"),
        ((b"\r 10%", b"\r 20%", b"\n"), b"\r[rank3]:  10%\r[rank3]:  20%\n"),
        ((b"",), b""),
    ],
)
def test_lines_are_marked_whole(chunks: tuple[bytes, ...], merged: bytes) -> None:
    assert _fed(Lines(3), *chunks) == merged


def test_launchers_own_lines_are_whole_and_unmarked() -> None:
    assert _fed(Lines(), b"ab", b"c\nd") == b"abc\nd\n"


def test_line_without_end_is_cut_so_that_memory_is_bounded() -> None:
    lines = Lines(0)
    out = b"".join(lines.feed(b"y" * 65536) for _ in range(40))
    assert all(len(line) <= 2 * LONGEST_PENDING_BYTES + 20 for line in out.split(b"\n"))
    assert out.replace(b"[rank0]: ", b"").replace(b"\n", b"") + lines.finish()[len(b"[rank0]: ") : -1] == b"y" * 65536 * 40


@given(st.lists(st.text(alphabet="ab \n", max_size=20)))
def test_any_cutting_gives_the_same_lines(chunks: list[str]) -> None:
    text = "".join(chunks)
    merged = _fed(Lines(12), *(chunk.encode() for chunk in chunks)).decode()
    ended = text if text.endswith("\n") or not text else text + "\n"
    assert [split_rank(line) for line in merged.splitlines()] == [(12, line) for line in ended.splitlines()]


class Clock:
    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


def _merged(tmp_path: Path, clock: Clock) -> MergedLog:
    return MergedLog(tmp_path / "launcher.log", tmp_path / "arrivals.csv", wall=lambda: 1000.0 + clock.now_s, monotonic=clock)


def _rows(tmp_path: Path) -> list[str]:
    return (tmp_path / "arrivals.csv").read_text().splitlines()


def test_each_arrival_has_its_time(tmp_path: Path) -> None:
    clock = Clock()
    log = _merged(tmp_path, clock)
    for text in (b"one\n", b"three\n"):
        log.append(text)
        clock.now_s += 1.0
    assert _rows(tmp_path) == ["offset_bytes,t,m", "4,1000.000000,0.000000", "10,1001.000000,1.000000"]


def test_burst_shares_rows_and_its_end_keeps_its_own_time(tmp_path: Path) -> None:
    clock = Clock()
    log = _merged(tmp_path, clock)
    for _ in range(10):
        log.append(b"x\n")
        clock.now_s += 0.0005
    clock.now_s = 9.0
    log.append(b"y\n")
    log.close()
    offsets = [int(row.split(",")[0]) for row in _rows(tmp_path)[1:]]
    times_s = [float(row.split(",")[2]) for row in _rows(tmp_path)[1:]]
    assert offsets[-2:] == [20, 22]
    assert times_s[-2:] == [0.0045, 9.0], "bytes before a pause are not stamped after it"
    assert len(offsets) <= 5


def test_nothing_arrived_leaves_no_row(tmp_path: Path) -> None:
    log = _merged(tmp_path, Clock())
    log.append(b"")
    log.close()
    assert _rows(tmp_path) == ["offset_bytes,t,m"]


def test_what_a_full_disk_refuses_is_kept_elsewhere_and_said_once(fallback_folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    log = LogFile(Path("/dev/full"))
    log.append(b"12345")
    log.append(b"678")
    log.close()
    assert (log.offset_bytes, log.lost_bytes) == (8, 0)
    said = "/dev/full cannot be written (No space left on device); the run goes on and its output is kept elsewhere until it can"
    assert capfd.readouterr().err.count(said) == 1
    assert b"".join(path.read_bytes() for path in fallback_folder.iterdir() if path.is_file()).endswith(b"12345678")


def test_what_no_disk_takes_is_counted_and_said_once(tmp_path: Path, fallback_folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    fallback_folder.touch()
    log = LogFile(tmp_path)
    log.append(b"12345")
    log.append(b"678")
    log.close()
    assert log.lost_bytes == 8
    assert capfd.readouterr().err.count("the run goes on and its output is dropped until there is room") == 1


def test_arrivals_tell_offsets_of_the_whole_log_while_a_part_lies_elsewhere(tmp_path: Path, fallback_folder: Path) -> None:
    (tmp_path / "launcher.log").symlink_to("/dev/full")
    clock = Clock()
    log = _merged(tmp_path, clock)
    for text in (b"one\n", b"three\n"):
        log.append(text)
        clock.now_s += 1.0
    log.close()
    assert [row.split(",")[0] for row in _rows(tmp_path)[1:]] == ["4", "10"]
    assert log.lost_bytes == 0


def test_log_is_there_from_the_start(tmp_path: Path) -> None:
    LogFile(tmp_path / "ranks" / "rank0.log")
    assert (tmp_path / "ranks" / "rank0.log").read_bytes() == b""
