"""Following a run on many hosts: how a host was lost, and how long the end of all of them is waited for. The clock is the test's own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from seatrial.campaign.ending import RankRecord, judge_ending
from seatrial.campaign.follow import HOSTS_KILL_PATIENCE_S, KILL_PATIENCE_S, Follower
from seatrial.campaign.interrupts import Urgency
from seatrial.launch.transports.leftovers import PATIENCE_S as LEFTOVERS_PATIENCE_S
from seatrial.paths import AttemptPaths
from seatrial.records.command import AgentReport
from seatrial.records.line import LEASE_S
from seatrial.records.nodes import NodeRecord
from tests.unit.analyse.factory import spec

SENTENCE = "nothing was heard of the harness for 21 s"
NODES = (NodeRecord(name="node1"), NodeRecord(name="node2", node_rank=1, first_rank=1))


class _Time:
    """One second a turn."""

    def __init__(self) -> None:
        self.now_m = 0.0

    def __call__(self) -> float:
        return self.now_m


class _Agents:
    """Say `reports` and then nothing; whoever waits for them lets time go by."""

    def __init__(self, clock: _Time, nodes: tuple[NodeRecord, ...], reports: list[AgentReport]) -> None:
        self.clock, self._nodes, self._reports = clock, nodes, reports
        self.killed_m: float | None = None

    def wait(self, timeout_s: float) -> list[AgentReport]:
        self.clock.now_m += 1.0
        said, self._reports = self._reports, []
        return said

    def nodes(self) -> tuple[NodeRecord, ...]:
        return self._nodes

    def kill(self) -> None:
        self.killed_m = self.clock.now_m

    def stacks(self) -> None: ...

    def stop(self) -> None: ...

    def close(self) -> None: ...


class _Wish:
    def __init__(self, urgency: Urgency) -> None:
        self.urgency = urgency


@pytest.fixture
def clock() -> _Time:
    return _Time()


def _followed(folder: Path, agents: _Agents, urgency: Urgency = Urgency.NONE) -> Any:
    wish: Any = _Wish(urgency)
    given: Any = agents
    follower = Follower(spec(), AttemptPaths(folder), wish, lambda *told: None, lambda: None, monotonic=agents.clock)
    return follower.follow(lambda: given)


@pytest.mark.parametrize(("silent", "signature"), [(False, "node_gone"), (True, "node_silent")])
def test_silence_is_told_by_the_report_and_not_by_its_words(tmp_path: Path, clock: _Time, silent: bool, signature: str) -> None:
    lost = AgentReport(kind="node_lost", t=1.0, host="node2", detail=f"it closed; its last words: {SENTENCE}", silent=silent)
    ending = _followed(tmp_path, _Agents(clock, NODES, [lost, AgentReport(kind="gone", t=1.0)]))
    assert [(host.host, host.silent) for host in ending.lost_hosts] == [("node2", silent)]
    assert judge_ending(ending, RankRecord(), world_size=2, steps=None).signature == signature


@pytest.mark.parametrize(("nodes", "patience_s"), [((), KILL_PATIENCE_S), (NODES, HOSTS_KILL_PATIENCE_S)])
def test_the_end_of_many_hosts_is_waited_for_longer(tmp_path: Path, clock: _Time, nodes: tuple[NodeRecord, ...], patience_s: float) -> None:
    agents = _Agents(clock, nodes, [])
    ending = _followed(tmp_path, agents, Urgency.KILL)
    assert ending.agent_lost and agents.killed_m is not None
    assert clock.now_m - agents.killed_m == pytest.approx(patience_s, abs=1.0)
    assert HOSTS_KILL_PATIENCE_S > LEASE_S + LEFTOVERS_PATIENCE_S
