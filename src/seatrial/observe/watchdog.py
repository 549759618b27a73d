"""Limits of a run, and the step at which all ranks can stop together.

Pure: progress, time and limits go in, an `Alarm` or None comes out; campaign/ acts on it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from seatrial.core.text import GIB, format_bytes, format_duration
from seatrial.observe.progress import LastStep, Progress, RankState
from seatrial.observe.stall import Stall, advise_on_stall, describe_stall, find_culprit, furthest_behind
from seatrial.observe.training_health import FLATLINE, GATE_COLLAPSE, ZERO_GRAD, Anomaly, HealthJudge, HealthLimits
from seatrial.records.outcome import Cause, Outcome
from seatrial.records.plan import LimitsSpec, RunSpec

# The probe reads the halt request every half second, on a disk that may be slow to show it.
AHEAD_S = 2.0
MIN_AHEAD_STEPS = 2
# A rank whose last heartbeat is older, or from a clock that was set, is not assumed to have kept its pace.
MAX_AGE_S = 60.0
# Plan key → option of `seatrial sweep`.
SWEEP_OPTIONS = {
    "limits.stall.floor_s": "limits.stall.floor_s in a plan (`seatrial init` writes one)",
    "limits.stall.quiet_s": "--quiet-limit",
    "limits.stall.factor": "--stall-factor",
    "limits.start_s": "--start-limit",
    "limits.run_s": "--run-limit",
    "limits.health": "limits.health in a plan (`seatrial init` writes one)",
    "in `env`, or before the command": "before the command",
    "in `env`": "before the command",
}
# A heartbeat with figures comes once a second at most, so this is a minute at least: other jobs of a shared host slow a run for seconds.
FLATLINE_SAMPLES = 60
# Not among them: a loss that is not finite. Loss scalers have some, and a workload that cannot go on ends by itself.
HEALTH_CAUSES = {GATE_COLLAPSE: Cause.GATE_COLLAPSE, ZERO_GRAD: Cause.ZERO_GRAD, FLATLINE: Cause.THROUGHPUT_FLATLINE}
# Shorter steps are not training, and would make the step number absurd.
MIN_ITER_S = 0.0001


@dataclass(frozen=True, kw_only=True)
class Alarm:
    """A limit that was exceeded."""

    cause: Cause
    outcome: Outcome = Outcome.TIMEOUT
    """Outcome of the run that is ended for it."""
    text: str
    action: str = ""
    """Advice that depends on the observation; advice for the cause is in the registry."""
    rank: int | None = None
    """The rank that the others wait for, if any."""
    phase: str = ""
    """That rank's phase, as the probe names it."""


def alarm(
    progress: Progress,
    elapsed_s: float,
    limits: LimitsSpec,
    stall: Stall | None = None,
    silent: frozenset[int] = frozenset(),
    small_world: str = "",
) -> Alarm | None:
    """The limit that is exceeded `elapsed_s` after launch, if any; `stall` and `silent` come from a StallDetector for the same progress,
    `small_world` from a WorldCheck."""
    if small_world:
        return Alarm(cause=Cause.WORLD_TOO_SMALL, outcome=Outcome.FAILED, text=f"{small_world}, at step {_step(progress)}")
    return (
        _run_limit(progress, elapsed_s, limits)
        or _start_limit(progress, elapsed_s, limits, silent)
        or _memory_limit(progress, limits)
        or _disk_limit(progress, limits)
        or _stall_alarm(progress, stall)
    )


class HealthWatch:
    """Judges the figures that a workload reports while it runs."""

    def __init__(self, limits: LimitsSpec) -> None:
        self._judge = HealthJudge(HealthLimits(flatline_n=FLATLINE_SAMPLES)) if limits.health else None
        self._ends = limits.health == "end"

    def check(self, progress: Progress) -> tuple[Alarm | None, Alarm | None]:
        """An alarm that ends the run, and one that is only a warning."""
        anomaly = self._judge.check(progress.health) if self._judge and progress.health else None
        if anomaly is None or anomaly.kind not in HEALTH_CAUSES:
            return None, None
        found = _health_alarm(anomaly)
        return (found, None) if self._ends else (None, found)


def _health_alarm(anomaly: Anomaly) -> Alarm:
    return Alarm(cause=HEALTH_CAUSES[anomaly.kind], outcome=Outcome.FAILED, text=f"{anomaly.text} (limits.health)")


def name_options(text: str, spec: RunSpec) -> str:
    """The text with the limits as the user types them: options of `seatrial sweep`, or the keys of a plan."""
    for key, option in SWEEP_OPTIONS.items() if spec.from_sweep else ():
        text = text.replace(key, option)
    return text


