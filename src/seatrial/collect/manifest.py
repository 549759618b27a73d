"""run_manifest.tsv, one row an attempt, and timing_points.csv.

In: an attempt and what was measured of it. Out: a row by column name, and the files. The manifest grows as runs end
(`append_manifest`) and can be made anew from disk (`write_manifest`); a header that lacks a column is widened, never thrown away.
"""

from __future__ import annotations

import datetime
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from seatrial import files
from seatrial.paths import AttemptPaths
from seatrial.records.attempt import Attempt
from seatrial.records.columns import MANIFEST_OURS, MANIFEST_SEED, TIMING_POINTS
from seatrial.records.measure import Cell, RunMeasure
from seatrial.seed_columns import axis_cells, config_cells, fallback_reasons
from seatrial.tables import format_cell, write_table

FIXED_COLUMNS = (*MANIFEST_SEED, *MANIFEST_OURS)
NOT_OVER = "unfinished"
TAB = "\t"


def manifest_row(attempt: Attempt, measure: RunMeasure | None) -> dict[str, Cell]:
    """Every manifest column of one attempt; None where nothing is known."""
    effective = measure.effective if measure else {}
    row: dict[str, Cell] = dict.fromkeys(FIXED_COLUMNS)
    row.update(config_cells(attempt.spec, attempt.provenance, effective, measure.world_size if measure else None))
    row["fallback_reasons"] = fallback_reasons(effective) or None
    row.update(_identity(attempt))
    row.update(_ending(attempt))
    if measure is not None:
        row.update(_timing(measure))
        row.update(_measured(measure))
    return {name: row[name] for name in FIXED_COLUMNS} | axis_cells(attempt.spec)


def _identity(attempt: Attempt) -> dict[str, Cell]:
    spec, paths = attempt.spec, AttemptPaths(Path(attempt.folder))
    return {
        "mode": spec.mode,
        "group": spec.group,
        "repeat": spec.repeat,
        "run_dir": str(paths.folder.parent),
        "launcher_log": str(paths.launcher_log),
        "train_log": train_log(attempt),
        "run": spec.run,
        "attempt": attempt.number,
        "hash": spec.hash,
        "group_key": spec.group_key,
        "current": attempt.current,
        "lane": spec.lane,
        "plan": spec.plan,
        "workload": spec.workload.name,
        "fingerprint": attempt.provenance.fingerprint or None,
    }


def train_log(attempt: Attempt) -> str | None:
    """The attempt's train.log where the workload wrote one."""
    path = AttemptPaths(Path(attempt.folder)).train_log
    return str(path) if path.is_file() else None


def _ending(attempt: Attempt) -> dict[str, Cell]:
    outcome = attempt.outcome
    if outcome is None:
        return {"status": "failed", "outcome": NOT_OVER}
    return {
        "status": outcome.outcome.seed_status,
        "exit_code": outcome.exit_code,
        "duration_sec": round(outcome.duration_s, 3),
        "port": outcome.port,
        "outcome": outcome.outcome.value,
        "cause": outcome.cause.value,
        "detail": outcome.detail or None,
        "started_at": _iso(outcome.started_t),
    }


def _iso(t: float) -> str | None:
    return datetime.datetime.fromtimestamp(t, datetime.UTC).isoformat(timespec="seconds") if t else None


def _timing(measure: RunMeasure) -> dict[str, Cell]:
    """The seeds' columns; the manifest calls one of them by another name than the per-run table."""
    cells = {name: value for name, value in measure.seed.items() if name in MANIFEST_SEED}
    return {**cells, "last_iter_ms_p50": measure.seed.get("last_iter_p50_ms")}


def _measured(measure: RunMeasure) -> dict[str, Cell]:
    window = measure.window
    return {
        "last_step": measure.last_step,
        "source": measure.source,
        "window_first_step": window.first_step if window else None,
        "window_last_step": window.last_step if window else None,
        "window_n": window.n if window else None,
        "warmup_steps": window.warmup_steps if window else None,
        "excluded_steps": window.excluded_steps if window else None,
        "steady": window.steady if window else None,
        "wall_s": measure.window_s,
        "wall_steps_per_sec": measure.steps_per_s,
        "wall_samples_per_sec": measure.samples_per_s,
        "wall_tokens_per_sec": measure.tokens_per_s,
        "wall_iter_p50_ms": measure.wall_p50_ms,
        "wall_iter_p90_ms": measure.wall_p90_ms,
        "wall_p90_over_p50": measure.wall_p90_over_p50,
        "startup_sec": measure.startup_s,
        "first_loss": measure.first_loss,
        "last_loss": measure.last_loss,
    }


def write_manifest(path: Path, rows: Sequence[Mapping[str, Cell]]) -> None:
    """The whole manifest anew, with the axis columns of all rows."""
    write_table(path, _union(FIXED_COLUMNS, rows), rows, TAB)


def append_manifest(path: Path, row: Mapping[str, Cell]) -> None:
    """One row more; where the header on disk lacks one of its columns, the file is written anew and wider, old rows included."""
    header = _header(path)
    if header and set(row) <= set(header) and _ends_whole(path):
        files.append_line(path, TAB.join(format_cell(row.get(name), name) for name in header))
        return
    write_table(path, _union(header or FIXED_COLUMNS, [row]), [*read_manifest(path), row], TAB)


def read_manifest(path: Path) -> list[dict[str, str]]:
    """Rows of a manifest on disk, by its own header; a torn row has what was written of it."""
    header, *rows = _lines(path) or [""]
    names = header.split(TAB)
    return [dict(zip(names, row.split(TAB), strict=False)) for row in rows if row]


def _header(path: Path) -> list[str]:
    lines = _lines(path)
    return lines[0].split(TAB) if lines and lines[0] else []


def _lines(path: Path) -> list[str]:
    # A row torn in the middle of a character must not make all others unreadable.
    return path.read_text(encoding="utf-8", errors="replace").split("\n") if path.is_file() else []


def _ends_whole(path: Path) -> bool:
    """False after a crash in the middle of an append: the next row must not go onto the same line."""
    with open(path, "rb") as source:
        source.seek(-1, os.SEEK_END)
        return source.read(1) == b"\n"


def _union(columns: Sequence[str], rows: Sequence[Mapping[str, Cell]]) -> list[str]:
    return list(dict.fromkeys([*columns, *(name for row in rows for name in row)]))


def timing_point_rows(attempt: Attempt, measure: RunMeasure) -> list[dict[str, Cell]]:
    """Rows of timing_points.csv of one attempt."""
    spec = attempt.spec
    common: dict[str, Cell] = {
        "mode": spec.mode,
        "group": spec.group,
        "repeat": spec.repeat,
        "train_log": train_log(attempt),
        "run": spec.run,
        "attempt": attempt.number,
    }
    return [{**common, "index": point.index, "step": point.step, **point.values} for point in measure.timing_points]


def write_timing_points(path: Path, rows: Iterable[Mapping[str, Cell]]) -> None:
    """timing_points.csv, whole."""
    write_table(path, TIMING_POINTS, rows)
