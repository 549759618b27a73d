"""Event files of the probe.

In: events_rank*.jsonl, one JSON object a line, possibly damaged or with lines of other runs. Out: one table of the attempt's events and
what was skipped in each file; and what single events report: start-up, location of each rank, figures, halt and stop.

Intact files go through polars together, in one pass with a fixed schema. Where anything is odd (a line that polars rejects, of another
run, or of another rank than the file's), every file is read by itself in blocks, so that memory stays bounded; a block that polars
rejects is read line by line. Both ways give equal tables where both can read.
"""

from __future__ import annotations

import glob
import io
import json
import math
import os
import re
import stat
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from seatrial.collect.logs.bounded_lines import LONGEST_LINE_BYTES, line_blocks
from seatrial.core.files import open_file
from seatrial.core.paths import AttemptPaths
from seatrial.core.text import MIB
from seatrial.records.attempt import Attempt, StartupFacts
from seatrial.records.events import FIGURE_NAME, SPANS, STEP_TABLE_COLUMNS
from seatrial.records.measure import RankLocation, ReportedFigure
from seatrial.records.stored import clock_offset_s, node_of_rank

TEXT_COLUMNS = ("run", "kind", "name")
INTEGER_COLUMNS = ("attempt", "rank", "step", "world_size")
SCHEMA: dict[str, Any] = {
    **dict.fromkeys(TEXT_COLUMNS, pl.String),
    **dict.fromkeys(INTEGER_COLUMNS, pl.Int64),
    **dict.fromkeys([name for name in STEP_TABLE_COLUMNS if name not in ("rank", "step", "span")], pl.Float64),
    "pause_ms": pl.Float64,
}
KEPT_COLUMNS = [name for name in SCHEMA if name not in ("run", "attempt")]
# The files of a thousand ranks are a gigabyte of text.
FILES_AT_ONCE = 64
BLOCK_BYTES = 32 * MIB
LARGEST_FILE_BYTES = 512 * MIB
"""Two million steps of one rank. The rest is not read, and a caution reports it."""
# JSON has no number for these: the loss is then a string.
NOT_FINITE = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}
REJECTED = (pl.exceptions.PolarsError, UnicodeDecodeError)


@dataclass(frozen=True, kw_only=True)
class SkippedLines:
    """What was not used of one file."""

    file: str
    foreign: int = 0
    """Lines of another run, attempt or rank, and lines that are not events."""
    is_truncated: bool = False
    """Whether it ends in the middle of a line."""
    left_out_bytes: int = 0
    """Bytes beyond LARGEST_FILE_BYTES."""
    problem: str = ""
    """Why nothing could be read."""

    @property
    def is_nothing(self) -> bool:
        return not (self.foreign or self.is_truncated or self.left_out_bytes or self.problem)


def read_event_files(
    paths: Sequence[Path], attempt: Attempt, ahead: Mapping[Path, pl.DataFrame] | None = None
) -> tuple[pl.DataFrame, tuple[SkippedLines, ...]]:
    """Events of this run and attempt in all files, without foreign and damaged lines. `ahead` are tables of files read already."""
    intact = _read_intact(paths, attempt, ahead or {})
    if intact is not None:
        return intact, ()
    read = [read_own_events(path, attempt) for path in paths]
    return pl.concat([table for table, _ in read]), tuple(skipped for _, skipped in read if not skipped.is_nothing)


def _read_intact(paths: Sequence[Path], attempt: Attempt, ahead: Mapping[Path, pl.DataFrame]) -> pl.DataFrame | None:
    """All files in one pass; None where one of them is not as the probe writes it."""
    known = ahead.get(paths[0]) if len(paths) == 1 else None
    if known is None and not all(map(_is_readable, paths)):
        return None
    parts = []
    for start in range(0, len(paths), FILES_AT_ONCE):
        table = _read_together(paths[start : start + FILES_AT_ONCE]) if known is None else known
        if table is None or not _is_all_own(table, attempt) or not _is_in_order(table, paths):
            return None
        parts.append(table)
    # By names in brackets: a tenth of the time of `select`, which plans a query first.
    return pl.concat([part[KEPT_COLUMNS] for part in parts]) if len(parts) > 1 else parts[0]


def _is_readable(path: Path) -> bool:
    try:
        found = path.stat()
    except OSError:
        return False
    return stat.S_ISREG(found.st_mode) and 0 < found.st_size <= LARGEST_FILE_BYTES


