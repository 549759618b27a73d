"""Position of the loop and times of its parts. In: calls of the contexts. Out: step records in order.

A record waits until the device has passed its CUDA events and its loss has arrived; at the first check after MAX_WAIT_STEPS steps it is
released with nulls. On a GPU records are checked every LOSSES_PER_BATCH steps, or every second where steps are slower. All times are of
one monotonic clock; time spent in pauses is subtracted from whatever was open around it.
"""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from seatrial.probe.cuda import LOSSES_PER_BATCH, Cuda, LossRead, find_cuda
from seatrial.records.events import PHASES

MAX_WAIT_STEPS = 16
MAX_CHECK_INTERVAL_S = 1.0
NUM_PHASES = len(PHASES)
# How the phases of the coming step are timed.
WALL, SYNC, MARKS, OFF = "wall", "sync", "marks", "off"


@dataclass(slots=True, eq=False)
class StepRecord:
    """One ended step. `phases_ms` follows records.events.PHASES; `marks` and `loss_read` are what the device has yet to deliver.

    `t` and `m` are the clocks at its end, `paused_s` is all time in named pauses up to then.
    """

    step: int
    t: float
    m: float
    iter_ms: float
    samples: Any
    tokens: Any
    phases_ms: list[float | None]
    paused_s: float = 0.0
    loss: float | None = None
    marks: list[Any] | None = None
    loss_read: Any = None


