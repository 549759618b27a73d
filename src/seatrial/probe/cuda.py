"""The GPU as the probe uses it: marks on the current stream and losses on their way to the host, all read without waiting.

In: the torch module the workload imported. Out: times in ms and plain floats, once the device has passed them.
Called only from the training's own thread: a query from another thread would spoil a CUDA graph that is being captured.
"""

from __future__ import annotations

import sys
from typing import Any

# One mark for so many losses, and one question to the device: both cost more than looking later does.
STEPS_A_BATCH = 8
# Enough of them to outlast every step that may wait, also where each loss comes on another stream and is a batch by itself.
NUM_BATCHES = 32


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
        self._get_device = getattr(getattr(torch, "_C", None), "_cuda_getDevice", None) or torch.cuda.current_device
        self._get_raw_stream = getattr(getattr(torch, "_C", None), "_cuda_getCurrentRawStream", None)
        self._streams: dict[tuple[int, int], Any] = {}
        self._device = self._raw = -1
        self._current: Any = None
        # Pinned memory is asked for with the first loss, not before.
        self._rows: list[Row] = []
        self._num_batches = 0
        self._batch = Batch(None)

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
        try:
            batch = self._batch
            stream = self._stream()
            if instead_of is None and stream is batch.stream and batch.size < STEPS_A_BATCH:
                read = LossRead(batch, batch.size)
            else:
                read = self._make_room(stream, instead_of)
                batch = read.batch
            loss = value.detach() if value.requires_grad else value
            batch.row.places[read.index].copy_(loss if loss.dim() == 0 else loss.reshape(()), True)
        except RuntimeError as error:
            self._give_up(error)
            return None
        if read.index == batch.size:
            batch.size += 1
        return read

    def close_batch(self) -> None:
        """Put one mark behind all losses sent since the last."""
        if self.trouble or not self._batch.size:
            return
        try:
            self._open_next_batch()
        except RuntimeError as error:
            self._give_up(error)

    def has_come(self, read: LossRead) -> bool:
        batch = read.batch
        return batch.values is not None or (batch.is_closed and self.passed(batch.row.event))

    def _make_room(self, stream: Any, instead_of: LossRead | None) -> LossRead:
        """The place of the loss that is told again, or the next one in a batch on this stream."""
        batch = self._batch
        if instead_of is not None and instead_of.batch is batch and stream is batch.stream:
            return instead_of
        if batch.size == STEPS_A_BATCH or stream is not batch.stream:
            batch = self._open_next_batch()
            batch.stream = stream
        return LossRead(batch, batch.size)

    def _open_next_batch(self) -> Batch:
        batch = self._batch
        if batch.size:
            batch.row.event.record(batch.stream)
            batch.is_closed = True
        self._rows = self._rows or _make_rows(self._torch)
        self._batch = Batch(self._rows[self._num_batches % NUM_BATCHES])
        self._num_batches += 1
        return self._batch

    def _stream(self) -> Any:
        """The current stream, as torch's object for it: made once for each stream, since making it costs more than a mark does."""
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
        self.trouble = f"no more device times: {first_line}"


class Row:
    """Pinned places for the losses of one batch, and the mark behind them."""

    __slots__ = ("event", "places", "values")

    def __init__(self, values: Any, event: Any) -> None:
        self.values = values
        self.places = list(values.unbind())
        self.event = event


def _make_rows(torch: Any) -> list[Row]:
    # Made under inference_mode, they could not be written to outside.
    with torch.inference_mode(False):
        rows = torch.zeros((NUM_BATCHES, STEPS_A_BATCH), dtype=torch.float32, pin_memory=True)
        return [Row(row, torch.cuda.Event()) for row in rows.unbind()]


class Batch:
    """Losses told on one stream that share a mark; no values until one of them is read."""

    __slots__ = ("is_closed", "row", "size", "stream", "values")

    def __init__(self, row: Any) -> None:
        self.row = row
        self.size = 0
        self.stream: Any = None
        self.is_closed = False
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
            self.batch.values = self.batch.row.values.tolist()
        return self.batch.values[self.index]