def _read_together(paths: Sequence[Path]) -> pl.DataFrame | None:
    # polars treats a path as a pattern: `[1-2]` in the user's folder would match nothing, or another folder.
    names = [glob.escape(str(path)) for path in paths]
    try:
        return pl.scan_ndjson(names, schema=SCHEMA).collect() if len(names) > 1 else pl.read_ndjson(names[0], schema=SCHEMA)
    except (*REJECTED, OSError):
        return None


def _is_all_own(table: pl.DataFrame, attempt: Attempt) -> bool:
    if table["rank"].null_count():
        return False
    return bool(((table["run"] == attempt.spec.run) & (table["attempt"] == attempt.number)).all(ignore_nulls=False))


def _is_in_order(table: pl.DataFrame, paths: Sequence[Path]) -> bool:
    """Whether lines are sorted by rank and step and belong to their files' ranks."""
    is_step = table["kind"] == "step"
    by_step = np.diff(table["step"].filter(is_step).to_numpy())
    if len(paths) == 1:
        return bool((by_step > 0).all()) and bool((table["rank"].to_numpy() == rank_of_file(paths[0])).all())
    by_rank = np.diff(table["rank"].filter(is_step).to_numpy())
    is_sorted = bool(((by_rank > 0) | ((by_rank == 0) & (by_step > 0))).all())
    return is_sorted and set(table["rank"].unique().to_list()) <= set(map(rank_of_file, paths))


def rank_of_file(path: Path) -> int:
    """The rank whose events the file holds; -1 for another name."""
    digits = re.fullmatch(r"events_rank(\d{1,9})", path.stem)
    return int(digits.group(1)) if digits else -1


def read_event_batch(texts: Mapping[Path, bytes]) -> dict[Path, pl.DataFrame]:
    """Small files of several attempts in one pass, each as a table of SCHEMA; {} where polars rejects a line of them."""
    counts = [text.count(b"\n") for text in texts.values()]
    try:
        table = pl.read_ndjson(b"".join(texts.values()), schema=SCHEMA)
    except REJECTED:
        return {}
    # A blank line is not a row, and then the borders between files are unknown.
    if len(table) != sum(counts):
        return {}
    starts = accumulate(counts, initial=0)
    return {path: table.slice(start, count) for path, start, count in zip(texts, starts, counts, strict=False)}


def read_own_events(path: Path, attempt: Attempt) -> tuple[pl.DataFrame, SkippedLines]:
    """One file by itself, in blocks."""
    rank = rank_of_file(path)
    parts, foreign, is_truncated = [], 0, False
    try:
        with open_file(path) as source:
            size = os.fstat(source.fileno()).st_size
            for block in line_blocks(source, LARGEST_FILE_BYTES, BLOCK_BYTES):
                table = read_block(block)
                own = table.filter((pl.col("run") == attempt.spec.run) & (pl.col("attempt") == attempt.number) & (pl.col("rank") == rank))
                foreign += len(table) - len(own)
                parts.append(own[KEPT_COLUMNS])
                is_truncated = not block.endswith(b"\n") and parse_event(block[block.rfind(b"\n") + 1 :]) is None
    except OSError as error:
        return _empty_table(), SkippedLines(file=path.name, problem=error.strerror or "cannot be read")
    if size == 0:
        return _empty_table(), SkippedLines(file=path.name, problem="is empty")
    left_out = max(0, size - LARGEST_FILE_BYTES)
    return pl.concat(parts), SkippedLines(
        file=path.name, foreign=foreign, is_truncated=is_truncated and not left_out, left_out_bytes=left_out
    )


def _empty_table() -> pl.DataFrame:
    return pl.DataFrame(schema={name: SCHEMA[name] for name in KEPT_COLUMNS})


def read_block(block: bytes) -> pl.DataFrame:
    """Every line as a row of SCHEMA: missing fields are null, and a line that is not an event has none."""
    try:
        return pl.read_ndjson(io.BytesIO(block), schema=SCHEMA) if block else pl.DataFrame(schema=SCHEMA)
    except REJECTED:
        return read_block_by_line(block)


def read_block_by_line(block: bytes) -> pl.DataFrame:
    """The same table, line by line: for what polars rejects."""
    columns: dict[str, list[Any]] = {name: [] for name in SCHEMA}
    for event in _parse_lines(io.BytesIO(block)):
        for name, column in columns.items():
            column.append(_cell(name, event.get(name)))
    return pl.DataFrame(columns, schema=SCHEMA)


