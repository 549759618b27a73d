"""Whose line it is: marks that launchers put before what a rank printed.

In: lines of a log. Out: for each the source its marks name, and the text without them. `[rank3]: ` is Seatrial's and torch's,
`[host node2]: ` stands before what one of many hosts printed, `[default3]:` is torchrun's, `[1,3]<stderr>:` that of mpirun, `3: ` that of
`srun --label`, `host: ` that of pdsh, and vLLM puts process, time and place before every line. A word and a colon also begin an
exception, so a host is one only where it stands before what must begin a line, or pdsh itself names it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

MARKS = re.compile(
    r"\[rank\d{1,9}\]: ?"
    r"|\[host [^\]\s]{1,255}\]: ?"
    r"|\[(?:default|trainer|worker)\d{1,9}(?:\|\d{1,9})?\]: ?"
    r"|\[\d{1,9},\d{1,9}\]<std(?:out|err)>: ?"
    r"|\d{1,6}: "
    r"|(?:\(\w{1,40}(?: rank=\d{1,6})?(?: pid=\d{1,9})?\) )?(?:ERROR|INFO|WARNING) \d\d-\d\d \d\d:\d\d:\d\d \[?[\w./]{1,80}:\d{1,6}\] ?"
)
HOST = re.compile(r"\[host ([^\]\s]{1,255})\]:")
# Of vLLM's marks these differ from line to line: the process is what counts, and that it is only a warning.
TIME_AND_PLACE = re.compile(r"(?:^| )(?:ERROR|INFO) \d\d-\d\d .*$|(?<=WARNING) \d\d-\d\d .*$")
# What a line begins with when nothing stands before it.
BEGINS = r"(?:Traceback \(most recent call last\):|  File \"|\[rank\d|\[\d{4}-\d\d-\d\d [^\]]{1,40}\] \[\w+\] \[(?:launch|runner)\.py)"
BEFORE_IT = re.compile(rf"^( {{0,5}}[\w.@-]{{1,80}}): {BEGINS}")
# pdsh's own words on a host whose command failed.
NAMED_BY_PDSH = re.compile(r"^pdsh@[\w.-]{1,80}: ([\w.-]{1,80}): ssh exited")


class MarkedLine(NamedTuple):
    """One line of a log."""

    source: str
    """What its marks say, joined; empty for a line without any."""
    text: str


def host_mark(host: str) -> str:
    """What is put before a line of that host."""
    return f"[host {host}]: " if host else ""


def host_in(source: str) -> str:
    """The host that a source names by such a mark; empty where it names none."""
    found = HOST.match(source)
    return found.group(1) if found else ""


def without_host(source: str) -> str:
    """The source as the host itself would have told it."""
    return HOST.sub("", source, count=1).strip()


def marked_lines(lines: Sequence[str]) -> list[MarkedLine]:
    """Every line, parted from its marks."""
    hosts = _hosts(lines)
    return [_part(line, hosts) for line in lines]


def _hosts(lines: Iterable[str]) -> frozenset[str]:
    """Words that stand before lines as pdsh's host names do, and task numbers that are set with blanks."""
    found = (NAMED_BY_PDSH.match(line) or BEFORE_IT.match(line) for line in lines if ": " in line)
    return frozenset(match.group(1) for match in found if match)


def _part(line: str, hosts: frozenset[str]) -> MarkedLine:
    text, source = line, []
    while (length := _mark_length(text, hosts)) > 0:
        source.append(text[:length].strip())
        text = text[length:]
    return MarkedLine(" ".join(word for mark in source if (word := TIME_AND_PLACE.sub("", mark))), text)


def _mark_length(text: str, hosts: frozenset[str]) -> int:
    if mark := MARKS.match(text):
        return mark.end()
    word, colon, _ = text.partition(": ")
    return len(word) + 2 if colon and word in hosts else 0
