"""Small files of several attempts, read together.

In: attempts. Out: `Ahead`: their event files and telemetry, each as if it had been read by itself. polars takes a third of a millisecond
to begin with a file, whatever its size, and a campaign has thousands of small ones: as one text they are read in half the time. A file
that is large, torn or odd in any way is left out here, with those it was read with where need be, and is then read by itself as ever.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from pathlib import Path

import polars as pl

from seatrial.collect.events.files import REFUSED, SCHEMA
from seatrial.collect.telemetry import GPU_READ, HOST_READ, Samples, read_samples_together
from seatrial.files import open_file
from seatrial.paths import AttemptPaths
from seatrial.records.attempt import Attempt
from seatrial.units import MIB

LARGEST_BYTES = MIB
"""Of a larger file the time to begin with it does not count."""
TOGETHER_BYTES = MIB
"""A longer text is read no faster, and takes more memory."""


@dataclass(frozen=True, kw_only=True)
class Ahead:
    """What has been read already, by path."""

    events: Mapping[Path, pl.DataFrame] = field(default_factory=dict)
    samples: Mapping[Path, Samples] = field(default_factory=dict)


NOTHING = Ahead()


def read_ahead(attempts: Sequence[Attempt]) -> Ahead:
    """What can be read together of attempts that are over: events of those with one rank (several ranks' files are read together
    anyway) and telemetry."""
    over = [attempt for attempt in attempts if attempt.outcome is not None]
    paths = [AttemptPaths(Path(attempt.folder)) for attempt in over]
    gpu = [path.gpu_telemetry for path, attempt in zip(paths, over, strict=True) if attempt.telemetry and attempt.telemetry.gpu]
    host = [path.host_telemetry for path, attempt in zip(paths, over, strict=True) if attempt.telemetry and attempt.telemetry.host]
    events = [path.events(0) for path, attempt in zip(paths, over, strict=True) if attempt.spec.place.ranks == 1]
    found: dict[Path, Samples] = {}
    for kind, columns in ((gpu, GPU_READ), (host, HOST_READ)):
        for texts in _texts(kind):
            found |= read_samples_together(texts, columns)
    return Ahead(events={path: table for texts in _texts(events) for path, table in _read_events(texts).items()}, samples=found)


def _texts(paths: Sequence[Path]) -> Iterator[dict[Path, bytes]]:
    """Of the files that are small and end with a whole line, so many at once as make a text of TOGETHER_BYTES."""
    some: dict[Path, bytes] = {}
    size = 0
    for path in paths:
        text = _text(path)
        if text.endswith(b"\n"):
            some[path] = text
            size += len(text)
        if size >= TOGETHER_BYTES:
            yield some
            some, size = {}, 0
    if some:
        yield some


def _text(path: Path) -> bytes:
    """Nothing of a large file, and of one that cannot be read."""
    with contextlib.suppress(OSError), open_file(path) as source:
        return source.read() if os.fstat(source.fileno()).st_size <= LARGEST_BYTES else b""
    return b""


def _read_events(texts: Mapping[Path, bytes]) -> dict[Path, pl.DataFrame]:
    """Every line as a row of SCHEMA; nothing where polars refuses one of them."""
    lines = [text.count(b"\n") for text in texts.values()]
    try:
        table = pl.read_ndjson(b"".join(texts.values()), schema=SCHEMA)
    except REFUSED:
        return {}
    # An empty line is no row, and then nobody can say where a file ends.
    if len(table) != sum(lines):
        return {}
    starts = accumulate(lines, initial=0)
    return {path: table.slice(start, count) for path, start, count in zip(texts, starts, lines, strict=False)}
