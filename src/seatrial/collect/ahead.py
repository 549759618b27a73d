"""Small files of several attempts, read together.

In: attempts. Out: `Ahead`: their event files and telemetry, each as if it had been read by itself. polars takes a third of a millisecond
to begin with a file, whatever its size, and a campaign has thousands of small ones: as one text they are read in half the time. A file
that is large, torn or odd in any way is left out here, with those it was read with where need be, and is then read by itself as ever.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from pathlib import Path

import polars as pl

from seatrial.collect.event_files import REFUSED, SCHEMA
from seatrial.collect.file_parts import MIB
from seatrial.collect.telemetry import GPU_READ, HOST_READ, Samples, read_samples_together
from seatrial.files import open_file
from seatrial.paths import AttemptPaths
from seatrial.records.attempt import Attempt

LARGEST_BYTES = MIB
"""Of a larger file the time to begin with it does not count, and a dozen of them would be much text at once."""


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
    samples = {**read_samples_together(_texts(gpu), GPU_READ), **read_samples_together(_texts(host), HOST_READ)}
    return Ahead(events=_read_events(_texts(events)), samples=samples)


def _texts(paths: Sequence[Path]) -> dict[Path, bytes]:
    """Of the files that are small and end with a whole line."""
    found = {}
    for path in paths:
        with contextlib.suppress(OSError), open_file(path) as source:
            text = source.read() if os.fstat(source.fileno()).st_size <= LARGEST_BYTES else b""
            if text.endswith(b"\n"):
                found[path] = text
    return found


def _read_events(texts: Mapping[Path, bytes]) -> dict[Path, pl.DataFrame]:
    """Every line as a row of SCHEMA; nothing where polars refuses one of them."""
    if not texts:
        return {}
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
