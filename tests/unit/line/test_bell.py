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
    bell.wait(LONG_S)
    bell.close()


def test_a_ring_of_another_thread_ends_the_wait() -> None:
    bell = Bell()
    ringing = threading.Thread(target=bell.ring)
    ringing.start()
    bell.wait(LONG_S)
    ringing.join()
    bell.close()


def test_many_rings_are_cleared_at_once_and_more_than_it_holds_harm_nothing() -> None:
    bell = Bell()
    for _ in range(100_000):
        bell.ring()
    bell.clear()
    assert not _is_ringing(bell)
    bell.ring()
    assert _is_ringing(bell)
    bell.close()


def test_a_file_beside_it_ends_the_wait_too() -> None:
    bell = Bell()
    read_end, write_end = os.pipe()
    os.write(write_end, b"!")
    bell.wait(LONG_S, read_end)
    assert not _is_ringing(bell)
    os.close(read_end)
    os.close(write_end)
    bell.close()


def test_a_closed_one_is_silent_and_lets_the_time_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    bell, slept = Bell(), []
    monkeypatch.setattr("seatrial.line.bell.time.sleep", slept.append)
    bell.close()
    bell.ring()
    bell.clear()
    bell.wait(3.0)
    assert slept == [3.0]


def _is_ringing(bell: Bell) -> bool:
    """By what a wait without patience would find."""
    try:
        return bool(bell._ear.recv(1))
    except BlockingIOError:
        return False
