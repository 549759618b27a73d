"""Times of many hosts by one clock."""

from __future__ import annotations

import polars as pl

from seatrial.collect.hosts.one_clock import samples_on_one_clock, steps_on_one_clock
from seatrial.collect.step_schema import empty_steps
from seatrial.records.nodes import NodeRecord, NodesRecord
from seatrial.records.telemetry import TelemetryTables
from tests.unit.analyse import factory

NODES = NodesRecord(
    nodes=(
        NodeRecord(name="a", node_rank=0, first_rank=0, ranks=1, clock_offset_s=0.0),
        NodeRecord(name="b", node_rank=1, first_rank=1, ranks=2, clock_offset_s=3600.0),
        NodeRecord(name="c", node_rank=2, first_rank=3, ranks=1),
    )
)


def test_each_rank_is_moved_by_its_hosts_offset_and_no_other_column_is() -> None:
    steps = pl.concat([factory.steps_of([50.0, 50.0], rank=rank) for rank in range(4)])
    moved = steps_on_one_clock(steps, NODES)
    behind_s = (steps["t"] - moved["t"]).round(6).to_list()
    assert behind_s == [0.0, 0.0, 3600.0, 3600.0, 3600.0, 3600.0, 0.0, 0.0]
    assert moved.drop("t").equals(steps.drop("t"))


def test_steps_are_as_they_are_where_no_clock_was_off() -> None:
    steps = factory.steps_of([50.0])
    assert steps_on_one_clock(steps, None) is steps
    assert steps_on_one_clock(steps, NodesRecord()) is steps
    empty = empty_steps()
    assert steps_on_one_clock(empty, NODES) is empty


def test_samples_are_moved_in_both_tables() -> None:
    tables = TelemetryTables(gpu=pl.DataFrame({"epoch_sec": [100.0, 101.0], "power_w": [1.0, 2.0]}), host=None)
    moved = samples_on_one_clock(tables, 90.0)
    assert moved.gpu is not None and moved.gpu.to_dict(as_series=False) == {"epoch_sec": [10.0, 11.0], "power_w": [1.0, 2.0]}
    assert moved.host is None and samples_on_one_clock(tables, 0.0) is tables
