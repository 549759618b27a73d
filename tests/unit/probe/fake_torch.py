"""As much of torch.cuda as the probe uses: a device whose queued work takes a set time and is done when the test lets it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any


class FakeDevice:
    """`now_ms` is how far the queued work reaches; `done_ms` how far the device has come."""

    def __init__(self) -> None:
        self.now_ms = 0.0
        self.done_ms = 0.0
        self.error: str | None = None
        self.stream = "stream"
        self.syncs = 0
        self.events_made = 0
        self.torch: Any = SimpleNamespace(
            cuda=SimpleNamespace(
                Event=self._event,
                synchronize=self._synchronize,
                current_device=lambda: 0,
                current_stream=lambda: self.stream,
            ),
            inference_mode=nullcontext,
            zeros=_zeros,
            float32="float32",
        )

    def queue(self, ms: float) -> None:
        self.now_ms += ms

    def catch_up(self) -> None:
        self.done_ms = self.now_ms

    def raise_if_broken(self) -> None:
        if self.error:
            raise RuntimeError(self.error)

    def _event(self, enable_timing: bool = False) -> FakeEvent:
        self.events_made += 1
        return FakeEvent(self, enable_timing)

    def _synchronize(self) -> None:
        self.syncs += 1
        self.catch_up()


class FakeEvent:
    def __init__(self, device: FakeDevice, enable_timing: bool) -> None:
        self._device = device
        self._enable_timing = enable_timing
        self.at_ms = -1.0

    def record(self, stream: str) -> None:
        assert isinstance(stream, str)
        self._device.raise_if_broken()
        self.at_ms = self._device.now_ms

    def query(self) -> bool:
        self._device.raise_if_broken()
        return self._device.done_ms >= self.at_ms

    def elapsed_time(self, end: FakeEvent) -> float:
        assert self._enable_timing and end._enable_timing
        assert end.query(), "read before the device was there"
        return end.at_ms - self.at_ms


class FakeLoss:
    """A CUDA scalar."""

    is_cuda = True
    requires_grad = True
    shape = ()

    def __init__(self, value: float) -> None:
        self.number = value

    def numel(self) -> int:
        return 1

    def detach(self) -> FakeLoss:
        return self

    def dim(self) -> int:
        return 0

    def __float__(self) -> float:
        raise AssertionError("reading a CUDA tensor waits for the device")


def _zeros(size: tuple[int, int], dtype: str, pin_memory: bool) -> _Rows:
    assert dtype == "float32" and pin_memory
    return _Rows([_Row([0.0] * size[1]) for _ in range(size[0])])


class _Rows:
    def __init__(self, rows: list[_Row]) -> None:
        self._rows = rows

    def unbind(self) -> Iterator[_Row]:
        return iter(self._rows)


class _Row:
    """A row of numbers in pinned memory."""

    def __init__(self, numbers: list[float]) -> None:
        self.numbers = numbers

    def unbind(self) -> Iterator[_Place]:
        return iter([_Place(self, index) for index in range(len(self.numbers))])

    def tolist(self) -> list[float]:
        return list(self.numbers)


class _Place:
    def __init__(self, row: _Row, index: int) -> None:
        self._row, self._index = row, index

    def copy_(self, source: FakeLoss, non_blocking: bool) -> None:
        assert non_blocking
        self._row.numbers[self._index] = source.number
