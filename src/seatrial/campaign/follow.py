"""Follow one attempt to its end: listen to the agents, read the progress, act on limits and stop requests.

In: a spec, the prepared attempt's folder, and how its agents are started: one on this machine, or one on every host. Out: an `Ending`,
what was seen of it. The watchdog decides when to step in, `escalation` how; this module carries it out.
"""

from __future__ import annotations

import contextlib
import json
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import replace

from seatrial.campaign.escalation import Escalation, Level, StopReasons
from seatrial.campaign.interrupts import StopRequests, Urgency
from seatrial.campaign.live_log import LiveLog
from seatrial.campaign.outcome_rules import Ending, LostHost
from seatrial.core import files
from seatrial.core.control_connection.protocol import LEASE_S
from seatrial.core.durable_writes import append_line_durably
from seatrial.core.paths import AttemptPaths
from seatrial.launch.agent_group import CLEANUP_TIMEOUT_S
from seatrial.launch.agents import Agents
from seatrial.observe.communicators import WorldCheck
from seatrial.observe.progress import Progress, ProgressReader
from seatrial.observe.spike import SpikeDetector
from seatrial.observe.stall import Stall, StallDetector
from seatrial.observe.watchdog import Alarm, HealthWatch, alarm, halt_step, name_options
from seatrial.records.codec import to_json
from seatrial.records.launch import AGENT_GOT_TERM, AgentReport, NodeRecord
from seatrial.records.plan import RunSpec

AGENT_POLL_S = 0.2
PROGRESS_EVERY_S = 1.0
# After KILL, the agent needs a moment to see every process gone; beyond this it is taken for lost.
KILL_TIMEOUT_S = 15.0
# With many hosts, one may fall silent just then, and its processes must be killed in another way.
HOSTS_KILL_TIMEOUT_S = KILL_TIMEOUT_S + LEASE_S + CLEANUP_TIMEOUT_S

OnProgress = Callable[[Progress, float, float, str], None]
"""Progress, seconds since the launch and since the last step or output, and the newest alarm in one sentence."""
OnStop = Callable[[], None]