def _parse_lines(lines: Iterable[bytes]) -> Iterator[dict[str, Any]]:
    """One object for each line that is not blank, {} for a malformed one; a truncated last line is dropped."""
    for line in lines:
        event = parse_event(line) if len(line) <= LONGEST_LINE_BYTES else None
        if event is not None:
            yield event
        elif line.endswith(b"\n") and not line.isspace():
            yield {}


def _cell(name: str, value: Any) -> Any:
    if name in TEXT_COLUMNS:
        # An integer in a text column becomes its digits, as in polars.
        return str(value) if isinstance(value, (str, int)) and not isinstance(value, bool) else None
    if isinstance(value, str):
        value = NOT_FINITE.get(value.lower())
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    if isinstance(value, int) and abs(value) >= 2**63:
        # Beyond 64 bits it is damage, not a step.
        return None if name in INTEGER_COLUMNS else math.inf if value > 0 else -math.inf
    if name in INTEGER_COLUMNS:
        return int(value) if abs(value) < 2**63 and int(value) == value else None
    return float(value)


def parse_event(line: bytes) -> dict[str, Any] | None:
    """The JSON object of one line; None for anything else. Invalid UTF-8 is replaced, since names in the line may contain it."""
    try:
        # A key given twice counts as first given, as in polars.
        value = json.loads(line.decode("utf-8", errors="replace"), object_pairs_hook=lambda pairs: dict(reversed(pairs)))
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _own_event(line: bytes, attempt: Attempt, rank: int) -> dict[str, Any] | None:
    """The event of the line; None unless it belongs to that attempt and rank."""
    event = parse_event(line)
    if event is None or (event.get("run"), event.get("attempt"), event.get("rank")) != (attempt.spec.run, attempt.number, rank):
        return None
    return event


SEARCH_BLOCK_BYTES = 64 << 10
"""Most rare events are in the first block of a file; with a thousand ranks no more is read."""


def events_of_kind(kind: str, path: Path, attempt: Attempt, expected: int | None = None) -> Iterator[dict[str, Any]]:
    """Events of a rare kind, in file order; none where the file cannot be read. Blocks without the kind are not split into lines; with
    `expected`, nothing is read after the last."""
    mark, rank = f'"{kind}"'.encode(), rank_of_file(path)
    num_found = 0
    if expected == 0:
        return
    try:
        with open_file(path) as source:
            for block in line_blocks(source, LARGEST_FILE_BYTES, SEARCH_BLOCK_BYTES):
                for line in block.split(b"\n") if mark in block else ():
                    event = _own_event(line, attempt, rank) if mark in line else None
                    if event is not None and event.get("kind") == kind:
                        yield event
                        num_found += 1
                if num_found == expected:
                    return
    except OSError:
        return


LARGEST_FIGURE = 1e300
_NAME = re.compile(FIGURE_NAME)


def read_reported_figures(paths: Sequence[Path], attempt: Attempt) -> dict[str, ReportedFigure]:
    """Figures that the workload reported (`probe.figure`), by name: the last value of the lowest rank. One that is not a number is NaN."""
    found: dict[str, ReportedFigure] = {}
    for path in paths:
        found = {**_figures_in(path, attempt), **found}
    return dict(sorted(found.items()))


def _figures_in(path: Path, attempt: Attempt) -> dict[str, ReportedFigure]:
    found: dict[str, ReportedFigure] = {}
    for event in events_of_kind("figure", path, attempt):
        name, value, unit, n = (event.get(key) for key in ("name", "value", "unit", "n"))
        if isinstance(name, str) and _NAME.fullmatch(name):
            found[name] = ReportedFigure(
                value=float(value) if _is_number(value, LARGEST_FIGURE) else math.nan,  # type: ignore[arg-type]
                unit=unit if isinstance(unit, str) else "",
                n=n if type(n) is int and n >= 0 else None,
                file=path.name,
            )
    return found


START_EVENT_BYTES = 4 << 10
"""The start event is the first line, unless another program wrote into the file."""


def read_rank_locations(paths: Sequence[Path], attempt: Attempt) -> tuple[RankLocation, ...]:
    """Host (by its name in the hostfile, if any) and GPU of the ranks by their start events; ranks without one are left out."""
    return tuple(location for path in paths if (location := _rank_location(path, attempt)) is not None)


