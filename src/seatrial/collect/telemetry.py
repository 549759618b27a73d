"""The samples of one attempt, read back.

In: an attempt's folder and its accounts. Out: `TelemetryTables` of all its hosts, by time on the harness's clock. A line torn by a kill or
by a file system that lost its end is left out; a cell that is no number, or one that cannot be, is null; a sample written twice counts
once; a file without rows, or none at all, is None. Columns that no figure is made of, and that nobody draws, are not read.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import polars as pl

from seatrial.collect.hosts.folders import HostFolder, host_folders
from seatrial.collect.hosts.one_clock import samples_on_one_clock
from seatrial.collect.hosts.samples import together
from seatrial.files import open_file
from seatrial.paths import AttemptPaths
from seatrial.records.attempt import Attempt
from seatrial.records.caution import Caution
from seatrial.records.telemetry import MAY_BE_NEGATIVE, MOST_OF, TEXT_COLUMNS, SamplerAccount, TelemetryAccount, TelemetryTables
from seatrial.units import MIB
from seatrial.wording import were

GPU_READ = (
    "epoch_sec", "gpu_index", "temp_c", "util_gpu_pct", "power_w", "sm_clock_mhz", "mem_used_mib", "mem_total_mib", "mem_free_mib",
    "energy_j", "power_limit_w", "throttle_reasons", "pcie_rx_kib_per_s", "pcie_tx_kib_per_s", "foreign_process_count",
)  # fmt: skip
HOST_READ = (
    "epoch_sec", "load1", "cpu_user_pct", "cpu_system_pct", "cpu_steal_pct", "mem_total_kib", "mem_available_kib", "rss_kib",
    "train_rss_kib", "tree_cpu_pct", "disk_read_kib_per_s", "disk_write_kib_per_s", "net_rx_kib_per_s", "net_tx_kib_per_s",
)  # fmt: skip
LARGEST_FILE_BYTES = 512 * MIB
"""A fortnight of eight GPUs, sampled every two seconds. What stands beyond is not read."""
MOST = 1e15
"""No cell of ours is larger, and of some none comes near it."""
SHARES = ("util_gpu_pct", "util_mem_pct", "cpu_user_pct", "cpu_system_pct", "cpu_idle_pct", "cpu_iowait_pct", "cpu_steal_pct")
MOST_PCT = 101.0
"""A share of a whole, with what rounding may add."""


@dataclass(frozen=True, kw_only=True)
class Samples:
    """What could be read of one file."""

    table: pl.DataFrame | None = None
    rows_left_out: int = 0
    """Rows without a time, or written twice."""
    bad_cells: int = 0
    """Numbers that cannot be."""
    problem: str = ""
    """Why nothing could be read, where there is a file."""


def read_telemetry(attempt: Attempt, ahead: Mapping[Path, Samples] | None = None) -> TelemetryTables:
    """Both tables, of all hosts; the account, where there is one, spares a look for files that it says are empty. `ahead` are files that
    have been read already."""
    folders = host_folders(AttemptPaths(Path(attempt.folder)), attempt.nodes)
    accounts = [attempt.telemetry, *(attempt.node_telemetry.get(folder.name) for folder in folders[1:])]
    read = [_of_host(attempt, folder, account, ahead or {}) for folder, account in zip(folders, accounts, strict=True)]
    if len(read) == 1:
        return samples_on_one_clock(read[0], folders[0].offset_s)
    return together(read, folders)


def _of_host(attempt: Attempt, folder: HostFolder, account: TelemetryAccount | None, known: Mapping[Path, Samples]) -> TelemetryTables:
    paths = folder.paths
    skip_gpu = account is not None and (account.gpu is None or account.gpu.empty)
    skip_host = account is not None and (account.host is None or account.host.empty)
    gpu = Samples() if skip_gpu else known.get(paths.gpu_telemetry) or read_sample_file(paths.gpu_telemetry, GPU_READ)
    host = Samples() if skip_host else known.get(paths.host_telemetry) or read_sample_file(paths.host_telemetry, HOST_READ)
    of = f" of {folder.name}" if folder.name else ""
    cautions = [
        *_cautions(gpu, f"{paths.gpu_telemetry.name}{of}", account.gpu if account else None, attempt.spec.run),
        *_cautions(host, f"{paths.host_telemetry.name}{of}", account.host if account else None, attempt.spec.run),
    ]
    return TelemetryTables(gpu=gpu.table, host=host.table, cautions=tuple(cautions))


def read_samples(path: Path, columns: tuple[str, ...]) -> pl.DataFrame | None:
    """Those of `columns` that the file has (`epoch_sec` it must have), row by row."""
    return read_sample_file(path, columns).table


def read_sample_file(path: Path, columns: tuple[str, ...]) -> Samples:
    """The same, and what was passed over."""
    try:
        with open_file(path) as source:
            data = source.read(min(os.fstat(source.fileno()).st_size, LARGEST_FILE_BYTES))
    except FileNotFoundError:
        return Samples()
    except OSError as error:
        return Samples(problem=error.strerror or "it cannot be read")
    # Half a number looks like a whole one: only lines that have their end are read.
    header, _, rows = data[: data.rfind(b"\n") + 1].partition(b"\n")
    names = header.decode("utf-8", errors="replace").strip().split(",")
    if "epoch_sec" not in names or len(set(names)) != len(names):
        return Samples(problem="it does not begin with the names of its columns")
    table = _parsed(rows, names, columns) if rows else None
    return Samples() if table is None else _checked(table)


def read_samples_together(texts: Mapping[Path, bytes], columns: tuple[str, ...]) -> dict[Path, Samples]:
    """`read_sample_file` of files that end with a whole line, those that begin with the same names as one text. Files that are not
    clean, and those they were read with, are left out."""
    alike: dict[bytes, dict[Path, bytes]] = {}
    for path, text in texts.items():
        header, _, rows = text.partition(b"\n")
        if rows and text.isascii():
            alike.setdefault(header, {})[path] = rows
    found: dict[Path, Samples] = {}
    for header, files in alike.items():
        names = header.decode().strip().split(",")
        if "epoch_sec" in names and len(set(names)) == len(names):
            found |= _parsed_together(files, names, columns)
    return found


def _parsed_together(files: Mapping[Path, bytes], names: list[str], columns: tuple[str, ...]) -> dict[Path, Samples]:
    lines = [rows.count(b"\n") for rows in files.values()]
    table = _parsed(b"".join(files.values()), names, columns)
    # A line that is no row would put the rows of one file among those of another.
    if table is None or len(table) != sum(lines) or not _is_clean(table):
        return {}
    found, start = {}, 0
    for path, count in zip(files, lines, strict=True):
        kept = _by_time(table.slice(start, count))
        found[path] = Samples(table=kept, rows_left_out=count - len(kept))
        start += count
    return found


def _parsed(rows: bytes, names: list[str], columns: tuple[str, ...]) -> pl.DataFrame | None:
    schema = {name: pl.String if name in TEXT_COLUMNS else pl.Float64 for name in names}
    # Bytes that are no UTF-8 would make polars refuse the whole file.
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
    columns, bad = {}, 0
    for name in table.columns:
        if table[name].dtype != pl.Float64:
            continue
        values = table[name].to_numpy()
        # An empty cell is NaN here too, and none that cannot be.
        odd = ~np.isnan(values) & ~((values >= (-MOST if name in MAY_BE_NEGATIVE else 0)) & (values <= _most(name)))
        if odd.any() or (np.isnan(values).sum() > table[name].null_count()):
            columns[name] = pl.Series(name, np.where(odd, np.nan, values)).fill_nan(None)
            bad += int(odd.sum())
    kept = table.with_columns(**columns) if columns else table
    kept = kept.drop_nulls("epoch_sec") if kept["epoch_sec"].null_count() else kept
    kept = _by_time(kept)
    return Samples(table=kept, rows_left_out=len(table) - len(kept), bad_cells=bad)


def _is_clean(table: pl.DataFrame) -> bool:
    """Whether every number is one that can be and every row has its time: so it is in most files, and is seen at a glance."""
    numbers = [name for name in table.columns if table[name].dtype == pl.Float64]
    values = np.column_stack([table[name].to_numpy() for name in numbers])
    least = np.array([-MOST if name in MAY_BE_NEGATIVE else 0.0 for name in numbers])
    most = np.array([_most(name) for name in numbers])
    nulls = sum(table[name].null_count() for name in numbers)
    return not (
        table["epoch_sec"].null_count() or ((values < least) | (values > most)).any() or int(np.count_nonzero(np.isnan(values))) != nulls
    )


def _most(name: str) -> float:
    return MOST_PCT if name in SHARES else MOST_OF.get(name, MOST)


def _by_time(table: pl.DataFrame) -> pl.DataFrame:
    """One row for each moment (and GPU), in the order of time; as written where that is so already."""
    key = [name for name in ("epoch_sec", "gpu_index") if name in table.columns]
    later = np.diff(table["epoch_sec"].to_numpy())
    # Of one moment, every GPU after the one before it: the way the sampler writes them.
    follows = (later > 0) if len(key) == 1 else (later > 0) | ((later == 0) & (np.diff(table["gpu_index"].to_numpy()) > 0))
    if bool(follows.all()):
        return table
    return table.unique(key, keep="first", maintain_order=True).sort("epoch_sec", maintain_order=True)


def _cautions(samples: Samples, file: str, account: SamplerAccount | None, run: str) -> Iterator[Caution]:
    if samples.problem:
        yield Caution(
            kind="unreadable_file",
            subject=run,
            text=f"{file} cannot be used ({samples.problem}) and was passed over, so what the machine did meanwhile is not known.",
        )
    passed = [were(number, what) for number, what in ((samples.rows_left_out, "row"), (samples.bad_cells, "number")) if number]
    if passed:
        yield Caution(
            kind="bad_rows",
            subject=run,
            numbers={"rows": samples.rows_left_out, "numbers": samples.bad_cells},
            text=f"In {file} {' and '.join(passed)} passed over: without a time, written twice, or such as cannot be.",
        )
    lost = _lost_rows(samples, account)
    if lost and not samples.problem:
        yield Caution(
            kind="rows_lost",
            subject=run,
            numbers={"rows": lost},
            text=f"{file} lacks {lost} of the rows that the sampler wrote, so what is said of the machine is of the rest.",
        )


def _lost_rows(samples: Samples, account: SamplerAccount | None) -> int:
    found = (0 if samples.table is None else len(samples.table)) + samples.rows_left_out
    return max(0, account.rows - found) if account else 0
