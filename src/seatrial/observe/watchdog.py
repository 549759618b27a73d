"""When the supervisor must step in. Pure: progress, time and limits go in, an alarm or None comes out; campaign/ acts on it."""

from __future__ import annotations

from dataclasses import dataclass

from seatrial.observe.progress import Progress
from seatrial.records.outcome import Cause
from seatrial.records.run_spec import LimitsSpec
from seatrial.units import format_duration


@dataclass(frozen=True, kw_only=True)
class Alarm:
    """A limit that was passed."""

    cause: Cause
    text: str
    action: str


def alarm(progress: Progress, elapsed_s: float, limits: LimitsSpec) -> Alarm | None:
    """The limit that `elapsed_s` after launch has passed, if any."""
    if limits.run_s is not None and elapsed_s > limits.run_s:
        return Alarm(
            cause=Cause.RUN_LIMIT,
            text=f"still running after {format_duration(limits.run_s)} (limits.run_s), at step {_step(progress)}",
            action="raise limits.run_s, lower steps, or look in launcher.log for what takes the time",
        )
    if limits.start_s is not None and not progress.alive and elapsed_s > limits.start_s:
        return Alarm(
            cause=Cause.START_LIMIT,
            text=f"no first step, and no output of a script without the probe, within {format_duration(limits.start_s)} (limits.start_s)",
            action="read launcher.log for where it stands; raise limits.start_s when loading or compiling really takes longer",
        )
    return None


def _step(progress: Progress) -> str:
    if progress.step is None:
        return "none yet"
    return f"{progress.step} of {progress.total}" if progress.total else str(progress.step)