def _rank_location(path: Path, attempt: Attempt) -> RankLocation | None:
    rank = rank_of_file(path)
    try:
        with open_file(path) as source:
            lines = source.read(START_EVENT_BYTES).split(b"\n")[:-1]
    except OSError:
        return None
    for line in lines:
        event = _own_event(line, attempt, rank) if b'"start"' in line else None
        if event is not None and event.get("kind") == "start":
            node = node_of_rank(attempt.nodes, rank)
            return RankLocation(rank=rank, host=node.name if node else _as_text(event.get("host")), gpu=_as_text(event.get("gpu")))
    return None


def _as_text(value: Any) -> str:
    return value if isinstance(value, str) else str(value) if type(value) is int else ""


STARTUP_BYTES = 64 * MIB
"""How much is searched of a file that begins with foreign lines."""
LARGEST_NUMBER = 1e15


def read_startup(attempt: Attempt, steps: pl.DataFrame) -> StartupFacts | None:
    """Start-up of the rank whose first step ended last; None without its start event, or a time for its first step."""
    rank, step, t = (steps[name].to_numpy() for name in ("rank", "step", "t"))
    first = (step == step.min()) & ~np.isnan(t)
    return _startup_of(attempt, int(rank[first][np.argmax(t[first])])) if first.any() else None


def read_broken_startup(attempt: Attempt, sources: Sequence[Path]) -> StartupFacts | None:
    """Start-up of a run that ended before any step, from the lowest rank with a start event; None without any."""
    ranks = sorted(rank for rank in map(rank_of_file, sources) if rank >= 0)
    return next((facts for facts in (_startup_of(attempt, rank) for rank in ranks) if facts is not None), None)


def _startup_of(attempt: Attempt, rank: int) -> StartupFacts | None:
    start: dict[str, Any] | None = None
    spans: list[tuple[str, float, float]] = []
    for event in _events_before_first_step(AttemptPaths(Path(attempt.folder)).events(rank), attempt, rank):
        if event.get("kind") == "start":
            # A rank that was restarted within the attempt: what came before belongs to its predecessor.
            start, spans = event, []
        elif event.get("kind") == "span" and event.get("name") in SPANS and _is_number(event.get("span_ms")) and _is_number(event.get("m")):
            spans.append((event["name"], event["span_ms"] / 1000.0, float(event["m"])))
    if start is None or not _is_number(start.get("t")):
        return None
    process_t, start_m = (float(start[name]) if _is_number(start.get(name)) else None for name in ("process_t", "m"))
    offset_s = clock_offset_s(attempt.nodes, rank)
    return StartupFacts(
        rank=rank,
        start_t=float(start["t"]) - offset_s,
        start_m=start_m,
        process_t=None if process_t is None else process_t - offset_s,
        spans=tuple(spans),
    )


def _events_before_first_step(path: Path, attempt: Attempt, rank: int) -> Iterator[dict[str, Any]]:
    try:
        with open_file(path) as source:
            while source.tell() < STARTUP_BYTES and (line := source.readline(LONGEST_LINE_BYTES)):
                event = _own_event(line, attempt, rank)
                if event is not None and event.get("kind") == "step":
                    return
                if event is not None:
                    yield event
    except OSError:
        return


def _is_number(value: object, largest: float = LARGEST_NUMBER) -> bool:
    """Whether it is a usable number: a file may hold NaN, or a value beyond any float."""
    return isinstance(value, (int, float)) and not isinstance(value, bool) and -largest < value < largest


LAST_BYTES = 16 << 10
"""`stop` is the very last event, unless a thread of the script goes on writing; after a halt come the final pauses and memory."""


def is_stopped(path: Path, attempt: Attempt) -> bool:
    """Whether the rank reported that it was done."""
    return _ends_with("stop", path, attempt)


def was_halted(attempt: Attempt, events: Sequence[Path]) -> bool:
    """Whether any rank stopped at a halt request. The sparse-LM watchdog's halt file counts too: each attempt has its own
    folder, so the file is this attempt's."""
    return AttemptPaths(Path(attempt.folder)).watchdog_halt.exists() or any(_ends_with("halt", path, attempt) for path in events)


def _ends_with(kind: str, path: Path, attempt: Attempt) -> bool:
    """Whether an event of that kind is near the end of the file."""
    try:
        with open_file(path) as source:
            source.seek(max(0, source.seek(0, os.SEEK_END) - LAST_BYTES))
            lines = source.read(LAST_BYTES).split(b"\n")
    except OSError:
        return False
    mark, rank = f'"{kind}"'.encode(), rank_of_file(path)
    events = (_own_event(line, attempt, rank) for line in lines if mark in line)
    return any(event is not None and event.get("kind") == kind for event in events)
