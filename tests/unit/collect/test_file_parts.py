"""Large and odd files, read within bounds."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from seatrial.collect.arrivals import read_arrivals
from seatrial.collect.file_parts import pieces
from seatrial.collect.growing import longest_growing


def test_a_small_file_is_read_whole(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"one\ntwo\nthree")
    assert [(piece.start, piece.text, piece.part) for piece in pieces(path, 100)] == [(0, b"one\n", 0), (4, b"two\n", 0), (8, b"three", 0)]


def test_of_a_large_file_only_whole_lines_of_both_ends_are_read(tmp_path: Path) -> None:
    path = tmp_path / "log"
    lines = [b"line %03d\n" % number for number in range(100)]
    path.write_bytes(b"".join(lines))
    found = list(pieces(path, 100))
    assert [piece.text for piece in found if piece.part == 0] == lines[:5]
    assert [piece.text for piece in found if piece.part == 1] == lines[-5:]
    data = path.read_bytes()
    assert all(data[piece.start :].startswith(piece.text) for piece in found)


def test_a_line_without_end_comes_in_pieces(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"x" * 25 + b"\nend\n")
    found = [(piece.text, piece.begins) for piece in pieces(path, 1000, longest=10)]
    assert found == [(b"x" * 10, True), (b"x" * 10, False), (b"x" * 5 + b"\n", False), (b"end\n", True)]


@settings(max_examples=60, deadline=None)
@given(data=st.binary(max_size=300), most=st.integers(2, 400), longest=st.integers(1, 50))
def test_pieces_are_what_stands_in_the_file(tmp_path_factory: pytest.TempPathFactory, data: bytes, most: int, longest: int) -> None:
    path = tmp_path_factory.getbasetemp() / "pieces"
    path.write_bytes(data)
    found = list(pieces(path, most, longest))
    assert all(data[piece.start : piece.start + len(piece.text)] == piece.text for piece in found)
    if len(data) <= most:
        assert b"".join(piece.text for piece in found) == data


@pytest.mark.timeout(20)
def test_a_pipe_is_an_error_and_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "log")
    with pytest.raises(OSError, match="no ordinary file"):
        list(pieces(tmp_path / "log", 100))


@settings(max_examples=100, deadline=None)
@given(st.lists(st.integers(0, 20), max_size=12))
def test_the_longest_growing_part_never_falls_and_none_is_longer(values: list[int]) -> None:
    places = longest_growing(values)
    kept = [values[place] for place in places]
    assert places == sorted(places) and kept == sorted(kept)
    lengths: list[int] = []
    for at, value in enumerate(values):
        lengths.append(1 + max((lengths[before] for before in range(at) if values[before] <= value), default=0))
    assert len(kept) == max(lengths, default=0)


def write_rows(path: Path, rows: list[tuple[object, object, object]]) -> Path:
    path.write_text("offset_bytes,t,m\n" + "".join(f"{end},{t},{m}\n" for end, t, m in rows))
    return path


def test_rows_that_contradict_the_others_are_left_out(tmp_path: Path) -> None:
    good = [(100 * at, 1000.0 + at, 50.0 + at) for at in range(1, 10)]
    bad = [("x", 1, 2), (450, "nan", 55.0), (-5, 1.0, 1.0), (350, 1003.0, 9e9), (10**18, 1004.0, 1.0), (400, 1004.0, 54.0)]
    found = read_arrivals(write_rows(tmp_path / "arrivals.csv", [*good[:4], *bad, *good[4:]]))
    assert [row.end_bytes for row in found.rows] == [end for end, _, _ in good]
    # What lies before 400 and came at 9e9, as a row says, may have come with it.
    assert [row.m for row in found.rows if row.m == row.m] == [m for end, _, m in good if end != 400]
    assert found.passed_over == len(bad)


def test_bytes_of_a_chunk_whose_row_is_lost_have_no_time(tmp_path: Path) -> None:
    found = read_arrivals(write_rows(tmp_path / "arrivals.csv", [(100, 1001.0, 51.0), ("2\x8000", 1002.0, 52.0), (300, 1003.0, 53.0)]))
    assert [(row.end_bytes, row.m == row.m) for row in found.rows] == [(100, True), (300, False)]


def test_rows_in_any_order_are_put_in_order(tmp_path: Path) -> None:
    good = [(100 * at, 1000.0 + at, 50.0 + at) for at in range(1, 10)]
    found = read_arrivals(write_rows(tmp_path / "arrivals.csv", good[::-1]))
    assert [row.end_bytes for row in found.rows] == [100 * at for at in range(1, 10)] and found.passed_over == 0


def test_between_the_ends_of_a_large_file_no_time_is_known(tmp_path: Path) -> None:
    rows = [(100 * at, 1000.0 + at, 50.0 + at) for at in range(1, 100)]
    found = read_arrivals(write_rows(tmp_path / "arrivals.csv", rows), most_bytes=200)
    times = {row.end_bytes: row.m for row in found.rows}
    assert times[100] == 51.0 and times[9900] == 149.0 and len(times) < 20
    first_of_tail = next(row for row in found.rows if row.end_bytes > 5000)
    assert first_of_tail.m != first_of_tail.m, "bytes of the middle must not get the time of the first chunk after it"
