"""The context managers and the loader that a probe hands out, and contexts that hooks of trainers open and close.

In: a Timeline. Out: calls on it; exceptions propagate unchanged.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from seatrial.probe.timeline import MARKS, SYNC, WALL, Timeline
from seatrial.records.events import PHASES

PHASE_INDEX = {name.removesuffix("_ms"): index for index, name in enumerate(PHASES)}
DATA_WAIT = PHASE_INDEX["data_wait"]
NO_BATCH: Any = object()


class NullContext:
    """Step, phase, pause or part of the start-up of a silent probe."""

    samples: Any = None
    tokens: Any = None

    def __enter__(self) -> NullContext:
        return self

    def __exit__(self, kind: object, error: object, traceback: object) -> None:
        return None


NULL_CONTEXT = NullContext()


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
    """One phase, added to the step it is in, or to the next one."""

    __slots__ = ("_before", "_how", "_index", "_mark", "_name", "_paused_s", "_start_s", "_timeline")

    def __init__(self, timeline: Timeline, name: str, index: int) -> None:
        self._timeline = timeline
        self._name = name
        self._index = index

    def __enter__(self) -> PhaseContext:
        timeline = self._timeline
        self._before = timeline.where
        timeline.where = self._name
        # A wait for data is the host's own time, also where other phases are the device's.
        how = self._how = WALL if self._index == DATA_WAIT else timeline.how
        self._paused_s = timeline.paused_s
        self._mark = None
        if timeline.cuda is not None and how == SYNC:
            timeline.cuda.synchronize()
        elif timeline.cuda is not None and how == MARKS:
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
        cuda = timeline.cuda
        if cuda is None or self._how in (WALL, SYNC):
            if cuda is not None and self._how == SYNC:
                cuda.synchronize()
            timeline.add_phase(self._index, timeline.monotonic() - self._start_s - (timeline.paused_s - self._paused_s))
        elif self._mark is not None and timeline.paused_s == self._paused_s:
            # A pause inside the phase cannot be subtracted from device time: such a phase stays null.
            end = cuda.mark()
            if end is not None:
                timeline.marks.append((self._index, self._mark, end))


class UntimedPhase:
    """A phase of a step whose phases are not timed: only records where the loop is. One object per name, shared by all steps."""

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


class SpanContext:
    """A named part of the start-up, reported to `on_end` without the parts inside it, which are reported under their own names."""

    prefix = "startup"
    total = "spanned_s"
    """The attribute of the timeline that has all time in such contexts."""

    def __init__(self, timeline: Timeline, name: str, on_end: Callable[[str, float], None]) -> None:
        self._timeline = timeline
        self._name = name
        self._on_end = on_end

    def __enter__(self) -> SpanContext:
        timeline = self._timeline
        self._before = timeline.where
        timeline.where = f"{self.prefix}:{self._name}"
        self._total_s = getattr(timeline, self.total)
        self._start_s = timeline.monotonic()
        return self

    def __exit__(self, kind: object, error: object, traceback: object) -> None:
        timeline = self._timeline
        total_s = getattr(timeline, self.total)
        own_s = timeline.monotonic() - self._start_s - (total_s - self._total_s)
        setattr(timeline, self.total, total_s + own_s)
        timeline.raised = timeline.raised or kind is not None
        timeline.where = self._before
        self._on_end(self._name, own_s)


class PauseContext(SpanContext):
    """Time that is not training: reported to `on_end`, and subtracted from everything around it; `span` is its part of the start-up."""

    prefix = "pause"
    total = "paused_s"

    def __init__(
        self, timeline: Timeline, name: str, on_end: Callable[[str, float], None], span: SpanContext | NullContext = NULL_CONTEXT
    ) -> None:
        super().__init__(timeline, name, on_end)
        self._span = span

    def __enter__(self) -> PauseContext:
        self._span.__enter__()
        super().__enter__()
        return self

    def __exit__(self, kind: object, error: object, traceback: object) -> None:
        super().__exit__(kind, error, traceback)
        self._span.__exit__(kind, error, traceback)


class TimedLoader:
    """A loader whose every wait for a batch is data_wait of the next step, and which ends at a halt; otherwise the loader itself."""

    def __init__(self, loader: Any, timeline: Timeline, startup: Callable[[str], SpanContext | NullContext]) -> None:
        self._loader = loader
        self._timeline = timeline
        self._startup = startup

    def __iter__(self) -> Iterator[Any]:
        timeline, monotonic = self._timeline, self._timeline.monotonic
        if timeline.must_halt():
            return
        # Starting workers is waiting for data too, and before the first step it is a part of the start-up.
        with self._startup("data"), PhaseContext(self._timeline, "data_wait", DATA_WAIT):
            batches = iter(self._loader)
            batch = next(batches, NO_BATCH)
        while batch is not NO_BATCH:
            # Checked twice, before the step and before the next wait, and inline: this runs at every step.
            if timeline.ended_steps >= timeline.halt_at and timeline.must_halt():
                return
            yield batch
            if timeline.ended_steps >= timeline.halt_at and timeline.must_halt():
                return
            # Like a PhaseContext, inline for the same reason.
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


Open = StepContext | PhaseContext | UntimedPhase | SpanContext | NullContext


class OpenContexts:
    """Contexts of a probe that one hook of a trainer opens and another closes, each under a key."""

    def __init__(self) -> None:
        self._open: dict[str, Open] = {}

    def __contains__(self, key: str) -> bool:
        return key in self._open

    def enter(self, key: str, context: Open) -> None:
        self._open[key] = context
        context.__enter__()

    def leave(self, *keys: str) -> None:
        """Close the open ones, in this order."""
        for key in keys:
            context = self._open.pop(key, None)
            if context is not None:
                context.__exit__(None, None, None)

    def forget(self, *keys: str) -> None:
        """Drop contexts that were opened too early, without recording them; without keys, all of them."""
        for key in keys or tuple(self._open):
            self._open.pop(key, None)


# A batch may be a pair of dictionaries; deeper nesting belongs to the model.
MAX_BATCH_DEPTH = 2


def count_samples(batch: Any, loader: Any) -> int | None:
    """Samples in a batch: the loader's batch size, so that a shorter last batch counts as a whole one; else the length that the batch's
    tensors agree on; None without either."""
    batch_size = getattr(loader, "batch_size", None)
    if type(batch_size) is int and batch_size > 0:
        return batch_size
    lengths = set(_lengths(batch, MAX_BATCH_DEPTH))
    return lengths.pop() if len(lengths) == 1 else None


def _lengths(value: Any, depth: int) -> Iterable[int]:
    """First dimensions of the tensors and arrays in it."""
    shape = getattr(value, "shape", None)
    if shape is not None:
        return [int(shape[0])] if len(shape) else []
    if not depth:
        return []
    parts = value.values() if isinstance(value, Mapping) else value if isinstance(value, (list, tuple)) else ()
    return [length for part in parts for length in _lengths(part, depth - 1)]
