"""Large and odd files, read within bounds."""

from __future__ import annotations

import io
import os
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from seatrial.collect.file_parts import blocks, pieces


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


@pytest.mark.timeout(60)
def test_a_pipe_is_an_error_and_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "log")
    with pytest.raises(OSError, match="no ordinary file"):
        list(pieces(tmp_path / "log", 100))


def test_blocks_end_with_a_line_and_hold_all_of_it() -> None:
    text = b"".join(b"line %d\n" % number for number in range(20)) + b"torn"
    found = list(blocks(io.BytesIO(text), len(text), 10, 100))
    assert b"".join(found) == text and all(block.endswith(b"\n") for block in found[:-1])
    assert list(blocks(io.BytesIO(b""), 0, 10, 100)) == []


def test_blocks_begin_where_the_file_stands_and_go_no_further_than_a_line_beyond_their_end() -> None:
    source = io.BytesIO(b"one\ntwo\nthree\nfour\n")
    source.seek(4)
    assert list(blocks(source, 10, 100, 100)) == [b"two\nthree\n"]


def test_a_line_without_end_does_not_make_a_block_endless() -> None:
    found = list(blocks(io.BytesIO(b"x" * 100), 100, 10, 5))
    assert {len(block) for block in found[:-1]} == {15} and b"".join(found) == b"x" * 100
