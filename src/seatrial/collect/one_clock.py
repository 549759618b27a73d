"""Step times of many hosts by one clock.

In: a step table, whose `t` each rank told by its own host's wall clock, and the offsets that were measured. Out: the table with `t` by the
harness's. `m` stays: it is told from step to step of one rank only.
"""

from __future__ import annotations

import numpy as np
import polars as pl

from seatrial.records.nodes import NodesRecord


def on_one_clock(steps: pl.DataFrame, nodes: NodesRecord | None) -> pl.DataFrame:
    """The step table with `t` by the harness's clock; as it is where no clock was off."""
    off = [node for node in nodes.nodes if node.clock_offset_s] if nodes is not None else []
    if not off or steps.is_empty():
        return steps
    rank = steps["rank"].to_numpy()
    ahead_s = np.zeros(len(rank))
    for node in off:
        ahead_s[(rank >= node.first_rank) & (rank < node.first_rank + node.ranks)] = node.clock_offset_s
    return steps.with_columns(t=pl.col("t") - pl.Series(ahead_s))
