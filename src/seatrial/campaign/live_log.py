"""The log of a run, searched while it grows, so that little is left to read at the end, however long the log is.

In: launcher.log of an attempt, a few blocks each turn. Out: the `Diagnosis` of the whole log, and a `LineIndex` of the lines by which the
run is measured. Blocks begin where those of one pass begin, so that it makes no difference when they are read. A log that cannot be
followed is read in one pass at the end: one that was truncated or replaced, one with a part in the fallback folder, and those of several
hosts, whose lines are in order only once all of them are there.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import BinaryIO

from seatrial.collect.logs.bounded_lines import LineIndex, LineIndexer
from seatrial.collect.logs.diagnosis import LogReader
from seatrial.collect.logs.launcher_log import BLOCK_BYTES, LARGEST_LOG_BYTES, LONGEST_TEXT_BYTES, all_lines
from seatrial.collect.logs.line_relevance import HEAD, shapes
from seatrial.collect.logs.script_header import HEADER_KEYWORDS
from seatrial.core.fallback import fallback_entry
from seatrial.core.files import open_file
from seatrial.core.log_header import HeaderBlanker
from seatrial.core.log_lines import KEYWORDS
from seatrial.core.paths import AttemptPaths
from seatrial.records.outcome import Diagnosis
from seatrial.records.signatures.harmless import HARMLESS_KEYWORDS
from seatrial.records.stored import host_folders, read_nodes

LONGEST_TURN_CPU_S = 0.06
"""Per turn, five turns a second: enough for ten megabytes a second of mostly similar lines."""
INDEXED_KEYWORDS = tuple(dict.fromkeys((*KEYWORDS, *HEADER_KEYWORDS, HEAD.encode(), *HARMLESS_KEYWORDS)))
FINGERPRINT_BYTES = 256
"""Bytes before the next block: if they have changed, it is another log."""
RUNNER_LINE = b"--world_info="
"""Part of the line in which deepspeed's runner names the ranks that it starts."""


class LiveLog:
    """Reads the log of one attempt as it grows."""

    def __init__(self, attempt: AttemptPaths, cpu_clock: Callable[[], float] = time.thread_time) -> None:
        self._attempt, self._log, self._cpu_clock = attempt, attempt.launcher_log, cpu_clock
        self._reader, self._header = LogReader(), HeaderBlanker()
        self._indexer = LineIndexer(INDEXED_KEYWORDS, LARGEST_LOG_BYTES // 2)
        self._file: tuple[int, int] | None = None
        self._offset, self._before, self._rest = 0, b"", b""
        self._is_alone: bool | None = None
        self._is_lost = self._is_whole = self._has_runner_line = False

    def read(self) -> None:
        """Whole blocks that were added since the last turn, as many as fit into LONGEST_TURN_CPU_S."""
        until_s = self._cpu_clock() + LONGEST_TURN_CPU_S
        self._follow(lambda size: size - self._offset >= BLOCK_BYTES and self._cpu_clock() < until_s)

    def diagnose(self, exit_code: int | None, requested_steps: int | None) -> Diagnosis:
        """The diagnosis of every line of every host's log, once the run is over."""
        self._finish()
        return self._reader.result(exit_code, requested_steps)

    def unfinished(self) -> tuple[int, int] | None:
        """Steps done and steps in all by the end of the log, once the run is over; None where the training is complete."""
        self._finish()
        return self._reader.unfinished()

    def may_name_ranks(self) -> bool:
        """Whether a line of deepspeed's runner may be in the log, once the run is over."""
        self._finish()
        return self._has_runner_line

    def line_index(self) -> LineIndex | None:
        """The index of launcher.log, once the run is over; None where it was not followed to its end."""
        return self._indexer.index(self._file, self._offset) if self._is_whole and self._file and not self._is_lost else None

    def _finish(self) -> None:
        if self._is_whole:
            return
        self._is_whole = True
        followed = self._offset > 0
        if not followed or fallback_entry(self._log) is not None or not self._follow(lambda size: self._offset < size):
            self._reader, self._has_runner_line, self._is_lost = LogReader(), True, True
            for file, line in all_lines(self._attempt):
                self._reader.feed(line, source=file)
        elif self._rest:
            self._feed(self._rest, self._offset)

    def _follow(self, goes_on: Callable[[int], bool]) -> bool:
        """Whether the log could be followed so far."""
        if self._is_alone is None:
            self._is_alone = len(host_folders(self._attempt, read_nodes(self._attempt)[0])) == 1
        if not self._is_alone or self._is_lost:
            return False
        try:
            with open_file(self._log) as source:
                size = os.fstat(source.fileno()).st_size
                self._is_lost = not self._is_same(source)
                while not self._is_lost and goes_on(size):
                    self._read_block(source)
        except OSError:
            # It may be readable at the next turn; at the end it is read in one pass.
            return False
        except Exception:
            # Searching the log must not end the run, whatever a script prints.
            self._is_lost = True
        return not self._is_lost

    def _is_same(self, source: BinaryIO) -> bool:
        """Whether it is still the file that was read so far; positions it where the next block begins."""
        found = os.fstat(source.fileno())
        self._file = self._file or (found.st_dev, found.st_ino)
        source.seek(self._offset - len(self._before))
        return self._file == (found.st_dev, found.st_ino) and source.read(len(self._before)) == self._before

    def _read_block(self, source: BinaryIO) -> None:
        block = source.read(BLOCK_BYTES)
        if not block:
            raise OSError(f"{self._log} became shorter while it was read")
        self._offset += len(block)
        self._before = (self._before + block)[-FINGERPRINT_BYTES:]
        whole, newline, begun = block.rpartition(b"\n")
        if newline:
            self._feed(self._rest + whole + newline, self._offset - len(begun))
            self._rest = begun
        else:
            # The beginnings of its lines are unknown from here on.
            self._indexer.is_usable = False
            self._rest = (self._rest + begun)[-LONGEST_TEXT_BYTES:]

    def _feed(self, text: bytes, end: int) -> None:
        """Whole lines that end at this offset."""
        lines = text.removesuffix(b"\n")
        of_lines = shapes(lines)
        self._indexer.add(text, end - len(text), of_lines)
        self._has_runner_line = self._has_runner_line or RUNNER_LINE in text
        name = str(self._log.relative_to(self._attempt.folder))
        if not self._header.may_blank(lines):
            self._reader.feed_block(lines, of_lines, source=name)
            return
        for line in lines.decode("utf-8", errors="replace").split("\n"):
            self._reader.feed(self._header.blank(line), source=name)
