"""Telemetry samples of an attempt.

In: an attempt's folder and its samplers' accounts. Out: `TelemetryTables` of all its hosts, by time on the harness's clock. A truncated
last line is dropped; a cell that is not a number, or out of range, is null; a duplicate sample counts once; a file without rows, or none at
all, is None. Columns that nothing uses are not read.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import polars as pl

from seatrial.core.files import open_file
from seatrial.core.paths import AttemptPaths
from seatrial.core.text import MIB, count_were
from seatrial.records.attempt import Attempt
from seatrial.records.caution import Caution
from seatrial.records.stored import HostFolder, host_folders
from seatrial.records.telemetry import (
    GPUS_A_HOST,
    HOST_INDEX,
    MAX_VALUES,
    MAY_BE_NEGATIVE,
    TEXT_COLUMNS,
    SamplerAccount,
    TelemetryAccount,
    TelemetryTables,
)

GPU_READ = (
    "epoch_sec", "gpu_index", "temp_c", "util_gpu_pct", "power_w", "sm_clock_mhz", "mem_used_mib", "mem_total_mib", "mem_free_mib",
    "energy_j", "power_limit_w", "throttle_reasons", "pcie_rx_kib_per_s", "pcie_tx_kib_per_s", "foreign_process_count",
)  # fmt: skip
HOST_READ = (
    "epoch_sec", "load1", "cpu_user_pct", "cpu_system_pct", "cpu_steal_pct", "mem_total_kib", "mem_available_kib", "rss_kib",
    "train_rss_kib", "tree_cpu_pct", "disk_read_kib_per_s", "disk_write_kib_per_s", "net_rx_kib_per_s", "net_tx_kib_per_s",
)  # fmt: skip
LARGEST_FILE_BYTES = 512 * MIB
"""A fortnight of eight GPUs, sampled every two seconds. The rest is not read."""
LARGEST_VALUE = 1e15
"""No cell of ours is larger."""
PERCENTAGES = ("util_gpu_pct", "util_mem_pct", "cpu_user_pct", "cpu_system_pct", "cpu_idle_pct", "cpu_iowait_pct", "cpu_steal_pct")
LARGEST_PCT = 101.0
"""100 with rounding."""


@dataclass(frozen=True, kw_only=True)
class Samples:
    """What could be read of one file."""

    table: pl.DataFrame | None = None
    rows_left_out: int = 0
    """Rows without a time, and duplicates."""
    bad_cells: int = 0
    """Numbers out of range."""
    problem: str = ""
    """Why nothing could be read, where there is a file."""


def read_telemetry(attempt: Attempt, ahead: Mapping[Path, Samples] | None = None) -> TelemetryTables:
    """Both tables, of all hosts; files that are empty by their account are not opened. `ahead`: files already read."""
    folders = host_folders(AttemptPaths(Path(attempt.folder)), attempt.nodes)
    accounts = [attempt.telemetry, *(attempt.node_telemetry.get(folder.name) for folder in folders[1:])]
    read = [_read_host(attempt, folder, account, ahead or {}) for folder, account in zip(folders, accounts, strict=True)]
    return merge_hosts(read, folders) if len(read) > 1 else samples_on_harness_clock(read[0], folders[0].offset_s)


def _read_host(attempt: Attempt, folder: HostFolder, account: TelemetryAccount | None, ahead: Mapping[Path, Samples]) -> TelemetryTables:
    tables: list[pl.DataFrame | None] = []
    cautions: list[Caution] = []
    host_suffix = f" of {folder.name}" if folder.name else ""
    for path, columns, sampler in (
        (folder.paths.gpu_telemetry, GPU_READ, account.gpu if account else None),
        (folder.paths.host_telemetry, HOST_READ, account.host if account else None),
    ):
        is_empty = account is not None and (sampler is None or sampler.empty)
        samples = Samples() if is_empty else ahead.get(path) or read_sample_file(path, columns)
        tables.append(samples.table)
        cautions += _cautions(samples, f"{path.name}{host_suffix}", sampler)
    run_cautions = tuple(replace(caution, subject=attempt.spec.run) for caution in cautions)
    return TelemetryTables(gpu=tables[0], host=tables[1], cautions=run_cautions)


def samples_on_harness_clock(tables: TelemetryTables, offset_s: float) -> TelemetryTables:
    """The samples of a host whose clock was ahead by `offset_s`, converted to the harness's clock."""
    if not offset_s:
        return tables
    gpu, host = (None if table is None else table.with_columns(pl.col("epoch_sec") - offset_s) for table in (tables.gpu, tables.host))
    return TelemetryTables(gpu=gpu, host=host, cautions=tables.cautions)


