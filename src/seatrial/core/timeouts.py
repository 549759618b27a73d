"""Timeouts: calls that may never return, polling, and a clock that stops while this process is suspended."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable
from typing import TypeVar

THREAD = "seatrial-call"
T = TypeVar("T")


class CallTimeout(Exception):
    """The call did not return in time."""

    def __init__(self, timeout_s: float, thread: threading.Thread) -> None:
        super().__init__(f"no answer within {timeout_s:g} s")
        self._thread = thread

    @property
    def has_returned(self) -> bool:
        """Whether the call has returned."""
        return not self._thread.is_alive()


def call_with_timeout(timeout_s: float, function: Callable[[], T]) -> T:
    """What `function` returns or raises, called in a thread: a driver that hangs then blocks that thread alone."""
    results: list[T] = []
    errors: list[BaseException] = []

    def call() -> None:
        try:
            results.append(function())
        except BaseException as error:
            errors.append(error)

    thread = start_detached(call)
    thread.join(timeout_s)
    if results:
        return results[0]
    raise errors[0] if errors else CallTimeout(timeout_s, thread)


def start_detached(act: Callable[[], None]) -> threading.Thread:
    """Run `act` in a daemon thread, which `has_hung_call` reports while it runs."""

    def run() -> None:
        # Signals are for the main thread: one delivered here would have no effect.
        signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        act()

    thread = threading.Thread(target=run, name=THREAD, daemon=True)
    thread.start()
    return thread


def poll_until(
    read: Callable[[], T],
    is_enough: Callable[[T], bool],
    timeout_s: float,
    every_s: float,
    monotonic: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> T:
    """What `read` returns once that is enough; when the time is over, what it returned last. It is called at least once."""
    deadline_m = monotonic() + timeout_s
    while not is_enough(found := read()) and monotonic() < deadline_m:
        sleep(every_s)
    return found


def has_hung_call() -> bool:
    """Whether a call has not returned yet. Then only `os._exit` ends the process: the call may hold locks that a normal exit needs."""
    return any(thread.name == THREAD for thread in threading.enumerate())


# A turn of a loop that took this much longer than intended was not merely busy.
SUSPENDED_S = 5.0


class SuspendAwareClock:
    """A monotonic clock that stops while this process is suspended (SIGSTOP, a debugger), so that timeouts stop as well.

    Call `tick` once per turn of a loop, with the longest time that the turn intended to wait.
    """

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._last_m = monotonic()
        self._suspended_s = 0.0

    def tick(self, intended_s: float) -> float:
        """Seconds suspended since the last tick; 0 when it was not."""
        now_m = self._monotonic()
        away_s = now_m - self._last_m - intended_s
        self._last_m = now_m
        suspended_s = away_s if away_s > SUSPENDED_S else 0.0
        self._suspended_s += suspended_s
        return suspended_s

    def now(self) -> float:
        return self._monotonic() - self._suspended_s
