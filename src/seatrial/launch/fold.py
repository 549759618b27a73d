"""Many agents' reports folded into those of one. Pure: reports, losses and times in, reports out, and who is still to be told.

    started   each host's, as it comes
    exited    once, when every host's launcher is over or the host lost; the most telling code that is not zero, 0 only if all are
    stacks    once all hosts that can have answered
    node_lost each host that went before it had said `gone`
    gone      once, when every host is gone or lost, and what the lost ones left was seen to (`settle`)

When one host fails or is lost, the others get a short while to end by themselves, often with a better message than ours, and are then
to be stopped (`is_stop_due`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from seatrial.records.command import AFTER_EFFECT_CODES, AGENT_GOT_TERM, AgentReport, Node
from seatrial.records.line import ClockOffset
from seatrial.records.nodes import NodeRecord
from seatrial.wording import named

# As an agent gives its other ranks when one has failed: they often end by themselves, with a better message than ours.
FAILED_NODE_GRACE_S = 5.0
EXITED, LOST, NOT_STARTED = "exited", "lost", "not_started"
MOST_DETAILS = 4
# What two hosts wrote at the same time is then told apart by what one of them was set to meanwhile.
CLOCK_MOVED_S = 1.0

Offset = Callable[[str], ClockOffset | None]
Moved = Callable[[str], float]
"""Host → the seconds by which its clock has moved against ours while the run ran."""


@dataclass
class _Standing:
    """What is known of one host."""

    node: Node
    host: str = ""
    started: bool = False
    exited: bool = False
    returncode: int | None = None
    gone: bool = False
    lost: str = ""
    detail: str = ""
    killed: int = 0
    oom_kills: str = ""
    settled: bool = True
    """Of a lost one: whether what it left was ended, or could not be."""

    @property
    def is_over(self) -> bool:
        return self.gone or bool(self.lost)

    @property
    def ended(self) -> str:
        if self.lost:
            return LOST
        return EXITED if self.exited else ("" if self.started else NOT_STARTED)


class Fold:
    """All hosts of one run."""

    def __init__(self, nodes: Sequence[Node], settles: bool = False) -> None:
        """`settles`: somebody will call `settle` for every host that is lost."""
        self._settles = settles
        self._standings = {node.name: _Standing(node) for node in nodes}
        self._codes: list[tuple[int, str]] = []
        self._stacks_wanted: set[str] = set()
        self._stacks_told: list[str] = []
        self._stacks_asked = self._exited_said = self._gone_said = False
        self._stop_at = math.inf
        self._is_failing = self._is_stopping = False

    @property
    def is_over(self) -> bool:
        """Whether `gone` was said."""
        return self._gone_said

    def living(self) -> list[str]:
        """Hosts that can be told something."""
        return [name for name, standing in self._standings.items() if not standing.is_over]

    def running(self) -> list[str]:
        """Those whose launcher is not over."""
        return [name for name in self.living() if not self._standings[name].exited]

    def unsettled(self) -> list[str]:
        """Lost hosts on which something may still run."""
        return [name for name, standing in self._standings.items() if not standing.settled]

    def is_stop_due(self, now_m: float) -> bool:
        """Whether the others are to be stopped now, since one has failed; once."""
        if now_m < self._stop_at:
            return False
        self._stop_at, self._is_stopping = math.inf, True
        return True

    def called(self, name: str, host: str) -> None:
        """`host` is what it calls itself."""
        self._standings[name].host = host

    def asked_for_stacks(self) -> None:
        self._stacks_asked, self._stacks_wanted, self._stacks_told = True, set(self.living()), []

    def heard(self, name: str, report: AgentReport, now_t: float, now_m: float) -> list[AgentReport]:
        """What is to be said of one host's report."""
        standing = self._standings.get(name)
        if standing is None or standing.is_over:
            return []
        said: list[AgentReport] = []
        if report.kind == "started":
            standing.started = True
            said = [AgentReport(kind="started", t=now_t, m=now_m, pid=report.pid, host=name)]
        elif report.kind == "exited":
            self._exited(standing, report, now_m)
        elif report.kind == "stacks" and name in self._stacks_wanted:
            self._stacks_wanted.discard(name)
            self._stacks_told += [f"{name}: {report.detail}"] if report.detail else []
        elif report.kind == "lost":
            # Its agent failed and says so itself.
            return self.lose(name, report.detail, now_t, now_m)
        elif report.kind == "gone":
            standing.gone, standing.killed = True, report.killed
            standing.detail = standing.detail or report.detail
        return [*said, *self._now_true(now_t, now_m)]

    def lose(self, name: str, why: str, now_t: float, now_m: float, silent: bool = False) -> list[AgentReport]:
        """A host whose line ended, or was `silent` for too long; nothing new where it had said all."""
        standing = self._standings.get(name)
        if standing is None or standing.is_over:
            return []
        standing.lost = standing.detail = why
        standing.settled = not self._settles
        self._fail(now_m)
        lost = AgentReport(kind="node_lost", t=now_t, m=now_m, host=name, detail=why, silent=silent)
        return [lost, *self._now_true(now_t, now_m)]

    def settle(self, name: str, killed: int, words: str, now_t: float, now_m: float) -> list[AgentReport]:
        """What became of what a lost host had left."""
        standing = self._standings[name]
        standing.settled, standing.killed = True, standing.killed + killed
        standing.detail = f"{standing.detail}; {words}"
        return list(self._now_true(now_t, now_m))

    def records(self, offset: Offset, moved: Moved = lambda name: 0.0) -> tuple[NodeRecord, ...]:
        """Every host as it was seen, by node_rank."""
        return tuple(_record(standing, offset(name), moved(name)) for name, standing in self._standings.items())

    def _exited(self, standing: _Standing, report: AgentReport, now_m: float) -> None:
        standing.exited, standing.returncode = True, report.returncode
        standing.detail, standing.oom_kills = report.detail, report.oom_kills
        if report.returncode != 0:
            self._fail(now_m)
        if report.returncode and not self._is_stopping:
            self._codes.append((report.returncode, standing.node.name))

    def _fail(self, now_m: float) -> None:
        # The first failure alone counts: whoever follows was given time already.
        if not self._is_failing:
            self._is_failing, self._stop_at = True, now_m + FAILED_NODE_GRACE_S

    def _now_true(self, now_t: float, now_m: float) -> Iterator[AgentReport]:
        self._stacks_wanted &= set(self.living())
        if self._stacks_asked and not self._stacks_wanted:
            self._stacks_asked = False
            yield AgentReport(kind="stacks", t=now_t, m=now_m, detail="; ".join(self._stacks_told[:MOST_DETAILS]))
        if not self._exited_said and not self.running():
            self._exited_said = True
            code, host = self._returncode()
            detail, oom_kills = self._exit_detail(), self._oom_kills()
            yield AgentReport(kind="exited", t=now_t, m=now_m, returncode=code, host=host, detail=detail, oom_kills=oom_kills)
        if not self._gone_said and not self.living() and not self.unsettled():
            self._gone_said = True
            killed = sum(standing.killed for standing in self._standings.values())
            yield AgentReport(kind="gone", t=now_t, m=now_m, killed=killed, detail=self._named_details())

    def _returncode(self) -> tuple[int | None, str]:
        """The most telling code and the host that gave it. Codes of hosts that were told to stop are our own doing, and tell nothing
        where another has failed by itself."""
        telling = [one for one in self._codes if one[0] not in AFTER_EFFECT_CODES]
        if telling or self._codes:
            return (telling or self._codes)[0]
        stopped = next((standing.returncode for standing in self._standings.values() if standing.returncode), None)
        all_well = all(standing.returncode == 0 and not standing.lost for standing in self._standings.values())
        return 0 if all_well else stopped, ""

    def _exit_detail(self) -> str:
        # Told by this very text, wherever it happened.
        if any(standing.detail == AGENT_GOT_TERM for standing in self._standings.values()):
            return AGENT_GOT_TERM
        return self._named_details()

    def _named_details(self) -> str:
        told = [f"{name}: {standing.detail}" for name, standing in self._standings.items() if standing.detail]
        return named(told, MOST_DETAILS, "; ")

    def _oom_kills(self) -> str:
        return "; ".join(f"{name}: {standing.oom_kills}" for name, standing in self._standings.items() if standing.oom_kills)


def _record(standing: _Standing, offset: ClockOffset | None, moved_s: float) -> NodeRecord:
    node = standing.node
    return NodeRecord(
        name=node.name,
        host=standing.host,
        node_rank=node.node_rank,
        first_rank=node.first_rank,
        ranks=node.ranks,
        devices=node.devices,
        returncode=standing.returncode,
        ended=standing.ended,
        detail=_detail(standing.detail, moved_s),
        clock_offset_s=offset.offset_s if offset else None,
        clock_round_trip_s=offset.round_trip_s if offset else None,
        killed=standing.killed,
        oom_kills=standing.oom_kills,
    )


def _detail(told: str, moved_s: float) -> str:
    # An agent that was sent TERM is known by that very text.
    if moved_s <= CLOCK_MOVED_S or told == AGENT_GOT_TERM:
        return told
    moved = f"its clock moved by {moved_s:.1f} s against the harness's while the run ran"
    return f"{told}; {moved}" if told else moved
