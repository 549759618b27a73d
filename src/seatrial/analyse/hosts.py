"""Samples of many hosts, told apart.

In: the tables of a run (records.telemetry.TelemetryTables) and the names of its hosts, none for a run on one. Out: the table of each host,
the name of a GPU (its number, and on many hosts `node2:0`), and of the same cause on many hosts one.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

import numpy as np
import polars as pl

from seatrial.analyse.column import column
from seatrial.records.health import UnevenCause
from seatrial.records.telemetry import GPUS_A_HOST, HOST_INDEX


def gpu_name(index: float, hosts: Sequence[str]) -> int | str:
    """A number where there is one host."""
    host, own = divmod(int(index), GPUS_A_HOST)
    return f"{hosts[host]}:{own}" if host < len(hosts) else int(index)


def of_hosts(table: pl.DataFrame | None, hosts: Sequence[str]) -> Iterator[tuple[str, pl.DataFrame]]:
    """(host, its rows) of a table of hosts or of GPUs; of one host the table as it is, under an empty name."""
    if table is None or table.is_empty():
        return
    if not hosts:
        yield "", table
        return
    own = column(table, HOST_INDEX) if HOST_INDEX in table.columns else np.floor(column(table, "gpu_index") / GPUS_A_HOST)
    for at, name in enumerate(hosts):
        rows = np.flatnonzero(own == at)
        if len(rows):
            yield name, table[rows]


def strongest(found: Iterable[tuple[str, UnevenCause]]) -> Iterator[UnevenCause]:
    """Of each kind of cause the host that shows it most, named, and how many others do: sixty hosts are not sixty causes."""
    kinds: dict[str, list[tuple[str, UnevenCause]]] = defaultdict(list)
    for host, cause in found:
        kinds[cause.kind].append((host, cause))
    for shown in kinds.values():
        host, worst = max(shown, key=lambda pair: pair[1].strength)
        if not host:
            yield worst
            continue
        also = f" So it is on {len(shown) - 1} more of the hosts." if len(shown) > 1 else ""
        yield replace(worst, text=f"Host {host}: {worst.text}{also}", numbers={**worst.numbers, "host": host, "hosts": len(shown)})
