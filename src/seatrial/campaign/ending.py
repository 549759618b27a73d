"""How a run ended, from what was seen of it. Pure: what the supervisor saw goes in, outcome and cause come out.

An exit code of 0 alone is not success: launchers have been seen to return it after a rank died. Where the ranks carry the probe,
every one that started it must have written its `stop` event, and at least one step. Where the launcher itself says how each rank
ended, it must have said of every one that it ended well, or every one must have said so itself.
"""

from __future__ import annotations

from dataclasses import dataclass

from seatrial.observe.watchdog import Alarm
from seatrial.records.outcome import Cause, Outcome


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
class Ending:
    """What the supervisor saw."""

    returncode: int | None
    killed: int = 0
    alarm: Alarm | None = None
    interrupted: bool = False
    agent_lost: bool = False
    agent_stopped: bool = False
    """Somebody outside sent TERM to the agent."""
    elapsed_s: float = 0.0


@dataclass(frozen=True, kw_only=True)
class Judgement:
    """Outcome and cause; where `needs_log` the text of the log can tell more."""

    outcome: Outcome
    cause: Cause
    detail: str = ""
    action: str = ""
    needs_log: bool = False


def judge_ending(ending: Ending, ranks: RankRecord, world_size: int, steps: int | None) -> Judgement:
    """What to call it. `world_size` and `steps` are what the run was to have; None where nobody can know."""
    if ending.alarm is not None:
        return Judgement(outcome=ending.alarm.outcome, cause=ending.alarm.cause, detail=ending.alarm.text, action=ending.alarm.action)
    if ending.interrupted:
        return Judgement(outcome=Outcome.INTERRUPTED, cause=Cause.USER, detail="stopped by the user", action="the same command resumes")
    if ending.agent_lost:
        return Judgement(
            outcome=Outcome.FAILED,
            cause=Cause.AGENT_LOST,
            detail="the agent that watched this run was killed",
            action="look for the out-of-memory killer in the kernel log, then run again",
        )
    if ending.returncode != 0 and ending.agent_stopped:
        return Judgement(
            outcome=Outcome.FAILED,
            cause=Cause.AGENT_LOST,
            detail="the agent that watched this run was sent TERM from outside, and ended it",
            action="look for what ends processes on this host (a scheduler, a reaper, a clean-up script), then run again",
        )
    if ending.returncode != 0:
        return Judgement(outcome=Outcome.FAILED, cause=Cause.UNKNOWN, needs_log=True)
    return _judge_exit_0(ranks, world_size, steps)


def _judge_exit_0(ranks: RankRecord, world_size: int, steps: int | None) -> Judgement:
    # Ranks that all said themselves that they were done need nobody's word.
    if ranks.told_of is not None and max(ranks.told_of, ranks.done) < ranks.launched:
        return Judgement(
            outcome=Outcome.FAILED,
            cause=Cause.RANKS_MISSING,
            detail=f"exit code 0, but the launcher said of {ranks.told_of} of {ranks.launched} ranks that they ended well",
            action="the launcher behind `deepspeed` was killed (it exits 0 then too): look for what kills processes on this host, such as "
            "the out-of-memory killer in the kernel log, then run again; if launcher.log shows that all went well, this DeepSpeed words "
            "its lines otherwise: put the probe into the script",
        )
    if not ranks.started and world_size:
        return Judgement(
            outcome=Outcome.FAILED,
            cause=Cause.RANKS_MISSING,
            detail="exit code 0, but the event files of its ranks are not there",
            action="somebody or something has removed them while it ran: the same command runs it again",
        )
    if ranks.started and not ranks.stepped:
        return Judgement(
            outcome=Outcome.FAILED,
            cause=Cause.NO_STEPS,
            detail="exit code 0, but not one step was taken",
            action="check the number of steps asked for and the length of the dataset",
        )
    if ranks.started and ranks.done < world_size:
        return Judgement(
            outcome=Outcome.FAILED,
            cause=Cause.RANKS_MISSING,
            detail=f"exit code 0, but only {ranks.done} of {world_size} ranks said they were done",
            action="look in the log of each rank (seatrial logs RUN --rank N) for one that died without a word",
        )
    if ranks.started and steps is not None and ranks.least_steps < steps:
        return Judgement(
            outcome=Outcome.FAILED,
            cause=Cause.ENDED_EARLY,
            detail=f"exit code 0, but a rank took {ranks.least_steps} of {steps} steps",
            action="look in its log for why it stopped: a dataset that ran out, or a stop rule of its own",
        )
    return Judgement(outcome=Outcome.OK, cause=Cause.NONE)