class Follower:
    """Follows the agents of one attempt to their end."""

    def __init__(
        self,
        spec: RunSpec,
        attempt: AttemptPaths,
        interrupts: StopRequests,
        on_progress: OnProgress,
        on_stop: OnStop,
        *,
        log: LiveLog | None = None,
        monotonic: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._log = log
        self._spec, self._attempt, self._interrupts = spec, attempt, interrupts
        self._monotonic, self._wall = monotonic, wall
        self._on_progress, self._on_stop = on_progress, on_stop
        self._offsets_s: dict[int, float] = {}
        self._reader = ProgressReader(spec, attempt, offset_of=self._offsets_s.get)
        self._spikes = SpikeDetector(spec.limits.spike_ratio)
        self._stalls = StallDetector(spec.limits, has_probe=spec.workload.module is not None)
        self._world = WorldCheck(spec.place.ranks, attempt)
        self._health = HealthWatch(spec.limits)
        self._unhealthy: Alarm | None = None
        self._escalation = Escalation(spec.limits.soft_s, spec.limits.term_s)
        self._progress = Progress(total=spec.steps)
        self._alarm: Alarm | None = None
        self._alarm_text = ""
        self._stop_requested = self._stacks_taken = self._agent_stopped = False
        self._returncode: int | None = None
        self._oom_kills = self._failed_host = ""
        self._exited_s: float | None = None
        self._lost_hosts: list[LostHost] = []

    def follow(self, start: Callable[[], Agents]) -> Ending:
        """Start the agents and follow the run until all of them have exited or are lost."""
        agent = start()
        launched_m = self._monotonic()
        read_m, kill_m = -math.inf, math.inf
        try:
            while True:
                for report in agent.wait(AGENT_POLL_S):
                    now_s = self._monotonic() - launched_m
                    if report.kind in ("gone", "lost"):
                        return self._ending(agent.nodes(), report.killed, report.kind == "lost", now_s)
                    self._on_report(report, launched_m, now_s)
                now_m = self._monotonic()
                if now_m - read_m >= PROGRESS_EVERY_S:
                    read_m = now_m
                    self._offsets_s.update(clock_offsets(agent.nodes()))
                    self._update(now_m - launched_m, now_m)
                if self._log is not None:
                    self._log.read()
                if self._is_newly_stopped():
                    # Whether its ranks can halt together, and at which step, depends on their current progress.
                    self._update(now_m - launched_m, now_m)
                if self._escalate(agent, now_m) is Level.KILL:
                    kill_m = now_m
                if now_m - kill_m > (HOSTS_KILL_TIMEOUT_S if agent.nodes() else KILL_TIMEOUT_S):
                    return self._ending(agent.nodes(), 0, True, now_m - launched_m)
        finally:
            agent.close()

    def _on_report(self, report: AgentReport, launched_m: float, now_s: float) -> None:
        if report.kind == "exited":
            self._agent_stopped, self._oom_kills = report.detail == AGENT_GOT_TERM, report.oom_kills
            self._failed_host = report.host
            # By the agent's clock: the harness may have been suspended when it happened.
            self._returncode, self._exited_s = report.returncode, min(now_s, max(0.0, report.m - launched_m)) if report.m else now_s
        elif report.kind == "stacks":
            self._stacks_taken = True
        elif report.kind == "node_lost":
            self._lost_hosts.append(LostHost(host=report.host, why=report.detail, silent=report.silent))
            self._alarm_text = f"{report.host} was lost: {report.detail}"

    def _update(self, elapsed_s: float, now_m: float) -> None:
        """Read the progress, and raise an alarm where a limit is passed."""
        stall: Stall | None = None
        try:
            stall = self._read_progress(elapsed_s, now_m)
        except Exception as error:
            # Observing a run must not end it, whatever a script prints and however full the disk is.
            self._alarm_text = f"progress unknown ({type(error).__name__}: {error}); the run goes on"
        if self._alarm is None and self._returncode is None:
            small_world = self._world.problem(self._progress)
            raised = alarm(self._progress, elapsed_s, self._spec.limits, stall, self._stalls.silent, small_world) or self._unhealthy
            if raised:
                text, action = (name_options(text, self._spec) for text in (raised.text, raised.action))
                self._alarm = replace(raised, text=text, action=action)
                self._alarm_text = f"{self._alarm.text}; ending it"
                self._record(self._alarm)

    def _record(self, found: Alarm) -> None:
        line = {"t": self._wall(), "kind": found.cause.value, "rank": found.rank, "text": found.text}
        append_line_durably(self._attempt.alarms, json.dumps(line))

    def _read_progress(self, elapsed_s: float, now_m: float) -> Stall | None:
        self._progress = self._reader.read()
        stall = self._stalls.check(self._progress, now_m)
        spike = self._spikes.check(self._progress, self._wall(), now_m)
        # A run that is being ended has its alarm already, and is silent because of us.
        if spike and self._alarm is None and not self._stop_requested:
            self._alarm_text = spike.text
            append_line_durably(self._attempt.alarms, json.dumps(to_json(spike)))
        ends, warning = self._health.check(self._progress)
        self._unhealthy = self._unhealthy or ends
        if warning and self._alarm is None and not self._stop_requested:
            self._alarm_text = warning.text
            self._record(warning)
        self._on_progress(self._progress, elapsed_s, self._stalls.quiet_s, self._alarm_text)
        return stall

    def _is_newly_stopped(self) -> bool:
        """Whether the user requested a stop since the last turn."""
        if self._stop_requested or self._interrupts.urgency is Urgency.NONE:
            return False
        self._stop_requested = True
        self._on_stop()
        return True

    def _escalate(self, agent: Agents, now_m: float) -> Level | None:
        reasons = StopReasons(
            alarm=self._alarm,
            urgency=self._interrupts.urgency,
            stacks_taken=self._stacks_taken,
            can_halt=bool(self._progress.rank_states) and self._returncode is None,
        )
        level = self._escalation.next(reasons, now_m)
        if level is not None:
            {Level.STACKS: agent.stacks, Level.SOFT: self._request_halt, Level.TERM: agent.stop, Level.KILL: agent.kill}[level]()
        return level

    def _request_halt(self) -> None:
        reason = self._alarm.cause.value if self._alarm else "user"
        order = {"attempt": self._attempt.number, "at_step": halt_step(self._progress, self._wall()), "reason": reason}
        # On a full disk there is no request; the next level follows nevertheless.
        with contextlib.suppress(OSError):
            files.write_json(self._attempt.halt, order)

    def _ending(self, nodes: tuple[NodeRecord, ...], killed: int, lost: bool, elapsed_s: float) -> Ending:
        return Ending(
            returncode=self._returncode,
            killed=killed,
            alarm=self._alarm,
            interrupted=self._stop_requested and self._escalation.level is not Level.NONE,
            agent_lost=lost,
            agent_stopped=self._agent_stopped,
            oom_kills=self._oom_kills,
            failed_host=self._failed_host,
            lost_hosts=tuple(self._lost_hosts),
            nodes=nodes,
            # The time it took to kill what the run left behind is not part of its length.
            elapsed_s=elapsed_s if self._exited_s is None else self._exited_s,
        )


def clock_offsets(nodes: Sequence[NodeRecord]) -> dict[int, float]:
    """Rank → how far the clock of its host is ahead of ours, where that was measured."""
    return {
        rank: node.clock_offset_s
        for node in nodes
        if node.clock_offset_s is not None
        for rank in range(node.first_rank, node.first_rank + node.ranks)
    }
