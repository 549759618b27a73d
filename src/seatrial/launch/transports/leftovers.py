"""Ending what a lost host still runs: an agent that was killed there has left the processes that ignore TERM, and nobody else is there.

    leftovers = Leftovers(chosen.by, start_of)
    leftovers.begin("node2", silent=False)          # starts `seatrial.agent --end ATTEMPT` there, by what started its agent
    for name, killed, words in leftovers.over(): …  # at the latest when patience ends, whatever that host does

What was ended is told by the report that it prints, which ends up in the host's start.log.
"""

from __future__ import annotations

import json
import shlex
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from seatrial.errors import LaunchError
from seatrial.files import tail_lines
from seatrial.launch.transports.transport import Errand, Start, Transport
from seatrial.records.codec import from_json
from seatrial.records.command import AgentReport
from seatrial.records.line import LEASE_S

# For connecting, an interpreter from a shared disk, and processes that fork while they are killed. A campaign goes on after it.
PATIENCE_S = 10.0
READ_LINES = 40


@dataclass(frozen=True)
class _UnderWay:
    start: Start
    silent: bool
    errand: Errand
    until_m: float


class Leftovers:
    """All lost hosts of one run."""

    def __init__(
        self,
        by: Sequence[tuple[Transport, Sequence[str]]],
        start_of: Callable[[str], Start],
        patience_s: float = PATIENCE_S,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """`start_of` gives what is to be started on a host of this name."""
        self._by = {name: transport for transport, names in by for name in names}
        self._start_of, self._patience_s, self._monotonic = start_of, patience_s, monotonic
        self._begun: set[str] = set()
        self._under_way: list[_UnderWay] = []
        self._over: list[tuple[str, int, str]] = []

    def begin(self, name: str, silent: bool) -> None:
        """Once for each host; `silent`: its agent may live, and then ends all by itself."""
        if name in self._begun:
            return
        self._begun.add(name)
        start = self._start_of(name)
        try:
            errand = self._by[name].errand(start)
        except LaunchError as error:
            self._over.append((name, 0, self._unreached(start, silent, str(error))))
            return
        self._under_way.append(_UnderWay(start, silent, errand, self._monotonic() + self._patience_s))

    def over(self) -> list[tuple[str, int, str]]:
        """(host, how many were killed there, that in words), each once."""
        waiting = []
        for one in self._under_way:
            result = self._result(one)
            if result is None:
                waiting.append(one)
            else:
                self._over.append((one.start.host, *result))
        self._under_way = waiting
        told, self._over = self._over, []
        return told

    def _result(self, one: _UnderWay) -> tuple[int, str] | None:
        # Asked before the log is read: what it wrote, it wrote before.
        ended = one.errand.ended()
        killed = killed_by_report(one.start.log)
        if killed is not None:
            return killed, f"killed {killed} process{'' if killed == 1 else 'es'} that ran on there" if killed else "nothing ran on there"
        if ended is not None:
            said = [line.strip() for line in tail_lines(one.start.log, READ_LINES) if line.strip()]
            why = f"{ended.words} ({said[-1]})" if said else ended.words
        elif self._monotonic() >= one.until_m:
            one.errand.drop()
            why = f"no answer within {self._patience_s:.0f} s"
        else:
            return None
        return 0, self._unreached(one.start, one.silent, why)

    def _unreached(self, start: Start, silent: bool, why: str) -> str:
        lives = f"its agent ends it when it hears nothing for {LEASE_S:.0f} s"
        by_hand = f"processes that take no notice of TERM may run on until `{shlex.join(start.words)}` is typed there"
        return f"it could not be reached to end what is left there: {why}; {lives if silent else by_hand}"


def killed_by_report(log: Path) -> int | None:
    """What the last report in a host's start.log says; None where there is none."""
    for line in reversed(tail_lines(log, READ_LINES)):
        if line.startswith("{"):
            try:
                return from_json(AgentReport, json.loads(line)).killed
            except (ValueError, RecursionError):
                continue
    return None
