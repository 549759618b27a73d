"""Alarms for steps that have become much slower, and for the end of that.

In: progress, polled, and the plan's `limits.spike_ratio`. Out: `SpikeAlarm` or None; campaign/ writes it to alarms.jsonl.
Pure: times are passed in. The median of the latest steps on the slowest rank is compared with the median of those medians before, so
neither one slow step nor one odd reading raises an alarm. A step that does not end at all raises one too, once it has lasted far longer
than any before; named pauses, and time in which the harness itself did not run, do not count for that.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from statistics import median

from seatrial.observe.progress import LastStep, Progress
from seatrial.observe.stall import HARNESS_GAP_S

# The usual step time comes from this many readings with a new step. With the probe there is one per heartbeat, so these are the last
# minute; from a script's lines there may be one a second, each a median over the latest lines.
USUAL_READINGS = 12
MIN_READINGS = 3
# A step is reported up to a heartbeat late, so only longer silence counts, whatever the steps took before.
MIN_SILENCE_S = 15.0
SPIKE, SILENCE, OVER = "spike", "silence", "spike_over"


@dataclass(frozen=True, kw_only=True)
class SpikeAlarm:
    """One line of alarms.jsonl."""

    t: float
    kind: str
    """`spike`, `silence` while no step ends, or `spike_over` when the steps are as fast as before again."""
    rank: int
    """The slowest rank."""
    step: int
    iter_ms_p50: float
    before_ms: float
    ratio: float
    """The slow time over the usual one."""
    text: str


class SpikeDetector:
    """Checks one run repeatedly. `ratio` None: never an alarm."""

    def __init__(self, ratio: float | None) -> None:
        self._ratio = ratio
        self._usual_ms: deque[float] = deque(maxlen=USUAL_READINGS)
        self._step: int | None = None
        self._step_m = self._checked_m = 0.0
        self._reported_ms: float | None = None
        """The step time of the last spike alarm; None while there is no spike."""

    def check(self, progress: Progress, t: float, now_m: float | None = None) -> SpikeAlarm | None:
        """An alarm when a spike begins, grows by the ratio again, or is over. `t` is the wall clock, for the alarm; `now_m` a monotonic
        one, for how long a step lasts (default `t`)."""
        now_m = t if now_m is None else now_m
        slowest = max(progress.last_steps, key=lambda last: last.iter_ms_p50 or 0.0, default=None)
        if self._ratio is None or slowest is None or not slowest.iter_ms_p50:
            return None
        was_away, self._checked_m = now_m - self._checked_m > HARNESS_GAP_S, now_m
        is_new, self._step = progress.step != self._step, progress.step
        if is_new or was_away or any(state.is_paused for state in progress.rank_states):
            self._step_m = now_m
        # Most checks find the heartbeats of the check before.
        if not is_new:
            return self._check_silence(min(progress.last_steps, key=lambda last: last.step), t, now_m, self._ratio)
        return self._check_step_time(slowest, slowest.iter_ms_p50, t, self._ratio)

    def _check_silence(self, last: LastStep, t: float, now_m: float, ratio: float) -> SpikeAlarm | None:
        """An alarm when the step that every rank waits for has lasted so long that silence cannot be a late heartbeat."""
        lasted_ms = (now_m - self._step_m) * 1000
        if not self._usual_ms or lasted_ms < MIN_SILENCE_S * 1000 or lasted_ms <= ratio * max(self._reported_ms or 0.0, *self._usual_ms):
            return None
        self._reported_ms = lasted_ms
        return _alarm(SILENCE, last, lasted_ms, median(self._usual_ms), t)

    def _check_step_time(self, last: LastStep, now_ms: float, t: float, ratio: float) -> SpikeAlarm | None:
        before_ms = median(self._usual_ms) if len(self._usual_ms) >= MIN_READINGS else None
        if before_ms is not None and now_ms > ratio * (self._reported_ms or before_ms):
            self._reported_ms = now_ms
            return _alarm(SPIKE, last, now_ms, before_ms, t)
        if before_ms is None or self._reported_ms is None:
            self._usual_ms.append(now_ms)
            return None
        # Half-way back, so that a step time at the border does not flicker; slow readings do not become usual meanwhile.
        if now_ms > before_ms * (1 + ratio) / 2:
            return None
        self._reported_ms = None
        self._usual_ms.append(now_ms)
        return _alarm(OVER, last, now_ms, before_ms, t)


def _alarm(kind: str, last: LastStep, now_ms: float, before_ms: float, t: float) -> SpikeAlarm:
    ratio = now_ms / before_ms
    if kind == SILENCE:
        where = f"the last was {last.step}, rank {last.rank}"
        text = f"no step has ended for {now_ms / 1000:.0f} s ({where}); steps took {before_ms:.1f} ms before"
    elif kind == SPIKE:
        where = f"median, rank {last.rank}, at step {last.step}"
        text = f"steps take {now_ms:.1f} ms ({where}), {ratio:.1f} times the {before_ms:.1f} ms before"
    else:
        text = f"steps take {now_ms:.1f} ms again (at step {last.step}); before the spike it was {before_ms:.1f} ms"
    return SpikeAlarm(
        t=t, kind=kind, rank=last.rank, step=last.step, iter_ms_p50=now_ms, before_ms=before_ms, ratio=round(ratio, 3), text=text
    )
