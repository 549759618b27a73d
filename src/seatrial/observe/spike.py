"""Telling that steps have become much slower, once, and that it is over.

In: progress, look by look, and the plan's `limits.spike_ratio`. Out: `SpikeAlarm` or None; campaign/ writes it to alarms.jsonl. Pure:
the times of a look are passed in. What is compared is the median of the newest steps on the slowest rank with the median of those medians
over the looks before, so neither one slow step nor one odd look raises an alarm. A step that does not end at all is told too, once it
has lasted far longer than any before; named pauses, and time in which the harness itself did not run, do not count for that.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from statistics import median

from seatrial.observe.progress import Progress, RankMark
from seatrial.observe.stall import HARNESS_GAP_S

# Looks that found a new step make the pace that counts as usual, and so many of them must be there before anything is called unusual.
# With the probe there is one for every heartbeat, so these are the last minute; of a script's own lines there may be one every second,
# so there they may be the last twelve seconds only, each of them a median over the script's newest lines.
USUAL_LOOKS = 12
LEAST_LOOKS = 3
# A step is heard of up to a heartbeat late, so silence means something only beyond this, whatever the steps took before.
LEAST_SILENCE_S = 15.0
SPIKE, SILENCE, OVER = "spike", "silence", "spike_over"


@dataclass(frozen=True, kw_only=True)
class SpikeAlarm:
    """One line of alarms.jsonl."""

    t: float
    kind: str
    """`spike`, `silence` while no step ends, or `spike_over` when the steps are as fast as before again."""
    rank: int
    """The slowest rank at this look."""
    step: int
    iter_ms_p50: float
    before_ms: float
    ratio: float
    """Of the two."""
    text: str


class SpikeWatch:
    """Looks at one run again and again. `ratio` None: never an alarm."""

    def __init__(self, ratio: float | None) -> None:
        self._ratio = ratio
        self._usual_ms: deque[float] = deque(maxlen=USUAL_LOOKS)
        self._step: int | None = None
        self._step_m = self._looked_m = 0.0
        self._told_ms: float | None = None
        """The step time that was last told as a spike; None while there is none."""

    def look(self, progress: Progress, t: float, now_m: float | None = None) -> SpikeAlarm | None:
        """An alarm when a spike begins, grows by the ratio again, or is over. `t` is the wall clock, for the alarm; `now_m` a monotonic
        one, for how long a step lasts (`t` where it is not given)."""
        now_m = t if now_m is None else now_m
        slowest = max(progress.ranks, key=lambda mark: mark.iter_ms_p50 or 0.0, default=None)
        if self._ratio is None or slowest is None or not slowest.iter_ms_p50:
            return None
        was_away, self._looked_m = now_m - self._looked_m > HARNESS_GAP_S, now_m
        is_new, self._step = progress.step != self._step, progress.step
        if is_new or was_away or any(standing.is_paused for standing in progress.standings):
            self._step_m = now_m
        # Most looks find the heartbeats of the look before.
        if not is_new:
            return self._silence(min(progress.ranks, key=lambda mark: mark.step), t, now_m, self._ratio)
        return self._judge(slowest, slowest.iter_ms_p50, t, self._ratio)

    def _silence(self, mark: RankMark, t: float, now_m: float, ratio: float) -> SpikeAlarm | None:
        """An alarm when the step that every rank waits for has lasted so long that silence cannot be a late heartbeat."""
        lasted_ms = (now_m - self._step_m) * 1000
        if not self._usual_ms or lasted_ms < LEAST_SILENCE_S * 1000 or lasted_ms <= ratio * max(self._told_ms or 0.0, *self._usual_ms):
            return None
        self._told_ms = lasted_ms
        return _alarm(SILENCE, mark, lasted_ms, median(self._usual_ms), t)

    def _judge(self, mark: RankMark, now_ms: float, t: float, ratio: float) -> SpikeAlarm | None:
        before_ms = median(self._usual_ms) if len(self._usual_ms) >= LEAST_LOOKS else None
        if before_ms is not None and now_ms > ratio * (self._told_ms or before_ms):
            self._told_ms = now_ms
            return _alarm(SPIKE, mark, now_ms, before_ms, t)
        if before_ms is None or self._told_ms is None:
            self._usual_ms.append(now_ms)
            return None
        # Half-way back, so that a step time at the very border does not come and go; what is slow does not become usual meanwhile.
        if now_ms > before_ms * (1 + ratio) / 2:
            return None
        self._told_ms = None
        self._usual_ms.append(now_ms)
        return _alarm(OVER, mark, now_ms, before_ms, t)


def _alarm(kind: str, mark: RankMark, now_ms: float, before_ms: float, t: float) -> SpikeAlarm:
    ratio = now_ms / before_ms
    if kind == SILENCE:
        last = f"the last was {mark.step}, rank {mark.rank}"
        text = f"no step has ended for {now_ms / 1000:.0f} s ({last}); steps took {before_ms:.1f} ms before"
    elif kind == SPIKE:
        where = f"median, rank {mark.rank}, at step {mark.step}"
        text = f"steps take {now_ms:.1f} ms ({where}), {ratio:.1f} times the {before_ms:.1f} ms before"
    else:
        text = f"steps take {now_ms:.1f} ms again (at step {mark.step}); before the spike it was {before_ms:.1f} ms"
    return SpikeAlarm(
        t=t, kind=kind, rank=mark.rank, step=mark.step, iter_ms_p50=now_ms, before_ms=before_ms, ratio=round(ratio, 3), text=text
    )
