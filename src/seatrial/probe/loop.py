"""The probe a training loop holds. In: calls around data, steps, phases and pauses. Out: one event file and one heartbeat file a rank.

Nothing it does may stop or slow the training: lines are buffered and written by a thread, device times are read when they are there,
a disk that is full costs lines and not the run.
"""

from __future__ import annotations

import atexit
import contextlib
import difflib
import logging
import os
import re
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, TypeVar

from seatrial.probe.contexts import (
    DATA_WAIT,
    NOTHING,
    PHASE_INDEX,
    Nothing,
    PauseContext,
    PhaseContext,
    SpanContext,
    StepContext,
    TimedLoader,
    UntimedPhase,
)
from seatrial.probe.cuda import Cuda, find_cuda
from seatrial.probe.event_lines import EventLines, StepRecord
from seatrial.probe.halt import HaltFile
from seatrial.probe.heartbeat import Heart, Standing
from seatrial.probe.identity import Identity, identify
from seatrial.probe.line_file import LineFile
from seatrial.probe.memory import memory_mib
from seatrial.probe.stacks import write_stacks_at
from seatrial.probe.timeline import OFF, Timeline
from seatrial.records.events import HEARTBEAT_EVERY_S, SPANS

log = logging.getLogger(__name__)

Batch = TypeVar("Batch")

FLUSH_AT_LINES = 256
# Reached only when the thread is gone or far behind; the loop then writes for itself.
FLUSH_HERE_AT_LINES = 16 * FLUSH_AT_LINES
LONGEST_DRAIN_S = 5.0
FIGURE_NAME = re.compile(r"[a-z0-9_]+")


