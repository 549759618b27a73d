"""The head of launcher.log as the original stage-1 driver writes it: a META block of key=value lines, and a CMD block with the command.

    === META ===
    timestamp=2026-11-17T22:40:01+00:00
    mode=sweep
    …
    === CMD ===
    deepspeed --include localhost:0,1 --master_port 29650 train.py …

It is for people. Searches for steps or causes skip it, since a value may look like either.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from seatrial.core.files import open_file

META = "=== META ==="
CMD = "=== CMD ==="
# Far beyond the length of any head.
MAX_BYTES = 256 * 1024


def header_text(meta: Mapping[str, str], command: str) -> str:
    """The head; each value on one line."""
    lines = (f"{name}={' '.join(value.split())}" for name, value in meta.items())
    return "\n".join([META, *lines, CMD, " ".join(command.splitlines()), ""])


class HeaderSize(NamedTuple):
    num_bytes: int = 0
    num_lines: int = 0


def find_header(path: Path) -> HeaderSize:
    """Size of the head at the beginning of the file; zero without one, or without a readable file."""
    try:
        with open_file(path) as source:
            text = source.read(MAX_BYTES)
    except OSError:
        return HeaderSize()
    num_bytes = num_lines = 0
    block = ""
    for line in text.splitlines(keepends=True) if text.startswith(META.encode()) else ():
        is_header, block = _next_block(block, line.decode("utf-8", errors="replace").strip())
        if not is_header:
            break
        num_bytes, num_lines = num_bytes + len(line), num_lines + 1
    return HeaderSize(num_bytes, num_lines)


class HeaderBlanker:
    """Leaves lines of heads empty, so that the numbers of all others stay. A log has a head for each start appended to it."""

    def __init__(self) -> None:
        self._block = ""

    def may_blank(self, text: bytes) -> bool:
        """Whether one of these lines may belong to a head."""
        return bool(self._block) or META.encode() in text

    def blank(self, line: str) -> str:
        """The next line, or an empty one."""
        if not self._block and not line.startswith(META):
            return line
        is_header, self._block = _next_block(self._block, line.strip())
        return "" if is_header else line


def _next_block(block: str, text: str) -> tuple[bool, str]:
    """Whether a line belongs to a head, and the block that goes on after it; `block` is that of the line before."""
    if text == META or (block == META and text == CMD):
        return True, text
    if block == META:
        # Not a pair: the head was cut off.
        return "=" in text, META if "=" in text else ""
    if block == CMD:
        # The command is one line.
        return True, "" if text else CMD
    return False, ""
