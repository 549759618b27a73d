"""The GPU as the probe uses it: marks on the current stream and losses on their way to the host, all read without waiting.

In: the torch module the workload imported. Out: times in ms and plain floats, once the device has passed them.
Called only from the training's own thread: a query from another thread would spoil a CUDA graph that is being captured.
"""

from __future__ import annotations

import sys
from typing import Any

# One mark for so many losses, and one question to the device: both cost more than looking later does.
STEPS_A_BATCH = 8
# Enough of them to outlast every step that may wait.
NUM_BATCHES = 8


def find_cuda() -> Cuda | None:
    """The GPU when the workload has brought torch and CUDA up, else None; imports nothing and starts nothing."""
    torch = sys.modules.get("torch")
    cuda = getattr(torch, "cuda", None)
    is_initialized = getattr(cuda, "is_initialized", None)
    return Cuda(torch) if is_initialized is not None and is_initialized() else None


class Cuda:
    """Pooled timing events and pinned memory. After an error of the device it stays quiet and `trouble` says why."""

    def __init__(self, torch: Any) -> None:
        self.trouble = ""
        self._torch = torch
        self._new_event = torch.cuda.Event
        self._pool: list[Any] = []
        self._raw_stream = getattr(getattr(torch, "_C", None), "_cuda_getCurrentRawStream", None)
        self._streams: dict[tuple[int, int], Any] = {}
        self._ring: list[tuple[Any, list[Any]]] = []
        self._open_slots: list[Any] = []
        self._events: list[Any] = []
        self._num_batches = 0
        self._batch = Batch()

    def synchronize(self) -> None:
        self._torch.cuda.synchronize()

    def mark(self) -> Any | None:
        """A mark behind all work queued so far on the current stream; None where marks cannot be made."""
        if self.trouble:
            return None
        try:
            event = self._pool.pop() if self._pool else self._new_event(enable_timing=True)
            event.record(self._stream())
        except RuntimeError as error:
            self._give_up(error)
            return None
        return event

    def passed(self, event: Any) -> bool:
        """Whether the device is past this mark. An error of the device belongs to the training, not to the probe: it counts as never."""
        if self.trouble:
            return False
        try:
            return bool(event.query())
        except RuntimeError as error:
            self._give_up(error)
            return False

    def elapsed_ms(self, start: Any, end: Any) -> float:
        """Time between two passed marks, which go back to the pool."""
        elapsed_ms = float(start.elapsed_time(end))
        self._pool += (start, end)
        return elapsed_ms

    def read_later(self, value: Any, instead_of: LossRead | None = None) -> LossRead | None:
        """Send a scalar to the host behind the work queued so far; it is there when the mark behind its batch has passed.

        A loss that is told again for the same step takes the place of the one before: a step never has more than one.
        """
        if self.trouble:
            return None
        again = instead_of is not None and instead_of.batch is self._batch
        if not again and self._batch.size == STEPS_A_BATCH:
            self.close_batch()
        batch = self._batch
        read = instead_of if instead_of is not None and again else LossRead(batch, batch.size)
        try:
            loss = value.detach() if value.requires_grad else value
            slots = self._open_slots or self._slots()
            slots[read.index].copy_(loss if loss.dim() == 0 else loss.reshape(()), non_blocking=True)
        except RuntimeError as error:
            self._give_up(error)
            return None
        batch.size = max(batch.size, read.index + 1)
        return read

    def close_batch(self) -> None:
        """Put one mark behind all losses sent since the last."""
        batch = self._batch
        if self.trouble or not batch.size:
            return
        try:
            event = self._events.pop(0) if len(self._events) == NUM_BATCHES else self._new_event()
            event.record(self._stream())
        except RuntimeError as error:
            self._give_up(error)
            return
        self._events.append(event)
        batch.event, batch.row = event, self._ring[self._num_batches % NUM_BATCHES][0]
        self._num_batches += 1
        self._batch = Batch()
        self._open_slots = self._slots()

    def has_come(self, read: LossRead) -> bool:
        batch = read.batch
        return batch.values is not None or (batch.event is not None and self.passed(batch.event))

    def _slots(self) -> list[Any]:
        """Pinned places for the losses of the batch under way."""
        if not self._ring:
            rows = [self._torch.zeros(STEPS_A_BATCH, dtype=self._torch.float32, pin_memory=True) for _ in range(NUM_BATCHES)]
            self._ring = [(row, list(row.unbind())) for row in rows]
        return self._ring[self._num_batches % NUM_BATCHES][1]

    def _stream(self) -> Any:
        """The current stream, as torch's object for it: made once for each stream, since making it costs more than a mark does."""
        cuda = self._torch.cuda
        if self._raw_stream is None:
            return cuda.current_stream()
        device = cuda.current_device()
        key = (device, self._raw_stream(device))
        stream = self._streams.get(key)
        if stream is None:
            stream = self._streams[key] = cuda.current_stream()
        return stream

    def _give_up(self, error: RuntimeError) -> None:
        first_line = str(error).split("\n", 1)[0]
        self.trouble = f"no more device times: {first_line}"


class Batch:
    """Losses that share a mark; no event until the last is sent, no values until one of them is read."""

    __slots__ = ("event", "row", "size", "values")

    def __init__(self) -> None:
        self.size = 0
        self.event: Any = None
        self.row: Any = None
        self.values: list[float] | None = None


class LossRead:
    """A loss on its way."""

    __slots__ = ("batch", "index")

    def __init__(self, batch: Batch, index: int) -> None:
        self.batch = batch
        self.index = index

    def value(self) -> float:
        """The loss; ask only once it has come."""
        if self.batch.values is None:
            self.batch.values = self.batch.row.tolist()
        return self.batch.values[self.index]
