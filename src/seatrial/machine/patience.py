"""Asking what may never answer: a driver that hangs takes one thread with it, and nobody who waits for that thread. And looking again and
again for what may never come.

In: a question, and how long to wait for its answer. Out: the answer, or `NoAnswer`. A process with a question under way cannot end in
the usual way, since the hung call may hold locks that the way out waits for: `is_stuck()` tells, and `os._exit` is the way out then.
"""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable
from typing import TypeVar

THREAD = "seatrial-question"
T = TypeVar("T")


class NoAnswer(Exception):
    """The patience was over before the answer came."""

    def __init__(self, patience_s: float, thread: threading.Thread) -> None:
        super().__init__(f"no answer within {patience_s:g} s")
        self._thread = thread

    @property
    def came_late(self) -> bool:
        """Whether there is an answer by now."""
        return not self._thread.is_alive()


def within(patience_s: float, question: Callable[[], T]) -> T:
    """The answer of `question`, asked in a thread of its own; what it raises is raised here."""
    answers: list[T] = []
    errors: list[BaseException] = []

    def ask() -> None:
        try:
            answers.append(question())
        except BaseException as error:
            errors.append(error)

    thread = aside(ask)
    thread.join(patience_s)
    if answers:
        return answers[0]
    raise errors[0] if errors else NoAnswer(patience_s, thread)


def aside(act: Callable[[], None]) -> threading.Thread:
    """`act` under way in a thread that nobody need wait for, and that `is_stuck` knows while it lasts."""

    def run() -> None:
        # Signals are for the main thread: one that came here would find nobody to act on it.
        signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        act()

    thread = threading.Thread(target=run, name=THREAD, daemon=True)
    thread.start()
    return thread


def looked_for(
    look: Callable[[], T],
    is_enough: Callable[[T], bool],
    patience_s: float,
    every_s: float,
    monotonic: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> T:
    """What `look` gives, as soon as that is enough; else what it gave when the patience was over. It looks once in any case."""
    until_m = monotonic() + patience_s
    while not is_enough(found := look()) and monotonic() < until_m:
        sleep(every_s)
    return found


def is_stuck() -> bool:
    """Whether a question is still without an answer."""
    return any(thread.name == THREAD for thread in threading.enumerate())
