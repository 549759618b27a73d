"""The listening socket of a switchboard. In: how many there is room for. Out: who has connected.

Who is not let in yet waits with the kernel. When a connection cannot be taken, mostly because all file handles are in use, the door stays
shut for a moment: what waits there would wake the switchboard again and again, and nothing could be done about it.
"""

from __future__ import annotations

import math
import socket

SHUT_S = 1.0


class Door:
    """`now` is any clock that does not go back."""

    def __init__(self, listening: socket.socket) -> None:
        self._server = listening
        self._server.setblocking(False)
        self.port = int(listening.getsockname()[1])
        self._shut_until = -math.inf

    def fileno(self) -> int:
        return self._server.fileno()

    def is_open(self, now: float) -> bool:
        return now >= self._shut_until

    def arrived(self, now: float, room: int) -> list[socket.socket]:
        """Who has connected, at most `room` of them."""
        found: list[socket.socket] = []
        try:
            while len(found) < room and self.is_open(now):
                found.append(self._server.accept()[0])
        except BlockingIOError:
            pass
        except OSError:
            self._shut_until = now + SHUT_S
        return found

    def close(self) -> None:
        self._server.close()
