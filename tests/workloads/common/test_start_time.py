"""Ranks of several nodes agree on rank 0's time, through the store at which they meet."""

from __future__ import annotations

import itertools

import pytest

from seatrial_workloads.common import start_time
from seatrial_workloads.common.start_time import NoCommonTime, shared_start_t

TWO_NODES = {"WORLD_SIZE": "2", "LOCAL_SIZE": "1", "MASTER_ADDR": "node1", "MASTER_PORT": "29500"}


class Store(dict):
    """As torch's, for one process."""

    def compare_set(self, key: str, expected: str, value: str) -> bytes:
        return self.setdefault(key, value).encode()

    def get(self, key: str) -> bytes:
        return self[key].encode()


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int, bool]]:
    """Where the store was asked for, and whether to listen there; each look at the clock is a second later."""
    seen, store, clock = [], Store(), itertools.count(100.0)
    monkeypatch.setattr(start_time, "_store_at", lambda *place: seen.append(place) or store)
    monkeypatch.setattr(start_time.time, "time", lambda: next(clock))
    return seen


def test_every_rank_has_the_first_time_of_rank_0(opened):
    times = [shared_start_t({**TWO_NODES, "RANK": rank}) for rank in "0011"]
    assert times == [100.0] * 4
    assert opened == [("node1", 29500, True)] * 2 + [("node1", 29500, False)] * 2


def test_under_torchrun_nobody_listens_since_the_agent_does_and_a_restart_is_another_start(opened):
    agent = {**TWO_NODES, "RANK": "0", "TORCHELASTIC_USE_AGENT_STORE": "True"}
    assert [shared_start_t({**agent, "TORCHELASTIC_RESTART_COUNT": count}) for count in "01"] == [100.0, 101.0]
    assert opened == [("node1", 29500, False)] * 2


def test_a_master_that_is_not_reached_is_named(monkeypatch):
    def nobody(*place: object) -> object:
        raise RuntimeError("The client socket has timed out after 300000ms while trying to connect to (node1, 29500).\nmore")

    monkeypatch.setattr(start_time, "_store_at", nobody)
    with pytest.raises(
        NoCommonTime, match=r"on several nodes that do not reach rank 0 at node1:29500 \(The client socket has timed out .*\)$"
    ):
        shared_start_t({**TWO_NODES, "RANK": "1"})
