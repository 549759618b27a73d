"""Following one attempt to its end: hear the agent, look at the progress, pass limits and the user's wishes on.

In: a spec, the attempt's folder, prepared, and how its agents are started: one on this machine, or one on every host. Out: an `Ending`,
what was seen of it. The judgement of when to step in is the watchdog's, that of how the ladder's; here it is carried out.
"""

from __future__ import annotations

import contextlib
import json
import math
import time
from collections.abc import Callable, Sequence

from seatrial import files
from seatrial.campaign.ending import Ending, LostHost
from seatrial.campaign.interrupts import Interrupts, Urgency
from seatrial.campaign.ladder import Ladder, Rung, Wishes
from seatrial.launch.agents import Agents
from seatrial.launch.transports.leftovers import PATIENCE_S as LEFTOVERS_PATIENCE_S
from seatrial.observe.halt_step import halt_step
from seatrial.observe.progress import Progress, ProgressReader
from seatrial.observe.spike import SpikeWatch
from seatrial.observe.stall import Stall, StallWatch
from seatrial.observe.watchdog import Alarm, alarm
from seatrial.paths import AttemptPaths
from seatrial.records.codec import to_json
from seatrial.records.command import AGENT_GOT_TERM, AgentReport
from seatrial.records.line import LEASE_S
from seatrial.records.nodes import NodeRecord
from seatrial.records.run_spec import RunSpec

AGENT_WAIT_S = 0.2
PROGRESS_EVERY_S = 1.0
# After KILL was asked for, the agent needs a moment to see everything gone; beyond this it is taken for lost.
KILL_PATIENCE_S = 15.0
# Over a line, a host may fall silent just then, and what it left be ended by another way after that: how each host ended is to be known.
HOSTS_KILL_PATIENCE_S = KILL_PATIENCE_S + LEASE_S + LEFTOVERS_PATIENCE_S

OnProgress = Callable[[Progress, float, str], None]
"""How far it is, the time since its launch, and its newest alarm in one sentence."""
OnStop = Callable[[], None]


