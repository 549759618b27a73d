"""Times of many hosts by one clock.

In: a step table, whose `t` each rank told by its own host's wall clock, or a host's samples; and the offsets that were measured. Out: the
same by the harness's clock. `m` stays: it is told from step to step of one rank only.
"""

from __future__ import annotations

import numpy as np
import polars as pl

from seatrial.records.nodes import NodesRecord
from seatrial.records.telemetry import TelemetryTables


def steps_on_one_clock(steps: pl.DataFrame, nodes: NodesRecord | None) -> pl.DataFrame:
    """The step table with `t` by the harness's clock; as it is where no clock was off."""
    off = [node for node in nodes.nodes if node.clock_offset_s] if nodes is not None else []
    if not off or steps.is_empty():
        return steps
    rank = steps["rank"].to_numpy()
    ahead_s = np.zeros(len(rank))
    for node in off:
        ahead_s[(rank >= node.first_rank) & (rank < node.first_rank + node.ranks)] = node.clock_offset_s
    return steps.with_columns(t=pl.col("t") - pl.Series(ahead_s))


def samples_on_one_clock(tables: TelemetryTables, offset_s: float) -> TelemetryTables:
    """The samples of one host by the harness's clock; as they are where its own was not off."""
    if not offset_s:
        return tables
    gpu, host = (None if table is None else table.with_columns(pl.col("epoch_sec") - offset_s) for table in (tables.gpu, tables.host))
    return TelemetryTables(gpu=gpu, host=host, cautions=tables.cautions)