def _run_limit(progress: Progress, elapsed_s: float, limits: LimitsSpec) -> Alarm | None:
    if limits.run_s is None or elapsed_s <= limits.run_s:
        return None
    return Alarm(
        cause=Cause.RUN_LIMIT,
        text=f"still running after {format_duration(limits.run_s)} (limits.run_s), at step {_step(progress)}",
    )


def _start_limit(progress: Progress, elapsed_s: float, limits: LimitsSpec, silent: frozenset[int]) -> Alarm | None:
    if limits.start_s is None or progress.alive or elapsed_s <= limits.start_s:
        return None
    limit = f"within {format_duration(limits.start_s)} (limits.start_s)"
    waiting = [state for state in progress.rank_states if state.step is None]
    if not waiting:
        return Alarm(cause=Cause.START_LIMIT, text=f"no first step and no output {limit}")
    absent = sorted(set(range(progress.num_ranks)) - {state.rank for state in progress.rank_states})
    if absent:
        reached = f"{len(progress.rank_states)} of {progress.num_ranks} ranks reached their probe"
        return Alarm(cause=Cause.START_LIMIT, text=f"no first step {limit}: {reached}, rank {absent[0]} did not", rank=absent[0])
    last = find_culprit(furthest_behind(waiting), silent)
    who = f"rank {last.rank}" if len(waiting) == 1 else f"{len(waiting)} ranks"
    text = f"no first step of {who} {limit}; rank {last.rank} is in '{last.phase}'"
    return Alarm(cause=Cause.START_LIMIT, text=text, rank=last.rank, phase=last.phase)


def _memory_limit(progress: Progress, limits: LimitsSpec) -> Alarm | None:
    used = progress.memory_bytes
    if limits.memory_gib is None or used is None or used <= limits.memory_gib * GIB:
        return None
    limit = format_bytes(limits.memory_gib * GIB)
    return Alarm(
        cause=Cause.MEMORY_LIMIT,
        outcome=Outcome.FAILED,
        text=f"its processes hold {format_bytes(used)} of memory (limit {limit}: limits.memory_gib; rss_kib, latest sample), "
        f"at step {_step(progress)}",
    )


def _disk_limit(progress: Progress, limits: LimitsSpec) -> Alarm | None:
    disk = progress.disk
    if limits.disk_gib is None or disk.bytes <= limits.disk_gib * GIB:
        return None
    limit = format_bytes(limits.disk_gib * GIB)
    largest = f", {format_bytes(disk.largest_bytes)} of it {disk.largest_file}" if disk.largest_file else ""
    return Alarm(
        cause=Cause.DISK_LIMIT,
        outcome=Outcome.FAILED,
        text=f"its logs and events take {format_bytes(disk.bytes)}{largest} (limit {limit}: limits.disk_gib), at step {_step(progress)}",
    )


def _stall_alarm(progress: Progress, stall: Stall | None) -> Alarm | None:
    if stall is None:
        return None
    return Alarm(
        cause=Cause.STALL,
        outcome=Outcome.STALLED,
        text=describe_stall(stall, progress),
        action=advise_on_stall(stall, progress.num_ranks),
        rank=stall.culprit.rank if stall.culprit else None,
        # The phase of a silent rank is unknown; the text has its last one.
        phase=stall.culprit.phase if stall.culprit and stall.silent_s is None else "",
    )


def _step(progress: Progress) -> str:
    if progress.step is None:
        return "none yet"
    return f"{progress.step} of {progress.total}" if progress.total else str(progress.step)


def halt_step(progress: Progress, now_t: float) -> int:
    """A step that no rank has begun yet, as far as is known, and that comes soon: two seconds of steps, and at least two, beyond the
    furthest that any rank can have ended by `now_t`. All ranks stop before it, so that none waits in a collective for one that has gone.
    """
    states = {state.rank: state for state in progress.rank_states}
    unfinished = [last for last in progress.last_steps if not (last.rank in states and states[last.rank].is_done)]
    ahead = (_halt_step_of(last, states.get(last.rank), now_t) for last in unfinished or progress.last_steps)
    return max(ahead, default=MIN_AHEAD_STEPS)


def _halt_step_of(last: LastStep, state: RankState | None, now_t: float) -> int:
    if not last.iter_ms_p50:
        return last.step + MIN_AHEAD_STEPS
    iter_s = max(last.iter_ms_p50 / 1000, MIN_ITER_S)
    # At its latest heartbeat a rank was in the step after its last one, so of the time before that heartbeat at most one step counts: a
    # rank that has not moved for long is not far ahead.
    since_t = max(last.step_t, state.heartbeat_t - iter_s) if state and state.heartbeat_t <= now_t else last.step_t
    unseen_s = min(max(now_t - since_t, 0.0), MAX_AGE_S)
    return last.step + math.floor(unseen_s / iter_s) + max(MIN_AHEAD_STEPS, math.ceil(AHEAD_S / iter_s))
