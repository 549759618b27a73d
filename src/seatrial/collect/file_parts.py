"""Files that may be anything: read within bounds of time and memory.

In: a file that a run left, of any size and with anything in it. Out: its lines with the offset at which each begins; of a file beyond
a size only those of its head and its end, and how many bytes lie between them; or blocks of whole lines. What is no ordinary file is an
OSError at once.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, NamedTuple

from seatrial.files import open_file
from seatrial.units import MIB

LONGEST_LINE_BYTES = 64 << 10
"""Of lines that are JSON or a traceback's; what is longer is none of them."""


class Piece(NamedTuple):
    """One line, or as much of it as is taken at once."""

    start: int
    """Offset of its first byte."""
    text: bytes
    """With its line end, where it has one."""
    part: int
    """0 for the head of the file, 1 for its end, where what lies between was not read."""
    begins: bool
    """Whether a line begins with it."""


def size_of(path: Path) -> int:
    """Bytes of an ordinary file; an OSError for anything else."""
    with open_file(path) as source:
        return os.fstat(source.fileno()).st_size


def left_out_bytes(size: int, most_bytes: int) -> int:
    """How much of a file of that size is not read."""
    return max(0, size - most_bytes)


def pieces(path: Path, most_bytes: int, longest: int = MIB) -> Iterator[Piece]:
    """Every line of the parts that are read; a line that a border cuts is left out."""
    with open_file(path) as source:
        size = os.fstat(source.fileno()).st_size
        ranges = [(0, size)] if size <= most_bytes else [(0, most_bytes // 2), (size - most_bytes // 2, size)]
        for part, (start, end) in enumerate(ranges):
            yield from _pieces_of(source, part, start, end, longest, is_cut=end < size)


def blocks(source: BinaryIO, end: int, block_bytes: int, longest_line: int) -> Iterator[bytes]:
    """What lies between where the file stands and `end`, so much at once as is quick to look through; a line that a block would cut is
    read to its end, within reason."""
    while (left := end - source.tell()) > 0 and (block := source.read(min(block_bytes, left))):
        yield block if block.endswith(b"\n") else block + source.readline(longest_line)


def _pieces_of(source: BinaryIO, part: int, start: int, end: int, longest: int, *, is_cut: bool) -> Iterator[Piece]:
    at, begins, skipping = source.seek(start), start == 0, start > 0
    while at < end and (text := source.readline(min(longest, end - at) if is_cut else longest)):
        is_whole = text.endswith(b"\n")
        if not skipping and (is_whole or len(text) == longest or not is_cut):
            yield Piece(at, text, part, begins)
        at, begins, skipping = at + len(text), is_whole, skipping and not is_whole
