"""The GPU as the probe uses it: marks on the current stream and losses on their way to the host, all read without waiting.

In: the torch module the workload imported. Out: times in ms and plain floats, once the device has passed them.
Called only from the training's own thread: a query from another thread would spoil a CUDA graph that is being captured.
"""

from __future__ import annotations

import sys
from typing import Any

LOSS_SLOTS = 64
# One event for so many losses: an event costs more than the copy it watches. Enough of them to outlast every step that may wait.
STEPS_A_FENCE = 4
NUM_FENCES = 8


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
        self._slots: list[Any] = []
        self._next_slot = 0
        self._fences: list[Any] = []
        self._fence = Fence()

    def synchronize(self) -> None:
        self._torch.cuda.synchronize()

    def mark(self) -> Any | None:
        """A mark behind all work queued so far on the current stream; None where marks cannot be made."""
        if self.trouble:
            return None
        try:
            event = self._pool.pop() if self._pool else self._new_event(enable_timing=True)
            event.record()
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

    def read_later(self, value: Any) -> LossRead | None:
        """Send a scalar to the host behind the work queued so far; it is there when the next fence has passed."""
        if self.trouble:
            return None
        try:
            slot = self._slot()
            loss = value.detach()
            slot.copy_(loss if loss.dim() == 0 else loss.reshape(()), non_blocking=True)
        except RuntimeError as error:
            self._give_up(error)
            return None
        self._fence.is_wanted = True
        return LossRead(slot, self._fence)

    def close_fence(self) -> None:
        """Put one mark behind all losses sent since the last."""
        fence = self._fence
        if self.trouble or not fence.is_wanted:
            return
        try:
            if len(self._fences) < NUM_FENCES:
                self._fences.append(self._new_event())
            fence.event = self._fences.pop(0)
            fence.event.record()
        except RuntimeError as error:
            self._give_up(error)
            return
        self._fences.append(fence.event)
        self._fence = Fence()

    def has_come(self, read: LossRead) -> bool:
        event = read.fence.event
        return event is not None and self.passed(event)

    def _slot(self) -> Any:
        if not self._slots:
            self._slots = list(self._torch.empty(LOSS_SLOTS, dtype=self._torch.float32, pin_memory=True))
        self._next_slot = (self._next_slot + 1) % LOSS_SLOTS
        return self._slots[self._next_slot]

    def _give_up(self, error: RuntimeError) -> None:
        first_line = str(error).split("\n", 1)[0]
        self.trouble = f"no more device times: {first_line}"


class Fence:
    """A mark shared by several losses; it has no event until it is closed."""

    __slots__ = ("event", "is_wanted")

    def __init__(self) -> None:
        self.event: Any = None
        self.is_wanted = False


class LossRead:
    """A loss under way to `slot`."""

    __slots__ = ("fence", "slot")

    def __init__(self, slot: Any, fence: Fence) -> None:
        self.slot = slot
        self.fence = fence