class Follower:
    """Follows the agents of one attempt to their end."""

    def __init__(
        self,
        spec: RunSpec,
        attempt: AttemptPaths,
        interrupts: Interrupts,
        on_progress: OnProgress,
        on_stop: OnStop,
        *,
        monotonic: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._spec, self._attempt, self._interrupts = spec, attempt, interrupts
        self._monotonic, self._wall = monotonic, wall
        self._on_progress, self._on_stop = on_progress, on_stop
        self._offsets_s: dict[int, float] = {}
        self._reader = ProgressReader(spec, attempt, offset_of=self._offsets_s.get)
        self._spikes, self._stalls = SpikeWatch(spec.limits.spike_ratio), StallWatch(spec.limits)
        self._ladder = Ladder(spec.limits.soft_s, spec.limits.term_s)
        self._progress = Progress(total=spec.steps)
        self._alarm: Alarm | None = None
        self._told = ""
        self._was_asked = self._stacks_taken = self._agent_stopped = False
        self._returncode: int | None = None
        self._oom_kills = self._failed_host = ""
        self._exited_s: float | None = None
        self._lost_hosts: list[LostHost] = []

    def follow(self, start: Callable[[], Agents]) -> Ending:
        """Start the agents and stay with them until all of them are gone, or lost."""
        agent = start()
        launched_m = self._monotonic()
        looked_m, kill_m = -math.inf, math.inf
        try:
            while True:
                for report in agent.wait(AGENT_WAIT_S):
                    now_s = self._monotonic() - launched_m
                    if report.kind in ("gone", "lost"):
                        return self._ending(agent.nodes(), report.killed, report.kind == "lost", now_s)
                    self._hear(report, launched_m, now_s)
                now_m = self._monotonic()
                if now_m - looked_m >= PROGRESS_EVERY_S:
                    looked_m = now_m
                    self._offsets_s.update(clock_offsets(agent.nodes()))
                    self._look(now_m - launched_m, now_m)
                if self._is_newly_asked():
                    # Whether its ranks can be asked to halt, and where, is to be judged by what they are doing now.
                    self._look(now_m - launched_m, now_m)
                if self._climb_down(agent, now_m) is Rung.KILL:
                    kill_m = now_m
                if now_m - kill_m > (HOSTS_KILL_PATIENCE_S if agent.nodes() else KILL_PATIENCE_S):
                    return self._ending(agent.nodes(), 0, True, now_m - launched_m)
        finally:
            agent.close()

    def _hear(self, report: AgentReport, launched_m: float, now_s: float) -> None:
        if report.kind == "exited":
            self._agent_stopped, self._oom_kills = report.detail == AGENT_GOT_TERM, report.oom_kills
            self._failed_host = report.host
            # By the agent's word: the harness may have been suspended when it happened.
            self._returncode, self._exited_s = report.returncode, min(now_s, max(0.0, report.m - launched_m)) if report.m else now_s
        elif report.kind == "stacks":
            self._stacks_taken = True
        elif report.kind == "node_lost":
            self._lost_hosts.append(LostHost(host=report.host, why=report.detail, silent=report.silent))
            self._told = f"{report.host} was lost: {report.detail}"

    def _look(self, elapsed_s: float, now_m: float) -> None:
        stall: Stall | None = None
        try:
            self._take_in(elapsed_s, now_m)
            stall = self._stalls.look(self._progress, now_m)
        except Exception as error:
            # Whatever a script prints and however full the disk is: looking on must not end the run that is looked at.
            self._told = f"its progress could not be told ({type(error).__name__}: {error}); the run goes on"
        if self._alarm is None and self._returncode is None:
            self._judge(elapsed_s, stall)

    def _take_in(self, elapsed_s: float, now_m: float) -> None:
        self._progress = self._reader.look()
        spike = self._spikes.look(self._progress, self._wall(), now_m)
        # A run that is being ended has been told of already, and its silence is our doing.
        if spike and self._alarm is None and not self._was_asked:
            self._told = spike.text
            files.append_line(self._attempt.alarms, json.dumps(to_json(spike)))
        self._on_progress(self._progress, elapsed_s, self._told)

    def _judge(self, elapsed_s: float, stall: Stall | None) -> None:
        self._alarm = alarm(self._progress, elapsed_s, self._spec.limits, stall, self._stalls.silent)
        if self._alarm:
            self._told = f"{self._alarm.text}; it is being ended"
            told = {"t": self._wall(), "kind": self._alarm.cause.value, "rank": self._alarm.rank, "text": self._alarm.text}
            files.append_line(self._attempt.alarms, json.dumps(told))

    def _is_newly_asked(self) -> bool:
        """Whether the user wants it to end since the last turn."""
        if self._was_asked or self._interrupts.urgency is Urgency.NONE:
            return False
        self._was_asked = True
        self._on_stop()
        return True

    def _climb_down(self, agent: Agents, now_m: float) -> Rung | None:
        wishes = Wishes(
            alarm=self._alarm,
            urgency=self._interrupts.urgency,
            stacks_taken=self._stacks_taken,
            can_halt=bool(self._progress.standings) and self._returncode is None,
        )
        rung = self._ladder.next(wishes, now_m)
        if rung is not None:
            {Rung.STACKS: agent.stacks, Rung.SOFT: self._ask_to_halt, Rung.TERM: agent.stop, Rung.KILL: agent.kill}[rung]()
        return rung

    def _ask_to_halt(self) -> None:
        reason = self._alarm.cause.value if self._alarm else "user"
        order = {"attempt": self._attempt.number, "at_step": halt_step(self._progress, self._wall()), "reason": reason}
        # On a full disk nobody can be asked; the next rung comes all the same.
        with contextlib.suppress(OSError):
            files.write_json(self._attempt.halt, order)

    def _ending(self, nodes: tuple[NodeRecord, ...], killed: int, lost: bool, elapsed_s: float) -> Ending:
        return Ending(
            returncode=self._returncode,
            killed=killed,
            alarm=self._alarm,
            interrupted=self._was_asked and self._ladder.rung is not Rung.NONE,
            agent_lost=lost,
            agent_stopped=self._agent_stopped,
            oom_kills=self._oom_kills,
            failed_host=self._failed_host,
            lost_hosts=tuple(self._lost_hosts),
            nodes=nodes,
            # What a run left behind and the agent had to end is not part of its length.
            elapsed_s=elapsed_s if self._exited_s is None else self._exited_s,
        )


def clock_offsets(nodes: Sequence[NodeRecord]) -> dict[int, float]:
    """Rank → how far the clock of its host is ahead of ours, as far as that was measured."""
    return {
        rank: node.clock_offset_s
        for node in nodes
        if node.clock_offset_s is not None
        for rank in range(node.first_rank, node.first_rank + node.ranks)
    }