class Timeline:
    """The state of one loop. Every method is called from the training's thread; the heartbeat thread reads `where`, `newest` and
    `status_note`, and sets `halt_at`."""

    def __init__(
        self,
        *,
        sync: bool,
        phase_every: int,
        window: int = 1,
        emit: Callable[[StepRecord], None],
        monotonic: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
        find_device: Callable[[], Cuda | None] = find_cuda,
        on_halt: Callable[[], None] = lambda: None,
    ) -> None:
        self.where = "start"
        self.ended_steps = 0
        self.paused_s = 0.0
        self.spanned_s = 0.0
        """Time in named parts of the start-up so far, each moment counted once."""
        self.newest: deque[StepRecord] = deque(maxlen=window)
        """The steps that ended last, whether or not the device has delivered their phases."""
        self.raised = False
        """The newest step, phase or pause was left by an exception."""
        self.not_finite_step: int | None = None
        self.halt_at: float = math.inf
        """The first step that must not begin."""
        self.halted = False
        """The loop has received the halt."""
        self.monotonic = monotonic
        self.wall = wall
        self.cuda: Cuda | None = None
        self._sync = sync
        self._phase_every = phase_every
        self._emit = emit
        self._find_device = find_device
        self._on_halt = on_halt
        self._waiting: deque[StepRecord] = deque()
        self._in_step = False
        self._border_s: float | None = None
        self._released_s = 0.0
        self._border_paused_s = 0.0
        self._loss: float | LossRead | None = None
        self._reset_step()

    @property
    def last_step(self) -> int | None:
        """The last ended step, counted from 0; None before the first has ended."""
        return self.ended_steps - 1 if self.ended_steps else None

    def must_halt(self) -> bool:
        """Whether no further step may begin; the caller must then begin none."""
        if not self.halted and self.ended_steps >= self.halt_at:
            self.halted = True
            self._on_halt()
        return self.halted

    def begin_step(self) -> None:
        """Begin a step: the previous one is complete except for pending device times."""
        if self.cuda is None:
            self._choose_timing()
            self._release()
        elif self.ended_steps % LOSSES_PER_BATCH == 0 or (self._border_s or 0.0) - self._released_s > MAX_CHECK_INTERVAL_S:
            # In between nothing new can have arrived, and each query of the device costs. Slow steps can afford it.
            self._released_s = self._border_s or 0.0
            self.cuda.close_batch()
            self._release()
        self._in_step = True
        self.where = "step"
        if self._border_s is None:
            self._border_s = self._released_s = self.monotonic()
            self._border_paused_s = self.paused_s

    def end_step(self, samples: Any, tokens: Any) -> None:
        now_s = self.monotonic()
        paused_s = self.paused_s
        assert self._border_s is not None, "end_step without begin_step"
        iter_s = now_s - self._border_s - (paused_s - self._border_paused_s)
        record = StepRecord(self.ended_steps, self.wall(), now_s, iter_s * 1000.0, samples, tokens, self.phases_ms, paused_s)
        if self.marks:
            record.marks = self.marks
        if self._loss is not None:
            self._set_loss(record, self._loss)
        self._waiting.append(record)
        self.newest.append(record)
        self.ended_steps += 1
        self._border_s = now_s
        self._border_paused_s = paused_s
        self._in_step = self.raised = False
        self.where = "loop"
        self._reset_step()

    def abandon_step(self) -> None:
        """Drop a step that raised: its phases are lost, its time goes to the next step that ends."""
        self._in_step = False
        self.raised = True
        self.where = "loop"
        self._reset_step()

    def add_phase(self, index: int, spent_s: float) -> None:
        self.phases_ms[index] = (self.phases_ms[index] or 0.0) + spent_s * 1000.0

    def loss(self, value: Any) -> None:
        """The loss of the open step, else of the one that ended last."""
        if self._in_step or not self._waiting:
            self._loss = self._read_loss(value, self._loss)
        else:
            record = self._waiting[-1]
            self._set_loss(record, self._read_loss(value, record.loss_read))

    def known_steps(self) -> tuple[StepRecord, ...]:
        """The newest steps, with the phases of those that the device has passed by now."""
        for record in self._waiting:
            if record.marks and self._has_passed(record.marks):
                self._read_marks(record)
        return tuple(self.newest)

    def status_note(self) -> str:
        """Problems for readers of heartbeats; else empty."""
        notes = [f"loss is not finite since step {self.not_finite_step}"] if self.not_finite_step is not None else []
        if self.cuda is not None and self.cuda.error:
            notes.append(self.cuda.error)
        if self.halted:
            notes.append(f"halted before step {self.ended_steps}")
        elif self.halt_at != math.inf and self.where != "done":
            notes.append(f"halting at step {self.halt_at}")
        return "; ".join(notes)

    def drain(self, timeout_s: float, sleep: Callable[[float], None] = time.sleep) -> None:
        """Release every record; those that wait for the device get `timeout_s` together."""
        deadline_s = self.monotonic() + timeout_s
        if self.cuda is not None:
            self.cuda.close_batch()
        self._release()
        while self._waiting and self.monotonic() < deadline_s and not (self.cuda and self.cuda.error):
            sleep(0.001)
            self._release()
        while self._waiting:
            self._emit_record(self._waiting.popleft())

    def _reset_step(self) -> None:
        self.phases_ms: list[float | None] = [None] * NUM_PHASES
        self.marks: list[Any] = []
        self._loss = None
        self._choose_timing()

    def _choose_timing(self) -> None:
        if self.cuda is None:
            self.cuda = self._find_device()
        if self.cuda is None:
            self.how = WALL
        elif self._sync:
            self.how = SYNC
        else:
            self.how = MARKS if self.ended_steps % self._phase_every == 0 else OFF

    def _release(self) -> None:
        waiting = self._waiting
        while waiting:
            record = waiting[0]
            if record.marks is None and record.loss_read is None:
                pass
            elif self._is_ready(record):
                self._read_marks(record)
                if record.loss_read is not None:
                    record.loss = record.loss_read.value()
            elif self.ended_steps - record.step <= MAX_WAIT_STEPS:
                return
            self._emit_record(waiting.popleft())

    def _is_ready(self, record: StepRecord) -> bool:
        if record.loss_read is not None and self.cuda is not None and not self.cuda.has_arrived(record.loss_read):
            return False
        return record.marks is None or self._has_passed(record.marks)

    def _has_passed(self, marks: list[Any]) -> bool:
        cuda = self.cuda
        return cuda is not None and all(cuda.has_passed(end) for _, _, end in marks)

    def _read_marks(self, record: StepRecord) -> None:
        """Phase times from the marks; once only, since the events go back to their pool."""
        cuda, marks, record.marks = self.cuda, record.marks, None
        if cuda is not None:
            for index, start, end in marks or ():
                record.phases_ms[index] = (record.phases_ms[index] or 0.0) + cuda.elapsed_ms(start, end)

    def _emit_record(self, record: StepRecord) -> None:
        if self.not_finite_step is None and record.loss is not None and not math.isfinite(record.loss):
            self.not_finite_step = record.step
        self._emit(record)

    def _read_loss(self, value: Any, before: float | LossRead | None) -> float | LossRead | None:
        is_cuda = getattr(value, "is_cuda", None)
        if is_cuda is None:
            return float(value)
        if value.numel() != 1:
            raise ValueError(f"probe.loss takes one number, not a tensor of shape {tuple(value.shape)}: pass its mean()")
        if not is_cuda:
            return float(value.detach())
        if self.cuda is None:
            self._choose_timing()
        return self.cuda.read_later(value, before if isinstance(before, LossRead) else None) if self.cuda is not None else None

    @staticmethod
    def _set_loss(record: StepRecord, loss: float | LossRead | None) -> None:
        if isinstance(loss, LossRead):
            record.loss_read = loss
        else:
            record.loss = loss
