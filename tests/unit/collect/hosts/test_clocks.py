"""How the hosts' clocks stood to the harness's."""

from __future__ import annotations

import pytest

from seatrial.collect.hosts.clocks import offset_of, skew_cautions
from seatrial.records.nodes import SKEW_S, NodeRecord, NodesRecord


def record(*offsets_s: float | None) -> NodesRecord:
    return NodesRecord(
        nodes=tuple(NodeRecord(name=f"n{at}", node_rank=at, first_rank=at, ranks=1, clock_offset_s=one) for at, one in enumerate(offsets_s))
    )


@pytest.mark.parametrize("nodes", [None, NodesRecord(), record(None, 0.0, SKEW_S, -SKEW_S)])
def test_nothing_is_said_of_clocks_that_a_time_service_keeps(nodes: NodesRecord | None) -> None:
    assert list(skew_cautions("mb8_r1", nodes)) == []


def test_the_worst_stands_first_and_the_rest_is_counted() -> None:
    (caution,) = skew_cautions("mb8_r1", record(0.0, 2.0, -3600.0, 3.0, 4.0, 5.0))
    assert caution.text.startswith(
        "Clocks of hosts were not the harness's: n2 1h 00m behind, n5 5.0 s ahead, n4 4.0 s ahead, n3 3.0 s ahead and 1 more."
    )
    assert caution.numbers == {"host": "n2", "seconds": -3600.0, "hosts": 5}


def test_a_rank_whose_host_is_not_known_was_not_off() -> None:
    assert [offset_of(record(None, 7.0), rank) for rank in (0, 1, 9)] == [0.0, 7.0, 0.0] and offset_of(None, 0) == 0.0
