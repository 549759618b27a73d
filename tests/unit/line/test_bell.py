"""One thread tells another; what is rung between clearing and taking rings anew."""

from __future__ import annotations

import os
import threading

import pytest

from seatrial.line.bell import Bell

LONG_S = 60.0


def test_a_ring_before_the_wait_is_not_lost() -> None:
    bell = Bell()
    bell.ring()
    assert bell.wait(LONG_S)
    bell.close()


def test_a_wait_without_a_ring_ends_with_its_time() -> None:
    bell = Bell()
    assert not bell.wait(0.0) and not bell.wait(0.001)
    bell.close()


def test_a_wait_sleeps_and_does_not_look_again_and_again(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[float] = []

    class Poll:
        def register(self, file: object, events: int) -> None: ...

        def poll(self, timeout_ms: float) -> list[object]:
            asked.append(timeout_ms)
            return []

    bell = Bell()
    monkeypatch.setattr("seatrial.line.bell.select.poll", Poll)
    assert not bell.wait(3.0) and asked == [3000.0]
    bell.close()


def test_a_ring_of_another_thread_ends_the_wait() -> None:
    bell = Bell()
    ringing = threading.Thread(target=bell.ring)
    ringing.start()
    assert bell.wait(LONG_S)
    ringing.join()
    bell.close()


def test_many_rings_are_cleared_at_once_and_more_than_it_holds_harm_nothing() -> None:
    bell = Bell()
    for _ in range(100_000):
        bell.ring()
    bell.clear()
    assert not bell.wait(0.0)
    bell.ring()
    assert bell.wait(0.0)
    bell.close()


def test_a_file_beside_it_ends_the_wait_too() -> None:
    bell = Bell()
    read_end, write_end = os.pipe()
    assert not bell.wait(0.0, read_end)
    os.write(write_end, b"!")
    assert bell.wait(LONG_S, read_end)
    assert not bell.wait(0.0)
    os.close(read_end)
    os.close(write_end)
    bell.close()


def test_a_closed_one_is_silent_and_lets_the_time_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    bell, slept = Bell(), []
    monkeypatch.setattr("seatrial.line.bell.time.sleep", slept.append)
    bell.close()
    bell.ring()
    bell.clear()
    assert not bell.wait(3.0)
    assert slept == [3.0]
