"""run_manifest.tsv, one row an attempt, timing_points.csv and eta_points.csv.

In: an attempt and its measures. Out: a row by column name, and the files. The manifest grows as runs end (`append_manifest`) and can be
rebuilt from disk (`write_manifest`); a header that lacks a column is widened, never discarded.
"""

from __future__ import annotations

import contextlib
import datetime
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from seatrial.core import files
from seatrial.core.durable_writes import append_line_durably
from seatrial.core.fallback import discard_spilled_lines
from seatrial.core.tables import format_written_cell, unquote_formula, write_table, write_table_durably
from seatrial.core.text import format_hms
from seatrial.records.attempt import Attempt
from seatrial.records.caution import Scalar
from seatrial.records.columns import ETA_POINTS, MANIFEST_OURS, MANIFEST_STAGE1, TIMING_POINTS
from seatrial.records.measure import RunMeasure
from seatrial.records.run_table import axis_cells, fallback_reasons, run_cells, train_log

FIXED_COLUMNS = (*MANIFEST_STAGE1, *MANIFEST_OURS)
UNFINISHED = "unfinished"
TAB = "\t"


def manifest_row(attempt: Attempt, measure: RunMeasure | None) -> dict[str, Scalar]:
    """Every manifest column of one attempt; None for unknown values."""
    row = {**run_cells(attempt, measure), **_ending(attempt)}
    if measure is not None:
        row["fallback_reasons"] = fallback_reasons(measure.effective) or None
        # Named differently in the per-run table.
        row["last_iter_ms_p50"] = measure.stage1.get("last_iter_p50_ms")
    return {name: row.get(name) for name in FIXED_COLUMNS} | axis_cells(attempt.spec.axes)


def _ending(attempt: Attempt) -> dict[str, Scalar]:
    outcome = attempt.outcome
    if outcome is None:
        return {"status": "failed", "outcome": UNFINISHED}
    return {
        "status": outcome.outcome.stage1_status,
        "exit_code": outcome.exit_code,
        "duration_sec": round(outcome.duration_s, 3),
        "port": outcome.port,
        "outcome": outcome.outcome.value,
        "cause": outcome.cause.value,
        "detail": outcome.detail or None,
        "started_at": _iso(outcome.started_t),
        "signature": outcome.signature or None,
        "fault": outcome.fault.value if outcome.outcome.is_failure else None,
    }


def _iso(t: float) -> str | None:
    """The time in ISO format; None for 0 and outside the calendar."""
    with contextlib.suppress(ValueError, OverflowError, OSError):
        return datetime.datetime.fromtimestamp(t, datetime.UTC).isoformat(timespec="seconds") if t else None
    return None


def write_manifest(path: Path, rows: Sequence[Mapping[str, Scalar]]) -> None:
    """Write the whole manifest, with the axis columns of all rows."""
    if write_table_durably(path, _union(FIXED_COLUMNS, rows), rows, TAB):
        # The file now has every row, also those spilled while the disk failed.
        discard_spilled_lines(path)


def append_manifest(path: Path, row: Mapping[str, Scalar]) -> None:
    """Append one row; if the header on disk lacks one of its columns, the whole file is rewritten."""
    header = _header(path)
    if header and set(row) <= set(header) and _ends_whole(path):
        append_line_durably(path, TAB.join(format_written_cell(row.get(name), name) for name in header))
        return
    write_table_durably(path, _union(header or FIXED_COLUMNS, [row]), [*read_manifest(path), row], TAB)


def read_manifest(path: Path) -> list[dict[str, str]]:
    """Rows of a manifest on disk, by its own header; a truncated row has what was written of it."""
    header, *rows = _lines(path) or [""]
    names = list(map(unquote_formula, header.split(TAB)))
    return [dict(zip(names, map(unquote_formula, row.split(TAB)), strict=False)) for row in rows if row]


def _header(path: Path) -> list[str]:
    lines = _lines(path)
    return list(map(unquote_formula, lines[0].split(TAB))) if lines and lines[0] else []


def _lines(path: Path) -> list[str]:
    # A row truncated in the middle of a character must not make all others unreadable.
    try:
        return files.read_whole(path).decode("utf-8", errors="replace").split("\n")
    except FileNotFoundError:
        return []


def _ends_whole(path: Path) -> bool:
    """False after a crash in the middle of an append: the next row must not go onto the same line."""
    with files.open_file(path) as source:
        source.seek(-1, os.SEEK_END)
        return source.read(1) == b"\n"


def _union(columns: Sequence[str], rows: Sequence[Mapping[str, Scalar]]) -> list[str]:
    return list(dict.fromkeys([*columns, *(name for row in rows for name in row)]))


def _point_cells(attempt: Attempt) -> dict[str, Scalar]:
    spec = attempt.spec
    return {
        "mode": spec.mode,
        "group": spec.group,
        "repeat": spec.repeat,
        "train_log": train_log(attempt),
        "run": spec.run,
        "attempt": attempt.number,
    }


def timing_point_rows(attempt: Attempt, measure: RunMeasure) -> list[dict[str, Scalar]]:
    common = _point_cells(attempt)
    return [{**common, "index": point.index, "step": point.step, **point.values} for point in measure.timing_points]


def write_timing_points(path: Path, rows: Iterable[Mapping[str, Scalar]]) -> None:
    write_table(path, TIMING_POINTS, rows)


def eta_point_rows(attempt: Attempt, measure: RunMeasure) -> list[dict[str, Scalar]]:
    common = _point_cells(attempt)
    return [
        {
            **common,
            "index": point.index,
            "step": point.step,
            "remain_steps": point.remain_steps,
            "eta_sec": round(point.eta_s, 3),
            "eta_hms": format_hms(point.eta_s),
            "eta_mode": point.mode,
            "source": point.source,
            "eta_low_sec": point.low_s,
            "eta_high_sec": point.high_s,
            "basis_iter_ms": point.basis_iter_ms,
            "samples": point.samples,
            "actual_sec": point.actual_s,
            "error_sec": None if point.actual_s is None else point.eta_s - point.actual_s,
        }
        for point in measure.eta_points
    ]


def write_eta_points(path: Path, rows: Sequence[Mapping[str, Scalar]]) -> None:
    """Write the whole eta_points.csv; no file without rows."""
    if rows:
        write_table(path, ETA_POINTS, rows)
    else:
        path.unlink(missing_ok=True)
