"""The rules by which a run's outcome follows from what was seen of it. Pure: an `Ending` goes in, a `Diagnosis` comes out.

Exit code 0 alone is not success: launchers have returned it after a rank died. Where the ranks have the probe, every rank that started must
have written its `stop` event, and at least one step. Where the launcher logs how each rank ended, it must have logged success for each, or
each must have written its own `stop`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from seatrial.observe.progress import BETWEEN_STEPS
from seatrial.observe.watchdog import Alarm
from seatrial.records.launch import AGENT_GOT_TERM, NodeRecord
from seatrial.records.outcome import Cause, Diagnosis, Outcome
from seatrial.records.signatures.registry import advice, signature

KILLED = ("killed", "deepspeed_launcher_killed")
"""Signatures of a process that was killed by signal 9 for an unknown reason."""


@dataclass(frozen=True, kw_only=True)
class RankEndings:
    """How the ranks ended, by their own events and by the launcher's log."""

    started: int = 0
    """Ranks that wrote a `start` event: 0 means that the workload has no probe."""
    done: int = 0
    stepped: bool = False
    min_steps: int = 0
    """The fewest steps of any rank that is done."""
    logged_ok: int | None = None
    """Ranks whose success the launcher logged; None for a launcher that does not log it."""
    launched: int = 0
    """Ranks to be started by the launcher, where it logs how they ended."""
    small_world: str = ""
    """Evidence that the ranks formed a smaller world than planned."""


@dataclass(frozen=True, kw_only=True)
class LostHost:
    """A host that was lost before the run was over."""

    host: str
    why: str
    """The last message on its connection, or that none came."""
    silent: bool
    """The connection was not closed: the host or its network froze. False where its agent, or the whole host, ended."""


@dataclass(frozen=True, kw_only=True)
class Ending:
    """What the supervisor saw."""

    returncode: int | None
    killed: int = 0
    alarm: Alarm | None = None
    interrupted: bool = False
    agent_lost: bool = False
    agent_stopped: bool = False
    """The agent received TERM from outside."""
    oom_kills: str = ""
    """The counter of the kernel's OOM killer that rose during the run; empty where none did."""
    failed_host: str = ""
    """On many hosts, the host whose launcher gave the exit code; empty where none failed by itself."""
    lost_hosts: tuple[LostHost, ...] = ()
    """Lost hosts, in the order of their loss."""
    elapsed_s: float = 0.0
    nodes: tuple[NodeRecord, ...] = ()
    """Every host of a run on many hosts."""

    @property
    def stopped_host(self) -> str:
        """The host whose agent received TERM from outside; empty on one host."""
        return next((node.name for node in self.nodes if node.detail == AGENT_GOT_TERM), "")

    @property
    def broken_host(self) -> str:
        """The host that was lost first, or whose agent was stopped, or whose launcher failed first.

        After an alarm or a stop request launchers fail because they are ended; the host of the first one is not broken.
        """
        if self.lost_hosts:
            return self.lost_hosts[0].host
        return self.stopped_host or ("" if self.alarm or self.interrupted else self.failed_host)


def judge_ending(ending: Ending, ranks: RankEndings, world_size: int, steps: int | None, *, has_gpus: bool = True) -> Diagnosis:
    """The diagnosis, without an outcome where only the log can give it.

    `world_size` and `steps` are the planned ones; None where unknown. `has_gpus` is False where it is known to have none.
    """
    if ending.lost_hosts:
        # Before everything else: ranks that lost another one, stalls and exit codes are its consequences.
        return _host_lost(ending.lost_hosts)
    if ending.alarm is not None:
        alarm = ending.alarm
        action = _alarm_advice(alarm, ranks, has_gpus=has_gpus)
        return Diagnosis(outcome=alarm.outcome, cause=alarm.cause, detail=alarm.text, action=action, signature=alarm.cause.value)
    if ending.interrupted:
        return _registered(Outcome.INTERRUPTED, "user", "stopped by the user")
    if ending.agent_lost:
        return _failed("agent_lost", "the agent that watched this run was killed")
    if ending.returncode != 0 and ending.agent_stopped:
        on = f" on {ending.stopped_host}" if ending.stopped_host else ""
        return _failed("agent_stopped", f"the agent{on} received SIGTERM from outside and ended the run")
    if ending.returncode != 0:
        return Diagnosis(cause=Cause.UNKNOWN, detail="", action="", signature="")
    return _judge_exit_0(ranks, world_size, steps)


def with_oom_kill(found: Diagnosis, oom_kills: str) -> Diagnosis:
    """Explain a killed process by the kernel's counter: the log alone does not show the reason."""
    if not oom_kills or found.signature not in KILLED:
        return found
    entry = signature("host_oom")
    detail = f"the kernel's OOM killer ended a process ({oom_kills}); {found.detail}"
    return replace(found, cause=entry.cause, detail=detail, action=entry.action, signature=entry.id)


def _host_lost(lost: tuple[LostHost, ...]) -> Diagnosis:
    first = lost[0]
    others = f", and with it {', '.join(host.host for host in lost[1:])}" if len(lost) > 1 else ""
    return _failed("node_silent" if first.silent else "node_gone", f"{first.host} was lost during the run{others}: {first.why}")


def _alarm_advice(alarm: Alarm, ranks: RankEndings, *, has_gpus: bool) -> str:
    """The registry's advice; for a stall, where each rank is comes first."""
    if alarm.cause is not Cause.STALL:
        return advice(alarm.cause)
    # A single rank, or one outside of any collective, does not wait for another GPU.
    is_alone = ranks.started == 1 or alarm.phase in ("data_wait", BETWEEN_STEPS)
    return alarm.action if is_alone or not has_gpus else f"{alarm.action.rstrip('.')}. {advice(Cause.STALL)}"


def _judge_exit_0(ranks: RankEndings, world_size: int, steps: int | None) -> Diagnosis:
    # Where all ranks wrote their own `stop`, the launcher's log is not needed.
    if ranks.logged_ok is not None and max(ranks.logged_ok, ranks.done) < ranks.launched:
        logged = f"the launcher logged success of {ranks.logged_ok} of {ranks.launched} ranks"
        return _failed("deepspeed_launcher_killed", f"exit code 0, but {logged}")
    if ranks.small_world:
        return _failed("world_too_small", f"exit code 0, but {ranks.small_world}")
    if not ranks.started and world_size:
        return _failed("events_removed", "exit code 0, but the event files of its ranks are missing")
    if ranks.started and not ranks.stepped:
        return _failed("no_steps", "exit code 0, but no step was taken")
    if ranks.started and ranks.done < world_size:
        return _failed("ranks_missing", f"exit code 0, but only {ranks.done} of {world_size} ranks finished")
    if ranks.started and steps is not None and ranks.min_steps < steps:
        return _failed("ended_early", f"exit code 0, but a rank took {ranks.min_steps} of {steps} steps")
    return Diagnosis(outcome=Outcome.OK, cause=Cause.NONE, detail="", action="", signature="")


def _failed(id: str, detail: str) -> Diagnosis:
    return _registered(Outcome.FAILED, id, detail)


def _registered(outcome: Outcome, id: str, detail: str) -> Diagnosis:
    entry = signature(id)
    return Diagnosis(outcome=outcome, cause=entry.cause, detail=detail, action=entry.action, signature=id)
