"""What `with` and `for` see: a step, a phase, a pause, a part of the start-up, a loader.

In: a Timeline. Out: calls on it; exceptions pass through untouched.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from seatrial.probe.timeline import MARKS, OFF, SYNC, Timeline
from seatrial.records.events import PHASES

PHASE_INDEX = {name.removesuffix("_ms"): index for index, name in enumerate(PHASES)}
DATA_WAIT = PHASE_INDEX["data_wait"]
NO_BATCH: Any = object()


class Nothing:
    """What a silent probe gives for a step, a phase, a pause or a part of the start-up."""

    samples: Any = None
    tokens: Any = None

    def __enter__(self) -> Nothing:
        return self

    def __exit__(self, kind: object, error: object, traceback: object) -> None:
        return None


NOTHING = Nothing()


class StepContext:
    """One step; `samples` and `tokens` may still be set inside it."""

    __slots__ = ("_timeline", "samples", "tokens")

    def __init__(self, timeline: Timeline, samples: Any, tokens: Any) -> None:
        self._timeline = timeline
        self.samples = samples
        self.tokens = tokens

    def __enter__(self) -> StepContext:
        self._timeline.begin_step()
        return self

    def __exit__(self, kind: object, error: object, traceback: object) -> None:
        if kind is None:
            self._timeline.end_step(self.samples, self.tokens)
        else:
            self._timeline.abandon_step()


class PhaseContext:
    """One phase, added to the step it lies in, or to the coming one."""

    __slots__ = ("_before", "_how", "_index", "_mark", "_name", "_paused_s", "_start_s", "_timeline")

    def __init__(self, timeline: Timeline, name: str, index: int) -> None:
        self._timeline = timeline
        self._name = name
        self._index = index

    def __enter__(self) -> PhaseContext:
        timeline = self._timeline
        self._before = timeline.where
        timeline.where = self._name
        how = self._how = timeline.how
        self._paused_s = timeline.paused_s
        self._mark = None
        if self._index != DATA_WAIT and timeline.cuda is not None:
            if how == SYNC:
                timeline.cuda.synchronize()
            elif how == MARKS:
                self._mark = timeline.cuda.mark()
        self._start_s = timeline.monotonic()
        return self

    def __exit__(self, kind: object, error: object, traceback: object) -> None:
        timeline = self._timeline
        if kind is not None:
            timeline.raised = True
        else:
            self._add(timeline)
        timeline.where = self._before

    def _add(self, timeline: Timeline) -> None:
        how = self._how
        if self._index == DATA_WAIT or timeline.cuda is None or how not in (MARKS, OFF):
            if how == SYNC and self._index != DATA_WAIT and timeline.cuda is not None:
                timeline.cuda.synchronize()
            timeline.add_phase(self._index, timeline.monotonic() - self._start_s - (timeline.paused_s - self._paused_s))
        elif self._mark is not None and timeline.paused_s == self._paused_s:
            # A pause inside the phase cannot be taken out of device time: such a phase stays null.
            end = timeline.cuda.mark()
            if end is not None:
                timeline.marks.append((self._index, self._mark, end))


class UntimedPhase:
    """A phase of a step whose phases are not taken: only where the loop is. One for each name serves all steps, as most are such."""

    __slots__ = ("_before", "_name", "_timeline")

    def __init__(self, timeline: Timeline, name: str) -> None:
        self._timeline = timeline
        self._name = name
        self._before = ""

    def __enter__(self) -> UntimedPhase:
        self._before = self._timeline.where
        self._timeline.where = self._name
        return self

    def __exit__(self, kind: object, error: object, traceback: object) -> None:
        timeline = self._timeline
        if kind is not None:
            timeline.raised = True
        timeline.where = self._before


class PauseContext:
    """Time that is no part of training: told to `on_end` by itself, taken out of everything around it."""

    __slots__ = ("_before", "_name", "_on_end", "_paused_s", "_span", "_start_s", "_timeline")

    def __init__(self, timeline: Timeline, name: str, on_end: Callable[[str, float], None], span: SpanContext | Nothing = NOTHING) -> None:
        self._timeline = timeline
        self._name = name
        self._on_end = on_end
        self._span = span

    def __enter__(self) -> PauseContext:
        self._span.__enter__()
        timeline = self._timeline
        self._before = timeline.where
        timeline.where = f"pause:{self._name}"
        self._paused_s = timeline.paused_s
        self._start_s = timeline.monotonic()
        return self

    def __exit__(self, kind: object, error: object, traceback: object) -> None:
        timeline = self._timeline
        # What pauses inside this one took is already out, and told under their own names.
        own_s = timeline.monotonic() - self._start_s - (timeline.paused_s - self._paused_s)
        timeline.paused_s += own_s
        timeline.raised = timeline.raised or kind is not None
        timeline.where = self._before
        self._on_end(self._name, own_s)
        self._span.__exit__(kind, error, traceback)


class SpanContext:
    """A named part of the start-up, told to `on_end`; what parts inside it took is theirs and not its own."""

    __slots__ = ("_before", "_name", "_on_end", "_spanned_s", "_start_s", "_timeline")

    def __init__(self, timeline: Timeline, name: str, on_end: Callable[[str, float], None]) -> None:
        self._timeline = timeline
        self._name = name
        self._on_end = on_end

    def __enter__(self) -> SpanContext:
        timeline = self._timeline
        self._before = timeline.where
        timeline.where = f"startup:{self._name}"
        self._spanned_s = timeline.spanned_s
        self._start_s = timeline.monotonic()
        return self

    def __exit__(self, kind: object, error: object, traceback: object) -> None:
        timeline = self._timeline
        own_s = timeline.monotonic() - self._start_s - (timeline.spanned_s - self._spanned_s)
        timeline.spanned_s += own_s
        timeline.raised = timeline.raised or kind is not None
        timeline.where = self._before
        self._on_end(self._name, own_s)


class TimedLoader:
    """A loader whose every wait for a batch is data_wait of the coming step, and which is over at a halt; in all else the loader itself."""

    def __init__(self, loader: Any, timeline: Timeline, startup: Callable[[str], SpanContext | Nothing]) -> None:
        self._loader = loader
        self._timeline = timeline
        self._startup = startup

    def __iter__(self) -> Iterator[Any]:
        timeline, monotonic = self._timeline, self._timeline.monotonic
        if timeline.obeys_halt():
            return
        # Starting workers is waiting for data too, and before the first step it is a part of the start-up.
        with self._startup("data"), PhaseContext(self._timeline, "data_wait", DATA_WAIT):
            batches = iter(self._loader)
            batch = next(batches, NO_BATCH)
        while batch is not NO_BATCH:
            # Both comparisons are written out, as this is passed at every step: no step after the wait, and no wait after the last step.
            if timeline.ended_steps >= timeline.halt_at and timeline.obeys_halt():
                return
            yield batch
            if timeline.ended_steps >= timeline.halt_at and timeline.obeys_halt():
                return
            # A PhaseContext, written out: this is passed at every step.
            before, timeline.where, paused_s, start_s = timeline.where, "data_wait", timeline.paused_s, monotonic()
            try:
                batch = next(batches, NO_BATCH)
            except BaseException:
                timeline.raised = True
                raise
            timeline.add_phase(DATA_WAIT, monotonic() - start_s - (timeline.paused_s - paused_s))
            timeline.where = before

    def __len__(self) -> int:
        return len(self._loader)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)
