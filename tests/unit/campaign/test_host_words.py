"""How an outcome speaks of the host on which a run broke."""

from __future__ import annotations

import pytest

from seatrial.campaign.host_words import host_of_rank, with_host, with_its_log
from seatrial.records.nodes import NodeRecord

NODES = (NodeRecord(name="a", node_rank=0, first_rank=0, ranks=2), NodeRecord(name="b", node_rank=1, first_rank=2, ranks=1))


@pytest.mark.parametrize(("rank", "host"), [(0, "a"), (1, "a"), (2, "b"), (3, ""), (None, "")])
def test_the_host_of_a_rank(rank: int | None, host: str) -> None:
    assert host_of_rank(NODES, rank) == host
    assert host_of_rank((), rank) == ""


def test_the_host_stands_before_what_happened_once() -> None:
    assert with_host("ValueError: x", "node2") == "on node2: ValueError: x"
    assert with_host("node2 was lost", "node2") == "node2 was lost"
    assert with_host("ValueError: x", "") == "ValueError: x" and with_host("", "node2") == ""


def test_advice_names_the_log_of_the_host_that_broke() -> None:
    assert with_its_log("Read the end of launcher.log.", "b", NODES) == "Read the end of nodes/b/launcher.log."
    for host in ("a", ""):
        assert with_its_log("Read the end of launcher.log.", host, NODES) == "Read the end of launcher.log."
    assert with_its_log("Read launcher.log", "x", ()) == "Read nodes/x/launcher.log"
