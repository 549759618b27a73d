"""Tells one thread that another has something for it, in a way that can be waited for together with files and sockets."""

from __future__ import annotations

import contextlib
import select
import socket
import time

DRAIN_BYTES = 4096


class Bell:
    """`ring` in one thread, `wait` and `clear` in another."""

    def __init__(self) -> None:
        self._hammer, self._ear = socket.socketpair()
        self._hammer.setblocking(False)
        self._ear.setblocking(False)

    def ring(self) -> None:
        # One that cannot be rung any more is full, and rings already; or it is closed.
        with contextlib.suppress(OSError):
            self._hammer.send(b"!")

    def wait(self, timeout_s: float, beside: int | None = None) -> bool:
        """Until it rings or the file `beside` can be read, which is true; or the time is over, which is not."""
        if self._ear.fileno() < 0:
            time.sleep(timeout_s)
            return False
        waiting = select.poll()
        waiting.register(self._ear, select.POLLIN)
        if beside is not None:
            waiting.register(beside, select.POLLIN)
        return bool(waiting.poll(timeout_s * 1000))

    def clear(self) -> None:
        """To be called before what it rang for is taken: what comes in between rings anew."""
        with contextlib.suppress(OSError):
            while self._ear.recv(DRAIN_BYTES):
                pass

    def close(self) -> None:
        self._hammer.close()
        self._ear.close()
