"""The probe a training loop holds. In: calls around data, steps, phases and pauses. Out: one event file and one heartbeat file a rank.

Nothing it does may stop or slow the training: lines are buffered and written by a thread, device times are read once they are available,
a full disk costs lines and not the run.
"""

from __future__ import annotations

import atexit
import os
import re
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, TypeVar

from seatrial.core.errors import did_you_mean
from seatrial.core.text import MIB
from seatrial.probe.contexts import (
    DATA_WAIT,
    NULL_CONTEXT,
    PHASE_INDEX,
    NullContext,
    PauseContext,
    PhaseContext,
    SpanContext,
    StepContext,
    TimedLoader,
    UntimedPhase,
)
from seatrial.probe.cuda import torch_with_cuda
from seatrial.probe.identity import identify
from seatrial.probe.timeline import OFF, StepRecord
from seatrial.probe.writer import Writer
from seatrial.records.events import FIGURE_NAME, HEARTBEAT_EVERY_S, SPANS


def read_memory_mib() -> dict[str, float | None]:
    torch = torch_with_cuda()
    cuda = None if torch is None else torch.cuda
    return {
        "allocated_mib": _mib(cuda.memory_allocated()) if cuda else None,
        "reserved_mib": _mib(cuda.memory_reserved()) if cuda else None,
        "peak_mib": _mib(cuda.max_memory_allocated()) if cuda else None,
        "rss_mib": _rss_mib(),
    }


def _rss_mib() -> float | None:
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
    except (OSError, ValueError, IndexError):
        return None
    return _mib(pages * os.sysconf("SC_PAGE_SIZE"))


def _mib(count: int) -> float:
    return round(count / MIB, 3)


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
        """Whether the harness has asked the run to end, so that no further step may begin. Check it before each step where the loop does
        not use `data`, and after the loop where another loop is around it."""
        return self._was_halted if self._writer is None else self._timeline.must_halt()

    def data(self, loader: Iterable[Batch]) -> Iterable[Batch]:
        """The same loader, timed: each wait for a batch counts as data_wait of the next step. At a halt it ends."""
        return loader if self._writer is None else TimedLoader(loader, self._timeline, self._until_first_step)

    def resume_at(self, step: int) -> None:
        """Number the steps from here on: for a training that resumes from a checkpoint. Call it before the first step."""
        if self._writer is not None:
            self._timeline.ended_steps = step

    def step(self, *, samples: float | None = None, tokens: float | None = None) -> StepContext | NullContext:
        """One training step of this rank, and how much work is in it."""
        return NULL_CONTEXT if self._writer is None else StepContext(self._timeline, samples, tokens)

    def phase(self, name: str) -> PhaseContext | UntimedPhase | NullContext:
        """A part of the step: data_wait, preprocess, fwd, bwd or step. Several of one name add up."""
        index = PHASE_INDEX.get(name)
        if index is None:
            raise ValueError(
                f"unknown phase '{name}': expected one of {', '.join(PHASE_INDEX)}; for anything else use probe.pause('{name}')"
            )
        if self._writer is None:
            return NULL_CONTEXT
        if self._timeline.how == OFF and index != DATA_WAIT:
            return self._untimed[index]
        return PhaseContext(self._timeline, name, index)

    def pause(self, name: str) -> PauseContext | NullContext:
        """Time that must not count as training: eval, checkpoint, compile, or any other name."""
        if self._writer is None:
            return NULL_CONTEXT
        span = self._until_first_step(name) if name in SPANS else NULL_CONTEXT
        return PauseContext(self._timeline, name, self._writer.on_pause_end, span)

    def startup(self, name: str) -> SpanContext | NullContext:
        """A part of the start-up, before the first step: process_group, model, ops_build (extensions that are compiled), data, tokenise or
        compile. Several of one name add up."""
        if name not in SPANS:
            raise ValueError(f"unknown part of the start-up '{name}': {did_you_mean(name, SPANS)}; what has no name counts as 'other'")
        return NULL_CONTEXT if self._writer is None else SpanContext(self._timeline, name, self._writer.on_span_end)

    def recent(self) -> tuple[StepRecord, ...]:
        """The steps that ended last, at most a timing window of them: number, clocks, wall time, phases. Read only.

        Phases are null where they were not timed or the device has not passed them yet. A silent probe has no steps.
        """
        return () if self._writer is None else self._timeline.known_steps()

    def effective(self, setting: str, *, requested: Any, effective: Any, reason: str = "", follows: Iterable[str] = ()) -> None:
        """The value a setting has in effect on this machine, and why. `follows` names settings it may follow: groups that differ in one of
        them may differ in this one too, and are still compared; `attn=flash|sdpa` only where one of the two groups has such a value."""
        if self._writer is not None:
            # A bare string is a common mistake for a tuple of one.
            declared = ",".join([follows] if isinstance(follows, str) else follows)
            more = {"follows": declared} if declared else {}
            self._writer.put_event("effective", setting=setting, requested=requested, effective=effective, reason=reason, **more)

    def figure(self, name: str, value: float, unit: str = "", n: int | None = None) -> None:
        """A figure that this workload measures itself, and over how many cases; the last one of a name counts."""
        if not re.fullmatch(FIGURE_NAME, name):
            raise ValueError(f"the figure's name is '{name}'; expected up to 100 letters, digits and _, as in 'ttft_p99_ms'")
        if self._writer is not None:
            self._writer.put_event("figure", name=name, value=float(value), unit=str(unit), n=None if n is None else int(n))

    def progress(self, **fields: Any) -> None:
        """What a watchdog should know of the loop besides its step: a heartbeat `progress` with these fields follows within a second. Of
        several calls in between the last counts. Values are plain: reading a tensor would wait for the device."""
        if self._writer is not None:
            self._writer.put_progress(fields)

    def memory(self) -> None:
        """Record how much memory this process and its GPU use now."""
        if self._writer is not None and self._writer.identity.writes_steps:
            self._writer.put_event("memory", step=self._timeline.last_step, **read_memory_mib())

    def loss(self, value: Any) -> None:
        """The loss of the open step, else of the one that ended last. A CUDA tensor is read later, without waiting for it."""
        if self._writer is not None:
            self._timeline.loss(value)

    def close(self) -> None:
        """Write what is left. The run counts as ended cleanly unless this is called while an exception propagates."""
        self._close(clean=_is_clean(sys.exc_info()[1]))

    def __enter__(self) -> Probe:
        return self

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        self._close(clean=_is_clean(error))

    def _until_first_step(self, name: str) -> SpanContext | NullContext:
        return NULL_CONTEXT if self._timeline.newest else self.startup(name)

    def _close_at_exit(self) -> None:
        # At exit an uncaught exception is no longer in sys.exc_info, and sys.exit leaves no trace at all.
        self._close(clean=not self._timeline.raised and _last_error() is self._error_before)

    def _close(self, *, clean: bool) -> None:
        writer, self._writer = self._writer, None
        if writer is not None and writer.identity.pid == os.getpid():
            atexit.unregister(self._close_at_exit)
            self._was_halted = self._timeline.halted
            writer.end(clean=clean)


def _last_error() -> BaseException | None:
    """The uncaught exception Python last reported (`last_exc` from 3.12 on, `last_value` before)."""
    return getattr(sys, "last_exc", None) or getattr(sys, "last_value", None)


def _is_clean(error: BaseException | None) -> bool:
    return error is None or (isinstance(error, SystemExit) and error.code in (None, 0))
