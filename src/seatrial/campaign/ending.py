"""How a run ended, from what was seen of it. Pure: what the supervisor saw goes in, outcome and cause come out.

An exit code of 0 alone is not success: launchers have been seen to return it after a rank died. Where the ranks carry the probe,
every one that started it must have written its `stop` event, and at least one step. Where the launcher itself says how each rank
ended, it must have said of every one that it ended well, or every one must have said so itself.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from seatrial.observe.progress import BETWEEN_STEPS
from seatrial.observe.watchdog import Alarm
from seatrial.records.command import AGENT_GOT_TERM
from seatrial.records.nodes import NodeRecord
from seatrial.records.outcome import Cause, Outcome
from seatrial.signatures.registry import advice, signature

KILLED = ("killed", "deepspeed_launcher_killed")
"""Entries of the registry that say that signal 9 ended a process, and not why."""


@dataclass(frozen=True, kw_only=True)
class RankRecord:
    """What the ranks themselves left behind."""

    started: int = 0
    """Ranks that wrote a `start` event: 0 means that the workload has no probe."""
    done: int = 0
    stepped: bool = False
    least_steps: int = 0
    """Steps of the rank that took the fewest, of those that are done."""
    told_of: int | None = None
    """Ranks of which the launcher said that they ended well; None for a launcher that says nothing of the kind."""
    launched: int = 0
    """Ranks that the launcher was to start, where it says how they ended."""


@dataclass(frozen=True, kw_only=True)
class LostHost:
    """A host that went before the run was over."""

    host: str
    why: str
    """What its line said last, or that it said nothing."""
    silent: bool
    """Nobody closed the line: the host or its network stood still. False where its agent, or the whole host, ended."""


@dataclass(frozen=True, kw_only=True)
class Ending:
    """What the supervisor saw."""

    returncode: int | None
    killed: int = 0
    alarm: Alarm | None = None
    interrupted: bool = False
    agent_lost: bool = False
    agent_stopped: bool = False
    """Somebody outside sent TERM to the agent."""
    oom_kills: str = ""
    """Which counter of the kernel's OOM killer rose meanwhile, in words; empty where none did."""
    failed_host: str = ""
    """The host whose launcher gave the exit code, of a run on many hosts; empty where none failed by itself."""
    lost_hosts: tuple[LostHost, ...] = ()
    """Hosts of which nothing was heard any more before the run was over, the first that went first."""
    elapsed_s: float = 0.0
    nodes: tuple[NodeRecord, ...] = ()
    """Every host as it was seen, of a run on many hosts."""

    @property
    def stopped_host(self) -> str:
        """Where somebody outside sent TERM to the agent; empty on one host."""
        return next((node.name for node in self.nodes if node.detail == AGENT_GOT_TERM), "")

    @property
    def broken_host(self) -> str:
        """The host that was lost first, or whose agent was stopped, or whose launcher failed first.

        After an alarm or the user's wish launchers fail because they are ended, one of them first: that says nothing of its host.
        """
        if self.lost_hosts:
            return self.lost_hosts[0].host
        return self.stopped_host or ("" if self.alarm or self.interrupted else self.failed_host)


@dataclass(frozen=True, kw_only=True)
class Judgement:
    """Outcome and cause; where `needs_log` the text of the log can tell more."""

    outcome: Outcome
    cause: Cause
    detail: str = ""
    action: str = ""
    signature: str = ""
    """The entry of the registry that tells the cause; empty for a good end."""
    needs_log: bool = False


def judge_ending(ending: Ending, ranks: RankRecord, world_size: int, steps: int | None) -> Judgement:
    """What to call it. `world_size` and `steps` are what the run was to have; None where nobody can know."""
    if ending.lost_hosts:
        # Before everything else: ranks that lost another one, stalls and exit codes are what follows from it.
        return _host_lost(ending.lost_hosts)
    if ending.alarm is not None:
        alarm = ending.alarm
        action = _alarm_advice(alarm, ranks)
        return Judgement(outcome=alarm.outcome, cause=alarm.cause, detail=alarm.text, action=action, signature=alarm.cause.value)
    if ending.interrupted:
        return _ended(Outcome.INTERRUPTED, "user", "stopped by the user")
    if ending.agent_lost:
        return _failed("agent_lost", "the agent that watched this run was killed")
    if ending.returncode != 0 and ending.agent_stopped:
        on = f" on {ending.stopped_host}" if ending.stopped_host else ""
        return _failed("agent_stopped", f"the agent that watched this run{on} was sent TERM from outside, and ended it")
    if ending.returncode != 0:
        return Judgement(outcome=Outcome.FAILED, cause=Cause.UNKNOWN, needs_log=True)
    return _judge_exit_0(ranks, world_size, steps)


def with_oom_kill(judged: Judgement, oom_kills: str) -> Judgement:
    """The kernel's counter explains a process that was killed: the log can only tell that it was."""
    if not oom_kills or judged.signature not in KILLED:
        return judged
    entry = signature("host_oom")
    detail = f"the kernel's OOM killer ended a process ({oom_kills}); {judged.detail}"
    return replace(judged, cause=entry.cause, detail=detail, action=entry.action, signature=entry.id)


def _host_lost(lost: tuple[LostHost, ...]) -> Judgement:
    first = lost[0]
    others = f", and with it {', '.join(host.host for host in lost[1:])}" if len(lost) > 1 else ""
    return _failed("node_silent" if first.silent else "node_gone", f"{first.host} was lost while the run ran{others}: {first.why}")


def _alarm_advice(alarm: Alarm, ranks: RankRecord) -> str:
    """The registry's; a stall is first worded by where each rank stands."""
    if alarm.cause is not Cause.STALL:
        return advice(alarm.cause)
    # One rank alone, or one that stands outside of every collective, waits for no other GPU.
    is_alone = ranks.started == 1 or alarm.phase in ("data_wait", BETWEEN_STEPS)
    return alarm.action if is_alone else f"{alarm.action}. {advice(Cause.STALL)}"


def _judge_exit_0(ranks: RankRecord, world_size: int, steps: int | None) -> Judgement:
    # Ranks that all said themselves that they were done need nobody's word.
    if ranks.told_of is not None and max(ranks.told_of, ranks.done) < ranks.launched:
        told = f"the launcher said of {ranks.told_of} of {ranks.launched} ranks that they ended well"
        return _failed("deepspeed_launcher_killed", f"exit code 0, but {told}")
    if not ranks.started and world_size:
        return _failed("events_removed", "exit code 0, but the event files of its ranks are not there")
    if ranks.started and not ranks.stepped:
        return _failed("no_steps", "exit code 0, but not one step was taken")
    if ranks.started and ranks.done < world_size:
        return _failed("ranks_missing", f"exit code 0, but only {ranks.done} of {world_size} ranks said they were done")
    if ranks.started and steps is not None and ranks.least_steps < steps:
        return _failed("ended_early", f"exit code 0, but a rank took {ranks.least_steps} of {steps} steps")
    return Judgement(outcome=Outcome.OK, cause=Cause.NONE)


def _failed(id: str, detail: str) -> Judgement:
    return _ended(Outcome.FAILED, id, detail)


def _ended(outcome: Outcome, id: str, detail: str) -> Judgement:
    entry = signature(id)
    return Judgement(outcome=outcome, cause=entry.cause, detail=detail, action=entry.action, signature=id)
