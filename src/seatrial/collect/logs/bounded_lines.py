"""Lines and blocks of files of any size, read within bounds of memory; and an index of the lines with given keywords in a growing log.

In: a file. Out: all its lines, or those with a keyword: of a large file the ones in its head and its end. With a `LineIndex`, which a
`LineIndexer` builds while the file grows, only the indexed lines are read: what is found is the same, in milliseconds.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, NamedTuple

from seatrial.core.files import open_file
from seatrial.core.text import MIB

LONGEST_LINE_BYTES = 64 << 10
"""Longer than any JSON line or traceback line."""
MAX_GAP_BYTES = 1024
"""Lines closer than this are indexed as one range: searching the gap takes less time than another read."""
PRUNED_RANGES = 100_000
"""More than the parts of a log that are read can have; ranges in its middle are dropped when so many were added."""
FEW_SHAPES = 8
"""From so many lines per shape on, searching shapes for keywords takes less time than searching the text."""


class LinePiece(NamedTuple):
    """One line, or the first part of a very long one."""

    start: int
    """Offset of its first byte."""
    text: bytes
    """With its newline, if any."""
    part: int
    """0 for the head of the file; 1 for its end, if the middle was not read."""
    begins: bool
    """Whether a line begins with it."""


@dataclass(frozen=True, kw_only=True)
class LineIndex:
    """Ranges of a file that hold every line with one of `keywords`."""

    file: tuple[int, int]
    """Device and inode."""
    size_bytes: int
    keywords: frozenset[bytes]
    ranges: Sequence[tuple[int, int]]
    """In order; each from the beginning of a line to the end of one."""

    def serves(self, source: BinaryIO, keywords: Sequence[bytes]) -> bool:
        """Whether it is the index of this file in its present state, with all these keywords."""
        found = os.fstat(source.fileno())
        return (*self.file, self.size_bytes) == (found.st_dev, found.st_ino, found.st_size) and self.keywords.issuperset(keywords)

    def within(self, start: int, end: int) -> Iterator[tuple[int, int]]:
        """The parts of its ranges between two offsets."""
        return ((max(first, start), min(last, end)) for first, last in self.ranges if first < end and last > start)


def skipped_bytes(path: Path, max_bytes: int) -> int:
    """How much of the file `bounded_lines` leaves out; OSError for anything but a regular file."""
    with open_file(path) as source:
        return max(0, os.fstat(source.fileno()).st_size - max_bytes)


def bounded_lines(path: Path, max_bytes: int, longest: int = MIB) -> Iterator[LinePiece]:
    """Every line; of a file larger than `max_bytes`, the whole lines in its first and last `max_bytes / 2`."""
    with open_file(path) as source:
        size = os.fstat(source.fileno()).st_size
        ranges = [(0, size)] if size <= max_bytes else [(0, max_bytes // 2), (size - max_bytes // 2, size)]
        for part, (start, end) in enumerate(ranges):
            yield from _lines_between(source, part, start, end, longest, is_cut=end < size)


def lines_with(path: Path, max_bytes: int, keywords: Sequence[bytes], index: LineIndex | None = None) -> Iterator[LinePiece]:
    """The lines of `bounded_lines` that hold a keyword, several times as fast, and much faster with an index."""
    with open_file(path) as source:
        size = os.fstat(source.fileno()).st_size
        index = index if index is not None and index.serves(source, keywords) else None
        ranges = [(0, size)] if size <= max_bytes else [(0, max_bytes // 2), (size - max_bytes // 2, size)]
        for part, (start, end) in enumerate(ranges):
            begin = source.seek(start) + (len(source.readline()) if start else 0)
            for first, last in [(begin, end)] if index is None else index.within(begin, end):
                at, begins = source.seek(first), True
                for block in line_blocks(source, last, MIB):
                    # A line that continues in the part left out does not count.
                    whole = block if at + len(block) <= end or end == size else block[: block.rfind(b"\n", 0, end - at) + 1]
                    for begun, ended in keyword_lines(whole, keywords):
                        yield LinePiece(at + begun, whole[begun:ended], part, begins or begun > 0)
                    at, begins = at + len(block), block.endswith(b"\n")


def keyword_lines(block: bytes, keywords: Sequence[bytes]) -> list[tuple[int, int]]:
    """Where the lines with one of the keywords begin and end, in order."""
    found: set[tuple[int, int]] = set()
    for keyword in keywords:
        position = block.find(keyword)
        while position >= 0:
            end = block.find(b"\n", position) + 1 or len(block)
            found.add((block.rfind(b"\n", 0, position) + 1, end))
            position = block.find(keyword, end)
    return sorted(found)


def _lines_between(source: BinaryIO, part: int, start: int, end: int, longest: int, *, is_cut: bool) -> Iterator[LinePiece]:
    at, begins, skipping = source.seek(start), start == 0, start > 0
    while at < end and (text := source.readline(min(longest, end - at) if is_cut else longest)):
        is_whole = text.endswith(b"\n")
        if not skipping and (is_whole or len(text) == longest or not is_cut):
            yield LinePiece(at, text, part, begins)
        at, begins, skipping = at + len(text), is_whole, skipping and not is_whole


def line_blocks(source: BinaryIO, end: int, block_bytes: int) -> Iterator[bytes]:
    """Blocks from the current position to `end`, each extended to the end of its last line (up to LONGEST_LINE_BYTES)."""
    while (left := end - source.tell()) > 0 and (block := source.read(min(block_bytes, left))):
        yield block if block.endswith(b"\n") else block + source.readline(LONGEST_LINE_BYTES)


class LineIndexer:
    """Builds the index of a log of which only the first and the last `kept_bytes` will be read."""

    def __init__(self, keywords: Sequence[bytes], kept_bytes: int) -> None:
        self._keywords, self._kept_bytes = keywords, kept_bytes
        self._ranges: list[tuple[int, int]] = []
        self._most = PRUNED_RANGES
        self.is_usable = True

    def add(self, text: bytes, start: int, shapes: Sequence[bytes]) -> None:
        """The next whole lines, from this offset on, and their shapes; keywords have no digits, so a shape holds one or none."""
        different = set(shapes)
        if len(different) > len(shapes) // FEW_SHAPES:
            self._add(keyword_lines(text, self._keywords), start, len(text))
            return
        marked = {shape for shape in different if any(keyword in shape for keyword in self._keywords)}
        ends = itertools.accumulate(len(shape) + 1 for shape in shapes)
        found = [(end - len(shape) - 1, min(end, len(text))) for shape, end in zip(shapes, ends, strict=True) if shape in marked]
        self._add(found, start, len(text))

    def _add(self, found: Sequence[tuple[int, int]], start: int, num_bytes: int) -> None:
        for first, last in found:
            # A reader may cut such a line at the end of a block.
            self.is_usable = self.is_usable and last - first <= LONGEST_LINE_BYTES
            if self._ranges and start + first - self._ranges[-1][1] <= MAX_GAP_BYTES:
                self._ranges[-1] = (self._ranges[-1][0], start + last)
            else:
                self._ranges.append((start + first, start + last))
        if len(self._ranges) > self._most:
            self._prune(start + num_bytes)

    def _prune(self, size_bytes: int) -> None:
        """Drop the middle of the log, which will only grow."""
        least = size_bytes - self._kept_bytes
        self._ranges = [(first, last) for first, last in self._ranges if first < self._kept_bytes or last > least]
        self._most = len(self._ranges) + PRUNED_RANGES

    def index(self, file: tuple[int, int], size_bytes: int) -> LineIndex | None:
        """The index; None where it may give other lines than the whole log."""
        if not self.is_usable:
            return None
        return LineIndex(file=file, size_bytes=size_bytes, keywords=frozenset(self._keywords), ranges=tuple(self._ranges))
