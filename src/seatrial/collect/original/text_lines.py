"""A text file of another machine as lines: no byte order mark, no carriage returns, bytes that are no UTF-8 shown as such.

In: a path. Out: `TextLines`. Of a very large file only the head and the end are read; one that cannot be read says why.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from seatrial.collect.file_parts import left_out_bytes, pieces, size_of
from seatrial.units import MIB

LARGEST_BYTES = 64 * MIB
BYTE_ORDER_MARK = "\ufeff"


@dataclass(frozen=True, kw_only=True)
class TextLines:
    """What could be read of a file; no lines and no problem where there is none."""

    lines: tuple[str, ...] = ()
    ends_whole: bool = True
    """False where the last line has no end: its writer was killed, or the disk was full."""
    left_out_bytes: int = 0
    problem: str = ""

    @property
    def whole_lines(self) -> tuple[str, ...]:
        """Without a last line that has no end: half a number looks like a whole one."""
        return self.lines if self.ends_whole else self.lines[:-1]


def read_lines(path: Path, most_bytes: int = LARGEST_BYTES) -> TextLines:
    """Every line of the parts that are read, without its end."""
    try:
        found = [piece.text for piece in pieces(path, most_bytes)]
        left_out = left_out_bytes(size_of(path), most_bytes)
    except FileNotFoundError:
        return TextLines()
    except OSError as error:
        return TextLines(problem=error.strerror or "it cannot be read")
    lines = [text.decode("utf-8", errors="replace").rstrip("\r\n") for text in found]
    if lines:
        lines[0] = lines[0].removeprefix(BYTE_ORDER_MARK)
    return TextLines(lines=tuple(lines), ends_whole=not found or found[-1].endswith(b"\n"), left_out_bytes=left_out)
