"""Behind an active probe: buffer, files and thread. In: step records and rare events. Out: their lines, in order, and heartbeats.

The loop only appends; the thread formats and writes. A disk that is full costs lines and not the run.
"""

from __future__ import annotations

import contextlib
import logging
import os
import threading
from collections import deque
from collections.abc import Callable
from typing import Any

from seatrial.probe.cuda import Cuda, find_cuda
from seatrial.probe.event_lines import EventLines, StepRecord
from seatrial.probe.halt import HaltFile
from seatrial.probe.heartbeat import Heart, Standing
from seatrial.probe.identity import Identity
from seatrial.probe.line_file import LineFile
from seatrial.probe.stacks import write_stacks_at
from seatrial.probe.timeline import Timeline

log = logging.getLogger(__name__)

FLUSH_AT_LINES = 256
# Reached only when the thread is gone or far behind; the loop then writes for itself.
FLUSH_HERE_AT_LINES = 16 * FLUSH_AT_LINES
LONGEST_DRAIN_S = 5.0


class Writer:
    """Of one rank."""

    def __init__(self, identity: Identity, heartbeat_s: float | None, monotonic: Callable[[], float], wall: Callable[[], float]) -> None:
        self.identity = identity
        self._emit_steps = identity.writes_steps
        self._lines = EventLines(identity)
        self._file = LineFile(identity.events_path)
        self._beats = LineFile(identity.heartbeat_path)
        # A deque is safe between the loop that appends and the thread that takes; a list swapped for another is not.
        self._buffer: deque[StepRecord | str] = deque()
        self._flushing = threading.Lock()
        self.timeline = Timeline(
            sync=identity.sync,
            phase_every=identity.phase_every,
            window=identity.timing_window,
            emit=self._put if identity.writes_steps else _drop,
            monotonic=monotonic,
            wall=wall,
            # Whose steps are not written need not ask the device for them.
            find_device=find_cuda if identity.writes_steps else _no_device,
            on_halt=self._halted,
        )
        self._halt = HaltFile(identity.halt_path, identity.attempt)
        self._heart = Heart(
            self._beats,
            identity,
            standing=self._standing,
            on_tick=self._tick,
            every_s=heartbeat_s,
            monotonic=monotonic,
            wall=wall,
        )

    def start(self) -> None:
        me = self.identity
        began_t = None if me.process_t is None else round(me.process_t, 3)
        signal = write_stacks_at(me.stack_signal, me.stack_path)
        who = {"pid": me.pid, "host": me.host, "world_size": me.world_size, "launched_by": me.launched_by}
        self.tell("start", **who, signal=signal, process_t=began_t, local_rank=me.local_rank, gpu=me.gpu)
        self._look_for_halt()
        self.flush()
        self._heart.start()

    def tell(self, kind: str, **fields: Any) -> None:
        """Put one rare event behind the step lines that are already let go."""
        self._put(self._lines.event(kind, self.timeline.wall(), self.timeline.monotonic(), **fields))

    def pause_ended(self, name: str, pause_s: float) -> None:
        if self._emit_steps:
            self.tell("pause", name=name, step=self.timeline.ended_steps, pause_ms=round(pause_s * 1000.0, 3))

    def span_ended(self, name: str, span_s: float) -> None:
        self.tell("span", name=name, span_ms=round(span_s * 1000.0, 3))

    def flush(self) -> None:
        """Format and write what is buffered."""
        # A forked child may hold a copy of a lock that is never released; it has nothing to write.
        if os.getpid() != self.identity.pid:
            self._buffer.clear()
            return
        with self._flushing:
            batch: list[str] = []
            with contextlib.suppress(IndexError):
                while True:
                    entry = self._buffer.popleft()
                    batch.append(entry if isinstance(entry, str) else self._lines.step(entry))
            self._file.write(batch)

    def end(self, *, clean: bool) -> None:
        timeline = self.timeline
        timeline.drain(LONGEST_DRAIN_S)
        if clean:
            self.tell("stop", step=timeline.last_step, steps=timeline.ended_steps)
            timeline.where = "done"
        self._heart.stop()
        self.flush()
        self._heart.beat("done" if clean else "ended without reaching its end")
        self._file.close()
        self._beats.close()

    def _tick(self) -> None:
        if self._look_for_halt():
            self._heart.beat("beat")
        self.flush()

    def _look_for_halt(self) -> bool:
        """Whether there is news; the loop learns of it by comparing two numbers."""
        request, timeline = self._halt.look(), self.timeline
        if request is None or timeline.halted or request.at_step == timeline.halt_at:
            return False
        timeline.halt_at = request.at_step
        log.warning("rank %d is to end before step %d: %s", self.identity.rank, request.at_step, request.reason)
        return True

    def _halted(self) -> None:
        self.tell("halt", step=self.timeline.last_step, at_step=self.timeline.halt_at)
        # What comes after the last step may be what the run hangs in: the thread writes the line now.
        self._heart.wake()

    def _put(self, entry: StepRecord | str) -> None:
        self._buffer.append(entry)
        buffered = len(self._buffer)
        if buffered == FLUSH_AT_LINES:
            self._heart.wake()
        elif buffered >= FLUSH_HERE_AT_LINES:
            self.flush()

    def _standing(self) -> Standing:
        remarks = [remark for remark in (self.timeline.remark(), self._file.remark("event")) if remark]
        # A copy, which no step can change while the median is taken.
        return Standing(phase=self.timeline.where, newest=self.timeline.newest.copy(), remark="; ".join(remarks))


def _drop(record: StepRecord) -> None:
    """Of a rank whose steps are not written."""


def _no_device() -> Cuda | None:
    return None
