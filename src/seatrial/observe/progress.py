"""How far a run is, while it runs, and how much it holds.

Goes in: an attempt's folder. Comes out: `Progress`, read from the ranks' heartbeats where the workload has the probe, else from
the lines the script itself prints, else only from the fact that it prints. Reading is incremental: each call looks at what is new. It
never raises for what it finds in a file.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from seatrial.disk.append import kept_elsewhere
from seatrial.disk.sizes import size_bytes
from seatrial.observe.growing_log import GrowingLog
from seatrial.observe.heartbeats import Beat, Heartbeats
from seatrial.observe.host_clocks import HostClocks, OffsetOf, nobody_knows
from seatrial.observe.usage import WrittenCount, newest_rss_bytes, other_hosts
from seatrial.paths import AttemptPaths
from seatrial.records.run_spec import LOCAL, RunSpec

DONE = "done"
PAUSE = "pause:"
BETWEEN_STEPS = "loop"


@dataclass(frozen=True, kw_only=True)
class RankMark:
    """The last ended step of one rank."""

    rank: int
    step: int
    step_t: float
    """Wall clock of the harness at which it ended; for a script without the probe, at which its line arrived."""
    paused_s: float = 0.0
    """All time in named pauses up to then; always 0 for a script without the probe."""
    iter_ms_p50: float | None = None
    """Median of the newest step times; None where too few are known."""


@dataclass(frozen=True, kw_only=True)
class RankStanding:
    """Where one rank with the probe stands, by its newest heartbeat."""

    rank: int
    step: int | None = None
    """The last one that ended; None before the first."""
    phase: str = ""
    """In the probe's words: `fwd`, `loop` between two steps, `pause:eval`, `done`."""
    pid: int | None = None
    host: str = ""
    beat_ts: float = 0.0
    """When it was written, by the harness's wall clock."""
    beat_bytes: int = 0
    """How long its heartbeat file was: grows with every beat, also where the clock stands still or is set back."""

    @property
    def is_done(self) -> bool:
        return self.phase == DONE

    @property
    def is_paused(self) -> bool:
        return self.phase.startswith(PAUSE)


@dataclass(frozen=True, kw_only=True)
class Progress:
    """Where a run stands."""

    step: int | None = None
    """Highest step that every rank has reached; None before the first."""
    total: int | None = None
    phase: str = ""
    """What rank 0 is doing, in the probe's words."""
    alive: bool = False
    """Something was heard of the workload, now or before: a step of every rank, or for scripts without the probe any output."""
    ranks: tuple[RankMark, ...] = ()
    """One for each rank that has ended a step, by rank; for a script without the probe one at most, as rank 0."""
    num_ranks: int = 0
    """Ranks that the place has; 0 where nobody knows."""
    standings: tuple[RankStanding, ...] = ()
    """One for each rank with the probe, by rank; none for a script without it."""
    output_bytes: int = 0
    """Length of launcher.log, on all hosts."""
    memory_bytes: int | None = None
    """Resident memory of the run's whole process tree, by the newest sample; on many hosts that of the one that holds most; None where
    there is none."""
    written_bytes: int = 0
    """Logs, events and stacks of the attempt; counted anew every few seconds."""
    largest_file: str = ""
    """The largest of them."""
    largest_bytes: int = 0


class ProgressReader:
    """Looks at one attempt again and again."""

    def __init__(
        self,
        spec: RunSpec,
        attempt: AttemptPaths,
        monotonic: Callable[[], float] = time.monotonic,
        *,
        offset_of: OffsetOf = nobody_knows,
        wall: Callable[[], float] = time.time,
    ) -> None:
        """`offset_of` says how far the clock of a rank's host is ahead of ours, where the line to it tells."""
        self._spec, self._attempt = spec, attempt
        self._clocks = HostClocks(offset_of, wall, learns=spec.place.kind != LOCAL)
        # Arrivals are by the clock of node 0, and so must be what stands in for one that is not there yet.
        self._log = GrowingLog(spec, attempt, lambda: wall() + self._clocks.offset_s(0))
        self._heartbeats = Heartbeats(attempt, monotonic)
        self._written = WrittenCount(attempt, monotonic)
        self._heard = False
        self._stepped: set[int] = set()

    def look(self) -> Progress:
        """The newest progress."""
        beats = self._clocks.moved(self._heartbeats.look())
        progress = self._of_beats(beats) if beats else self._of_log()
        written = self._written.look()
        hosts = [self._attempt, *other_hosts(self._attempt)]
        return replace(
            progress,
            total=self._spec.steps,
            num_ranks=self._spec.place.ranks,
            output_bytes=sum(_length_bytes(host.launcher_log) for host in hosts),
            memory_bytes=max((held for host in hosts if (held := newest_rss_bytes(host.host_telemetry)) is not None), default=None),
            written_bytes=written.bytes,
            largest_file=written.largest_file,
            largest_bytes=written.largest_bytes,
        )

    def _of_beats(self, beats: Sequence[Beat]) -> Progress:
        steps = [beat.step for beat in beats if beat.step is not None]
        # Ranks that torchrun started anew are before their first step again, and the run is alive all the same.
        self._stepped.update(beat.rank for beat in beats if beat.step is not None)
        return Progress(
            step=min(steps) if len(steps) == len(beats) else None,
            phase=beats[0].phase,
            alive=all(beat.rank in self._stepped for beat in beats),
            ranks=tuple(mark for beat in beats if (mark := _mark(beat))),
            standings=tuple(_standing(beat) for beat in beats),
        )

    def _of_log(self) -> Progress:
        told = self._log.look()
        self._heard = self._heard or told.heard
        ended_t = told.step_t - self._clocks.offset_s(0)
        marks = () if told.step is None else (RankMark(rank=0, step=told.step, step_t=ended_t, iter_ms_p50=told.iter_ms_p50),)
        return Progress(step=told.step, alive=self._heard, ranks=marks)


def _mark(beat: Beat) -> RankMark | None:
    """None before the first step. A probe of before these fields says only when it wrote: at most one beat later."""
    step_t = beat.step_t if beat.step_t is not None else beat.ts
    if beat.step is None or step_t is None:
        return None
    return RankMark(rank=beat.rank, step=beat.step, step_t=step_t, paused_s=beat.paused_s, iter_ms_p50=beat.iter_ms_p50)


def _standing(beat: Beat) -> RankStanding:
    return RankStanding(
        rank=beat.rank,
        step=beat.step,
        phase=beat.phase,
        pid=beat.pid,
        host=beat.host,
        beat_ts=beat.ts or 0.0,
        beat_bytes=beat.read_bytes,
    )


def _length_bytes(path: Path) -> int:
    """With what of it lies elsewhere while its disk fails."""
    elsewhere = kept_elsewhere(path)
    return size_bytes(path) + (size_bytes(elsewhere) if elsewhere else 0)