def merge_hosts(read: Sequence[TelemetryTables], folders: Sequence[HostFolder]) -> TelemetryTables:
    """One table of each kind, by time, in which rows show their host and GPU indices of two hosts differ."""
    moved = [samples_on_harness_clock(tables, folder.offset_s) for tables, folder in zip(read, folders, strict=True)]
    gpu = [
        tables.gpu.with_columns(pl.col("gpu_index") + float(index * GPUS_A_HOST))
        for index, tables in enumerate(moved)
        if tables.gpu is not None and "gpu_index" in tables.gpu.columns
    ]
    host = [
        tables.host.with_columns(pl.lit(float(index)).alias(HOST_INDEX)) for index, tables in enumerate(moved) if tables.host is not None
    ]
    return TelemetryTables(
        gpu=pl.concat(gpu, how="diagonal").sort("epoch_sec", maintain_order=True) if gpu else None,
        host=pl.concat(host, how="diagonal").sort("epoch_sec", maintain_order=True) if host else None,
        cautions=_merge_cautions([caution for tables in moved for caution in tables.cautions]),
        hosts=tuple(folder.name for folder in folders),
    )


def _merge_cautions(cautions: Sequence[Caution]) -> tuple[Caution, ...]:
    """One caution of each kind, with the number of its files."""
    by_kind: dict[str, list[Caution]] = {}
    for caution in cautions:
        by_kind.setdefault(caution.kind, []).append(caution)
    return tuple(
        replace(each[0], text=f"{each[0].text} The same holds for {len(each) - 1} more files.") if len(each) > 1 else each[0]
        for each in by_kind.values()
    )


def read_samples(path: Path, columns: tuple[str, ...]) -> pl.DataFrame | None:
    """Those of `columns` that the file has; None without a usable file."""
    return read_sample_file(path, columns).table


def read_sample_file(path: Path, columns: tuple[str, ...]) -> Samples:
    """Those of `columns` that the file has (`epoch_sec` it must have), and what was skipped."""
    try:
        with open_file(path) as source:
            data = source.read(min(os.fstat(source.fileno()).st_size, LARGEST_FILE_BYTES))
    except FileNotFoundError:
        return Samples()
    except OSError as error:
        return Samples(problem=error.strerror or "it cannot be read")
    # Half a number looks like a whole one: an unfinished line is not read.
    header, _, rows = data[: data.rfind(b"\n") + 1].partition(b"\n")
    names = _column_names(header)
    if names is None:
        return Samples(problem="it has no header with the column names")
    table = _parse(rows, names, columns) if rows else None
    return Samples() if table is None else _checked(table)


def _column_names(header: bytes) -> list[str] | None:
    names = header.decode("utf-8", errors="replace").strip().split(",")
    return names if "epoch_sec" in names and len(set(names)) == len(names) else None


def read_sample_batch(texts: Mapping[Path, bytes], columns: tuple[str, ...]) -> dict[Path, Samples]:
    """`read_sample_file` for files with a final newline, in one pass per header. A header with a file that is not clean is left out."""
    by_header: dict[bytes, dict[Path, bytes]] = {}
    for path, text in texts.items():
        header, _, rows = text.partition(b"\n")
        if rows and text.isascii():
            by_header.setdefault(header, {})[path] = rows
    found: dict[Path, Samples] = {}
    for header, files in by_header.items():
        names = _column_names(header)
        found |= _parse_batch(files, names, columns) if names else {}
    return found


def _parse_batch(files: Mapping[Path, bytes], names: list[str], columns: tuple[str, ...]) -> dict[Path, Samples]:
    counts = [rows.count(b"\n") for rows in files.values()]
    table = _parse(b"".join(files.values()), names, columns)
    # A malformed line would shift the rows of one file into another.
    if table is None or len(table) != sum(counts) or not _is_clean(table):
        return {}
    found, start = {}, 0
    for path, count in zip(files, counts, strict=True):
        kept = _by_time(table.slice(start, count))
        found[path] = Samples(table=kept, rows_left_out=count - len(kept))
        start += count
    return found


