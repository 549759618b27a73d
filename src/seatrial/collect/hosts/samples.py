"""Samples of many hosts as one.

In: the tables of each host, as collect.telemetry read them, and the hosts' clocks. Out: one `TelemetryTables` by the harness's clock, in
which no GPU of one host is taken for one of another and every row of a host can be told from the others'.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import polars as pl

from seatrial.collect.hosts.folders import HostFolder
from seatrial.collect.hosts.one_clock import samples_on_one_clock
from seatrial.records.caution import Caution
from seatrial.records.telemetry import GPUS_A_HOST, HOST_INDEX, TelemetryTables


def together(read: Sequence[TelemetryTables], folders: Sequence[HostFolder]) -> TelemetryTables:
    """One table of each kind, by time, whose rows tell their host (records.telemetry.TelemetryTables)."""
    moved = [samples_on_one_clock(tables, folder.offset_s) for tables, folder in zip(read, folders, strict=True)]
    gpu = [_numbered(tables.gpu, at) for at, tables in enumerate(moved) if tables.gpu is not None and "gpu_index" in tables.gpu.columns]
    host = [tables.host.with_columns(pl.lit(float(at)).alias(HOST_INDEX)) for at, tables in enumerate(moved) if tables.host is not None]
    return TelemetryTables(
        gpu=pl.concat(gpu, how="diagonal").sort("epoch_sec", maintain_order=True) if gpu else None,
        host=pl.concat(host, how="diagonal").sort("epoch_sec", maintain_order=True) if host else None,
        cautions=_of_many([tables.cautions for tables in moved]),
        hosts=tuple(folder.name for folder in folders),
    )


def _numbered(table: pl.DataFrame, host: int) -> pl.DataFrame:
    return table.with_columns(pl.col("gpu_index") + float(host * GPUS_A_HOST))


def _of_many(found: Sequence[Sequence[Caution]]) -> tuple[Caution, ...]:
    """One of each kind, with the number of hosts it holds of: what is said of sixty hosts is said once."""
    kinds: dict[str, list[Caution]] = {}
    for cautions in found:
        for caution in cautions:
            kinds.setdefault(caution.kind, []).append(caution)
    return tuple(
        replace(each[0], text=f"{each[0].text} So it is with {len(each) - 1} more files.") if len(each) > 1 else each[0]
        for each in kinds.values()
    )