class Probe:
    """Reports the steps of one rank. Silent, and free of cost, unless `run_dir` is given or SEATRIAL_RUN_DIR is set.

    Use it as a context manager, or call `close()` at the end; left to the end of the process, it closes itself.
    """

    def __init__(
        self,
        run_dir: str | Path | None = None,
        *,
        run: str | None = None,
        attempt: int | None = None,
        rank: int | None = None,
        world_size: int | None = None,
        local_rank: int | None = None,
        rank_scope: str | None = None,
        sync: bool | None = None,
        phase_every: int | None = None,
        heartbeat_s: float | None = HEARTBEAT_EVERY_S,
        clock: Callable[[], float] = time.monotonic,
        wall_clock: Callable[[], float] = time.time,
    ) -> None:
        self._writer: _Writer | None = None
        self._was_halted = False
        identity = identify(
            run_dir,
            run=run,
            attempt=attempt,
            rank=rank,
            world_size=world_size,
            local_rank=local_rank,
            rank_scope=rank_scope,
            sync=sync,
            phase_every=phase_every,
        )
        if identity is not None:
            self._writer = _Writer(identity, heartbeat_s, clock, wall_clock)
            self._timeline = self._writer.timeline
            self._untimed = tuple(UntimedPhase(self._timeline, name) for name in PHASE_INDEX)
            self._error_before = _last_error()
            self._writer.start()
            atexit.register(self._close_at_exit)

    @property
    def active(self) -> bool:
        """Whether anything is written."""
        return self._writer is not None

    @property
    def halted(self) -> bool:
        """Whether the harness wants the run to end and no further step is to begin: to be asked before each step where the loop does
        not go through `data`, and after it where there is a loop around that one."""
        return self._was_halted if self._writer is None else self._timeline.obeys_halt()

    def data(self, loader: Iterable[Batch]) -> Iterable[Batch]:
        """The same loader, timed: each wait for a batch counts as data_wait of the coming step. At a halt it is over."""
        return loader if self._writer is None else TimedLoader(loader, self._timeline, self._until_first_step)

    def resume_at(self, step: int) -> None:
        """Number the coming steps from here on: for a training that goes on after a checkpoint. To be called before the first step."""
        if self._writer is not None:
            self._timeline.ended_steps = step

    def step(self, *, samples: float | None = None, tokens: float | None = None) -> StepContext | Nothing:
        """One training step of this rank, and how much work is in it."""
        return NOTHING if self._writer is None else StepContext(self._timeline, samples, tokens)

    def phase(self, name: str) -> PhaseContext | UntimedPhase | Nothing:
        """A part of the step: data_wait, preprocess, fwd, bwd or step. Several of one name add up."""
        index = PHASE_INDEX.get(name)
        if index is None:
            raise ValueError(
                f"unknown phase '{name}': expected one of {', '.join(PHASE_INDEX)}; for anything else use probe.pause('{name}')"
            )
        if self._writer is None:
            return NOTHING
        if self._timeline.how == OFF and index != DATA_WAIT:
            return self._untimed[index]
        return PhaseContext(self._timeline, name, index)

    def pause(self, name: str) -> PauseContext | Nothing:
        """Time that must not count as training: eval, checkpoint, compile, or any other name."""
        if self._writer is None:
            return NOTHING
        span = self._until_first_step(name) if name in SPANS else NOTHING
        return PauseContext(self._timeline, name, self._writer.pause_ended, span)

    def startup(self, name: str) -> SpanContext | Nothing:
        """A part of what comes before the first step: process_group, model, data or compile. Several of one name add up."""
        if name not in SPANS:
            raise ValueError(f"unknown part of the start-up '{name}': {_nearest_span(name)}; what has no name counts as 'other'")
        return NOTHING if self._writer is None else SpanContext(self._timeline, name, self._writer.span_ended)

    def recent(self) -> tuple[StepRecord, ...]:
        """The steps that ended last, at most a timing window of them: number, clocks, wall time, phases. To be read only.

        Phases are null where they were not taken or the device has not passed them yet. A silent probe knows none.
        """
        return () if self._writer is None else self._timeline.known_steps()

    def effective(self, setting: str, *, requested: Any, effective: Any, reason: str = "") -> None:
        """What a setting came to on this machine, and why."""
        if self._writer is not None:
            self._writer.tell("effective", setting=setting, requested=requested, effective=effective, reason=reason)

    def figure(self, name: str, value: float, unit: str = "", n: int | None = None) -> None:
        """A figure that this workload measures itself, and over how many cases; told again, the last one counts."""
        if not FIGURE_NAME.fullmatch(name):
            raise ValueError(f"the figure's name is '{name}'; expected small letters, digits and _, as in 'ttft_p99_ms'")
        if self._writer is not None:
            self._writer.tell("figure", name=name, value=float(value), unit=str(unit), n=None if n is None else int(n))

    def memory(self) -> None:
        """Write how much memory this process and its GPU hold now."""
        if self._writer is not None and self._writer.identity.writes_steps:
            self._writer.tell("memory", step=self._timeline.last_step, **memory_mib())

    def loss(self, value: Any) -> None:
        """The loss of the step that ended last, or of the one that is open. A CUDA tensor is read later, without waiting for it."""
        if self._writer is not None:
            self._timeline.loss(value)

    def close(self) -> None:
        """Write what is left. The run counts as ended well unless this is called while an exception is on its way."""
        self._close(clean=_is_clean(sys.exc_info()[1]))

    def __enter__(self) -> Probe:
        return self

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        self._close(clean=_is_clean(error))

    def _until_first_step(self, name: str) -> SpanContext | Nothing:
        return NOTHING if self._timeline.newest else self.startup(name)

    def _close_at_exit(self) -> None:
        # By now an uncaught exception is gone from sys.exc_info, and sys.exit leaves no trace at all.
        self._close(clean=not self._timeline.raised and _last_error() is self._error_before)

    def _close(self, *, clean: bool) -> None:
        writer, self._writer = self._writer, None
        if writer is not None and writer.identity.pid == os.getpid():
            atexit.unregister(self._close_at_exit)
            self._was_halted = self._timeline.halted
            writer.end(clean=clean)


class _Writer:
    """Buffer, files and thread behind an active probe."""

    def __init__(self, identity: Identity, heartbeat_s: float | None, clock: Callable[[], float], wall_clock: Callable[[], float]) -> None:
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
            clock=clock,
            wall_clock=wall_clock,
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
            clock=clock,
            wall_clock=wall_clock,
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
        self._put(self._lines.event(kind, self.timeline.wall_clock(), self.timeline.clock(), **fields))

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


def _nearest_span(name: str) -> str:
    near = difflib.get_close_matches(name, SPANS, n=1)
    return f"did you mean '{near[0]}'?" if near else f"expected one of {', '.join(SPANS)}"


def _drop(record: StepRecord) -> None:
    """Of a rank whose steps are not written."""


def _no_device() -> Cuda | None:
    return None


def _last_error() -> BaseException | None:
    """The uncaught exception Python last reported (`last_exc` from 3.12 on, `last_value` before)."""
    return getattr(sys, "last_exc", None) or getattr(sys, "last_value", None)


def _is_clean(error: BaseException | None) -> bool:
    return error is None or (isinstance(error, SystemExit) and error.code in (None, 0))
