"""The samples of one attempt, read back.

In: an attempt's folder and its account. Out: `TelemetryTables`. A line torn by a kill or by a file system that lost its end is left
out; a cell that is no number is null; a file without rows, or none at all, is None. Columns that no figure is made of are not read.
"""

from __future__ import annotations

from pathlib import Path

import polars as pl

from seatrial.paths import AttemptPaths
from seatrial.records.attempt import Attempt
from seatrial.records.telemetry import TEXT_COLUMNS, TelemetryTables

GPU_READ = (
    "epoch_sec", "gpu_index", "temp_c", "util_gpu_pct", "power_w", "sm_clock_mhz", "mem_used_mib", "energy_j", "throttle_reasons",
    "foreign_process_count",
)  # fmt: skip
HOST_READ = ("epoch_sec", "cpu_user_pct", "cpu_system_pct", "cpu_steal_pct", "mem_available_kib", "rss_kib")


def read_telemetry(attempt: Attempt) -> TelemetryTables:
    """Both tables; the account, where there is one, spares a look for files that it says are empty."""
    paths, account = AttemptPaths(Path(attempt.folder)), attempt.telemetry
    skip_gpu = account is not None and (account.gpu is None or account.gpu.empty)
    skip_host = account is not None and (account.host is None or account.host.empty)
    return TelemetryTables(
        gpu=None if skip_gpu else read_samples(paths.gpu_telemetry, GPU_READ),
        host=None if skip_host else read_samples(paths.host_telemetry, HOST_READ),
    )


def read_samples(path: Path, columns: tuple[str, ...]) -> pl.DataFrame | None:
    """Those of `columns` that the file has (`epoch_sec` it must have), row by row."""
    try:
        data = path.read_bytes()
    except OSError:
        return None
    # Half a number looks like a whole one: only lines that have their end are read.
    header, _, rows = data[: data.rfind(b"\n") + 1].partition(b"\n")
    names = header.decode("utf-8", errors="replace").strip().split(",")
    if not rows or "epoch_sec" not in names or len(set(names)) != len(names):
        return None
    schema = {name: pl.String if name in TEXT_COLUMNS else pl.Float64 for name in names}
    try:
        table = pl.read_csv(
            rows,
            has_header=False,
            columns=[position for position, name in enumerate(names) if name in columns],
            schema=schema,
            quote_char=None,
            ignore_errors=True,
            truncate_ragged_lines=True,
        )
    except pl.exceptions.PolarsError:
        return None
    return table.drop_nulls("epoch_sec") if table["epoch_sec"].null_count() else table
