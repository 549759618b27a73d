"""The probe a training loop holds. In: calls around data, steps, phases and pauses. Out: one event file and one heartbeat file a rank.

Nothing it does may stop or slow the training: lines are buffered and written by a thread, device times are read when they are there,
a disk that is full costs lines and not the run.
"""

from __future__ import annotations

import atexit
import difflib
import os
import re
import sys
import time
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
from seatrial.probe.event_lines import StepRecord
from seatrial.probe.identity import identify
from seatrial.probe.memory import memory_mib
from seatrial.probe.timeline import OFF
from seatrial.probe.writer import Writer
from seatrial.records.events import FIGURE_NAME, HEARTBEAT_EVERY_S, SPANS

Batch = TypeVar("Batch")


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
        monotonic: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._writer: Writer | None = None
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
            self._writer = Writer(identity, heartbeat_s, monotonic, wall)
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
        """A part of what comes before the first step: process_group, model, data, tokenise or compile. Several of one name add up."""
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
        if not re.fullmatch(FIGURE_NAME, name):
            raise ValueError(f"the figure's name is '{name}'; expected up to 100 letters, digits and _, as in 'ttft_p99_ms'")
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


def _nearest_span(name: str) -> str:
    near = difflib.get_close_matches(name, SPANS, n=1)
    return f"did you mean '{near[0]}'?" if near else f"expected one of {', '.join(SPANS)}"


def _last_error() -> BaseException | None:
    """The uncaught exception Python last reported (`last_exc` from 3.12 on, `last_value` before)."""
    return getattr(sys, "last_exc", None) or getattr(sys, "last_value", None)


def _is_clean(error: BaseException | None) -> bool:
    return error is None or (isinstance(error, SystemExit) and error.code in (None, 0))