def _parse(rows: bytes, names: list[str], columns: tuple[str, ...]) -> pl.DataFrame | None:
    schema = {name: pl.String if name in TEXT_COLUMNS else pl.Float64 for name in names}
    # polars rejects a whole file for invalid UTF-8.
    text = rows if rows.isascii() else rows.decode("utf-8", errors="replace").encode()
    try:
        return pl.read_csv(
            text,
            has_header=False,
            columns=[position for position, name in enumerate(names) if name in columns],
            schema=schema,
            quote_char=None,
            ignore_errors=True,
            truncate_ragged_lines=True,
        )
    except pl.exceptions.PolarsError:
        return None


def _checked(table: pl.DataFrame) -> Samples:
    if _is_clean(table):
        kept = _by_time(table)
        return Samples(table=kept, rows_left_out=len(table) - len(kept))
    columns, bad_cells = {}, 0
    for name in table.columns:
        if table[name].dtype != pl.Float64:
            continue
        values = table[name].to_numpy()
        low, high = _range(name)
        # An empty cell is NaN here too, and not out of range.
        bad = ~np.isnan(values) & ~((values >= low) & (values <= high))
        if bad.any() or (np.isnan(values).sum() > table[name].null_count()):
            columns[name] = pl.Series(name, np.where(bad, np.nan, values)).fill_nan(None)
            bad_cells += int(bad.sum())
    kept = table.with_columns(**columns) if columns else table
    kept = kept.drop_nulls("epoch_sec") if kept["epoch_sec"].null_count() else kept
    kept = _by_time(kept)
    return Samples(table=kept, rows_left_out=len(table) - len(kept), bad_cells=bad_cells)


def _is_clean(table: pl.DataFrame) -> bool:
    """Whether every number is in range and every row has a time, as in most files: one comparison."""
    names = [name for name in table.columns if table[name].dtype == pl.Float64]
    values = np.column_stack([table[name].to_numpy() for name in names])
    low, high = np.array([_range(name) for name in names]).T
    nulls = sum(table[name].null_count() for name in names)
    return not (
        table["epoch_sec"].null_count() or ((values < low) | (values > high)).any() or int(np.count_nonzero(np.isnan(values))) != nulls
    )


def _range(name: str) -> tuple[float, float]:
    high = LARGEST_PCT if name in PERCENTAGES else MAX_VALUES.get(name, LARGEST_VALUE)
    return -LARGEST_VALUE if name in MAY_BE_NEGATIVE else 0.0, high


def _by_time(table: pl.DataFrame) -> pl.DataFrame:
    """One row for each moment (and GPU), sorted by time; the same table if it is already so."""
    key = [name for name in ("epoch_sec", "gpu_index") if name in table.columns]
    later = np.diff(table["epoch_sec"].to_numpy())
    # The sampler writes the GPUs of one moment in the order of their indices.
    follows = (later > 0) if len(key) == 1 else (later > 0) | ((later == 0) & (np.diff(table["gpu_index"].to_numpy()) > 0))
    if bool(follows.all()):
        return table
    return table.unique(key, keep="first", maintain_order=True).sort("epoch_sec", maintain_order=True)


def _cautions(samples: Samples, file: str, account: SamplerAccount | None) -> Iterator[Caution]:
    if samples.problem:
        text = f"{file} cannot be used ({samples.problem}) and was skipped, so the machine's telemetry is unknown."
        yield Caution(kind="unreadable_file", text=text)
    skipped = [count_were(number, what) for number, what in ((samples.rows_left_out, "row"), (samples.bad_cells, "number")) if number]
    if skipped:
        text = f"In {file} {' and '.join(skipped)} skipped: without a time, duplicate, or out of range."
        yield Caution(kind="bad_rows", numbers={"rows": samples.rows_left_out, "numbers": samples.bad_cells}, text=text)
    num_read = (0 if samples.table is None else len(samples.table)) + samples.rows_left_out
    lost = max(0, account.rows - num_read) if account else 0
    if lost and not samples.problem:
        text = f"{file} lacks {lost} of the rows that the sampler wrote; telemetry figures are of the rest."
        yield Caution(kind="rows_lost", numbers={"rows": lost}, text=text)
