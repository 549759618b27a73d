"""Text files of another machine, whole and damaged."""

from __future__ import annotations

from pathlib import Path

import pytest

from seatrial.collect.original.text_lines import TextLines, read_lines


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "train.log"


def test_no_file_has_no_lines_and_no_problem(path: Path) -> None:
    assert read_lines(path) == TextLines()


def test_an_empty_file_ends_whole(path: Path) -> None:
    path.touch()
    assert read_lines(path) == TextLines()


def test_marks_and_carriage_returns_of_other_machines_are_no_text(path: Path) -> None:
    path.write_bytes(b"\xef\xbb\xbfone\r\ntwo \xff\r\n")
    assert read_lines(path).lines == ("one", "two \N{REPLACEMENT CHARACTER}")


def test_a_last_line_without_its_end_is_not_trusted(path: Path) -> None:
    path.write_text("loss 1.25\nloss 1.2")
    found = read_lines(path)
    assert found.lines == ("loss 1.25", "loss 1.2") and not found.ends_whole and found.whole_lines == ("loss 1.25",)
    path.write_text("loss 1.25\n")
    assert read_lines(path).whole_lines == ("loss 1.25",)


def test_of_a_large_file_the_head_and_the_end_are_read(path: Path) -> None:
    path.write_text("".join(f"line {number:03}\n" for number in range(100)))
    found = read_lines(path, most_bytes=90)
    assert found.lines[0] == "line 000" and found.lines[-1] == "line 099" and len(found.lines) < 15
    assert found.left_out_bytes == 900 - 90


def test_what_is_no_file_says_so(tmp_path: Path) -> None:
    found = read_lines(tmp_path)
    assert found.problem and found.lines == ()
