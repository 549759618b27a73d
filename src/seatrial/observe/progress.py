"""How far a run is, while it runs.

Goes in: an attempt's folder. Comes out: `Progress`, read from the ranks' heartbeats where the workload has the probe, else from
the lines the script itself prints, else only from the fact that it prints. Reading is incremental: each call looks at what is new.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from seatrial import files
from seatrial.observe.growing_log import GrowingLog
from seatrial.paths import AttemptPaths
from seatrial.records.run_spec import RunSpec


@dataclass(frozen=True, kw_only=True)
class RankMark:
    """The last ended step of one rank."""

    rank: int
    step: int
    step_t: float
    """Wall clock at which it ended; for a script without the probe, at which its line arrived."""
    paused_s: float = 0.0
    """All time in named pauses up to then; always 0 for a script without the probe."""
    iter_ms_p50: float | None = None
    """Median of the newest step times; None where too few are known."""


@dataclass(frozen=True, kw_only=True)
class Progress:
    """Where a run stands."""

    step: int | None = None
    """Highest step that every rank has reached; None before the first."""
    total: int | None = None
    phase: str = ""
    """What rank 0 is doing, in the probe's words."""
    alive: bool = False
    """Something was heard of the workload: a step, or for scripts without the probe any output."""
    ranks: tuple[RankMark, ...] = ()
    """One for each rank that has ended a step, by rank; for a script without the probe one at most, as rank 0."""


def ranks_step(beats: Sequence[dict[str, object]]) -> int | None:
    """The step that all ranks have reached, by their newest heartbeats."""
    steps = [beat["step"] for beat in beats if isinstance(beat.get("step"), int)]
    return min(step for step in steps if isinstance(step, int)) if len(steps) == len(beats) and steps else None


class ProgressReader:
    """Looks at one attempt again and again."""

    def __init__(self, spec: RunSpec, attempt: AttemptPaths) -> None:
        self._spec, self._attempt = spec, attempt
        self._log = GrowingLog(spec, attempt)

    def look(self) -> Progress:
        """The newest progress."""
        beats = [beat for path in self._attempt.all_heartbeats() if (beat := files.last_json_line(path))]
        if beats:
            step = ranks_step(beats)
            return Progress(
                step=step,
                total=self._spec.steps,
                phase=str(beats[0].get("phase") or ""),
                alive=step is not None,
                ranks=tuple(mark for beat in beats if (mark := _mark(beat))),
            )
        told = self._log.look()
        marks = () if told.step is None else (RankMark(rank=0, step=told.step, step_t=told.step_t, iter_ms_p50=told.iter_ms_p50),)
        return Progress(step=told.step, total=self._spec.steps, alive=told.heard, ranks=marks)


def _mark(beat: dict[str, Any]) -> RankMark | None:
    """None before the first step. A probe of before these fields says only when it wrote: at most one beat later."""
    step, rank = beat.get("step"), beat.get("rank")
    step_t = _number(beat, "step_t")
    if step_t is None:
        step_t = _number(beat, "ts")
    if not isinstance(step, int) or not isinstance(rank, int) or step_t is None:
        return None
    paused_s = _number(beat, "paused_s") or 0.0
    return RankMark(rank=rank, step=step, step_t=step_t, paused_s=paused_s, iter_ms_p50=_number(beat, "iter_ms_p50"))


def _number(beat: dict[str, Any], name: str) -> float | None:
    value = beat.get(name)
    return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else None
