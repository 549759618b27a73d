"""The GPU as the probe uses it: CUDA events on the current stream, and losses copied to the host, all read without waiting.

In: the torch module the workload imported. Out: times in ms and plain floats, once the device has passed them. Called only from the
training's own thread: a query from another thread would invalidate a CUDA graph that is being captured.
"""

from __future__ import annotations

import sys
from typing import Any

# Losses that share one CUDA event and one query: both cost more than reading later does.
LOSSES_PER_BATCH = 8
# Enough for every step that may wait, also where each loss is on another stream and so a batch by itself.
NUM_BATCHES = 32


def torch_with_cuda() -> Any | None:
    """torch, where the workload has imported it and initialised CUDA; nothing is imported or initialised here."""
    torch = sys.modules.get("torch")
    is_initialized = getattr(getattr(torch, "cuda", None), "is_initialized", None)
    return torch if is_initialized is not None and is_initialized() else None


def find_cuda() -> Cuda | None:
    torch = torch_with_cuda()
    return None if torch is None else Cuda(torch)


class Cuda:
    """Pooled timing events and pinned memory. After an error of the device nothing more is timed; `error` is the reason."""

    def __init__(self, torch: Any) -> None:
        self.error = ""
        self._torch = torch
        self._new_event = torch.cuda.Event
        self._pool: list[Any] = []
        self._get_device = getattr(getattr(torch, "_C", None), "_cuda_getDevice", None) or torch.cuda.current_device
        self._get_raw_stream = getattr(getattr(torch, "_C", None), "_cuda_getCurrentRawStream", None)
        self._streams: dict[tuple[int, int], Any] = {}
        self._device = self._raw = -1
        self._current: Any = None
        # Pinned memory is allocated with the first loss.
        self._rows: list[Row] = []
        self._num_batches = 0
        self._batch = Batch(None)

    def synchronize(self) -> None:
        self._torch.cuda.synchronize()

    def mark(self) -> Any | None:
        """An event after all work queued so far on the current stream; None after an error."""
        if self.error:
            return None
        try:
            event = self._pool.pop() if self._pool else self._new_event(enable_timing=True)
            event.record(self._stream())
        except RuntimeError as error:
            self._give_up(error)
            return None
        return event

    def has_passed(self, event: Any) -> bool:
        """Whether the device has passed this event; never after an error, which is for the training to handle."""
        if self.error:
            return False
        try:
            return bool(event.query())
        except RuntimeError as error:
            self._give_up(error)
            return False

    def elapsed_ms(self, start: Any, end: Any) -> float:
        """Time between two passed events, which go back to the pool."""
        elapsed_ms = float(start.elapsed_time(end))
        self._pool += (start, end)
        return elapsed_ms

    def read_later(self, value: Any, instead_of: LossRead | None = None) -> LossRead | None:
        """Copy a scalar to the host after the work queued so far; it has arrived when the event after its batch has passed.

        A second loss for the same step replaces the first.
        """
        if self.error:
            return None
        try:
            batch = self._batch
            stream = self._stream()
            if instead_of is None and stream is batch.stream and batch.size < LOSSES_PER_BATCH:
                read = LossRead(batch, batch.size)
            else:
                read = self._find_slot(stream, instead_of)
                batch = read.batch
            loss = value.detach() if value.requires_grad else value
            batch.row.slots[read.index].copy_(loss if loss.dim() == 0 else loss.reshape(()), True)
        except RuntimeError as error:
            self._give_up(error)
            return None
        if read.index == batch.size:
            batch.size += 1
        return read

    def close_batch(self) -> None:
        """Record one event after all losses copied since the last."""
        if self.error or not self._batch.size:
            return
        try:
            self._open_next_batch()
        except RuntimeError as error:
            self._give_up(error)

    def has_arrived(self, read: LossRead) -> bool:
        batch = read.batch
        return batch.values is not None or (batch.is_closed and self.has_passed(batch.row.event))

    def _find_slot(self, stream: Any, instead_of: LossRead | None) -> LossRead:
        """The slot of the loss that is replaced, or the next one in a batch on this stream."""
        batch = self._batch
        if instead_of is not None and instead_of.batch is batch and stream is batch.stream:
            return instead_of
        if batch.size == LOSSES_PER_BATCH or stream is not batch.stream:
            batch = self._open_next_batch()
            batch.stream = stream
        return LossRead(batch, batch.size)

    def _open_next_batch(self) -> Batch:
        batch = self._batch
        if batch.size:
            batch.row.event.record(batch.stream)
            batch.is_closed = True
        self._rows = self._rows or _allocate_rows(self._torch)
        self._batch = Batch(self._rows[self._num_batches % NUM_BATCHES])
        self._num_batches += 1
        return self._batch

    def _stream(self) -> Any:
        """The current stream as torch's object, cached for each stream: creating it costs more than recording an event."""
        if self._get_raw_stream is None:
            return self._torch.cuda.current_stream()
        device = self._get_device()
        raw = self._get_raw_stream(device)
        if raw != self._raw or device != self._device:
            self._device, self._raw = device, raw
            self._current = self._streams.get((device, raw)) or self._torch.cuda.current_stream()
            self._streams[device, raw] = self._current
        return self._current

    def _give_up(self, error: RuntimeError) -> None:
        first_line = str(error).split("\n", 1)[0]
        self.error = f"no more device times: {first_line}"


class Row:
    """Pinned memory for the losses of one batch, and the event after them."""

    __slots__ = ("event", "slots", "values")

    def __init__(self, values: Any, event: Any) -> None:
        self.values = values
        self.slots = list(values.unbind())
        self.event = event


def _allocate_rows(torch: Any) -> list[Row]:
    # Created under inference_mode, they could not be written to outside.
    with torch.inference_mode(False):
        rows = torch.zeros((NUM_BATCHES, LOSSES_PER_BATCH), dtype=torch.float32, pin_memory=True)
        return [Row(row, torch.cuda.Event()) for row in rows.unbind()]


class Batch:
    """Losses on one stream that share an event; no values until one of them is read."""

    __slots__ = ("is_closed", "row", "size", "stream", "values")

    def __init__(self, row: Any) -> None:
        self.row = row
        self.size = 0
        self.stream: Any = None
        self.is_closed = False
        self.values: list[float] | None = None


class LossRead:
    """A loss on its way to the host."""

    __slots__ = ("batch", "index")

    def __init__(self, batch: Batch, index: int) -> None:
        self.batch = batch
        self.index = index

    def value(self) -> float:
        """The loss; only once it has arrived."""
        if self.batch.values is None:
            self.batch.values = self.batch.row.values.tolist()
        return self.batch.values[self.index]
