"""What the agent says of the kernel's OOM killer reaches the ending."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from seatrial.campaign.follow import Follower
from seatrial.campaign.interrupts import Urgency
from seatrial.paths import AttemptPaths
from seatrial.records.command import AgentReport
from tests.unit.analyse.factory import spec

REPORTS = (AgentReport(kind="exited", t=1.0, returncode=-9, oom_kills="oom_kill 3 → 4 in its cgroup"), AgentReport(kind="gone", t=1.0))


class _Agent:
    def wait(self, timeout_s: float) -> list[AgentReport]:
        return list(REPORTS)

    def close(self) -> None: ...

    def nodes(self) -> tuple[()]:
        return ()


class _NoWish:
    urgency = Urgency.NONE


def test_a_counter_that_rose_is_part_of_the_ending(tmp_path: Path) -> None:
    wishes: Any = _NoWish()
    agent: Any = _Agent()
    ending = Follower(spec(), AttemptPaths(tmp_path), wishes, lambda *told: None, lambda: None).follow(lambda: agent)
    assert (ending.returncode, ending.oom_kills) == (-9, "oom_kill 3 → 4 in its cgroup")
