"""One connected socket that never makes anybody wait: what cannot be sent now waits here, what arrives comes out as messages.

However much the other side has to say, only so much is taken at once: nobody keeps the rest of a loop from its turn.
"""

from __future__ import annotations

import contextlib
import math
import socket
from collections.abc import Mapping
from typing import Any

from seatrial.line.protocol import Decoder, Message, encoded

READ_BYTES = 64 * 1024
MOST_AT_ONCE_BYTES = 4 * READ_BYTES
# Of somebody who is gone: more than the kernel keeps for a socket.
MOST_LAST_BYTES = 16 * 1024 * 1024


class Connection:
    """Non-blocking; `closed` says why no more will come, in words, and is empty while it lives."""

    def __init__(self, connected: socket.socket, allowed_bytes: float = math.inf) -> None:
        """`allowed_bytes`: more than this of somebody who is not trusted yet is the end of it."""
        self._socket, self._allowed_bytes = connected, allowed_bytes
        self._socket.setblocking(False)
        with contextlib.suppress(OSError):
            # A beat that waits for more to send would make the clock look slow.
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._decoder = Decoder()
        self._waiting = b""
        self._arrived: list[Message] = []
        self.closed = ""

    def fileno(self) -> int:
        return self._socket.fileno()

    def trust(self) -> None:
        """Let the other side say as much as it likes."""
        self._allowed_bytes = math.inf

    @property
    def has_waiting(self) -> bool:
        return bool(self._waiting) and not self.closed

    def send(self, message: Mapping[str, Any]) -> None:
        if not self.closed:
            self._waiting += encoded(message)
            self.flush()

    def flush(self) -> None:
        """Send what can be sent now."""
        try:
            while self._waiting:
                self._waiting = self._waiting[self._socket.send(self._waiting) :]
        except BlockingIOError:
            return
        except OSError as error:
            # Whoever is gone may have said his last words before, and they are not to be lost with him.
            self._arrived += self._read(MOST_LAST_BYTES)
            self.close(error.strerror or str(error))

    def receive(self) -> list[Message]:
        """What has arrived, without waiting; of very much only a part, the rest is still there to be read."""
        messages, self._arrived = [*self._arrived, *self._read(MOST_AT_ONCE_BYTES)], []
        return messages

    def _read(self, most_bytes: int) -> list[Message]:
        messages: list[Message] = []
        while most_bytes > 0 and not self.closed:
            try:
                data = self._socket.recv(min(most_bytes, READ_BYTES))
                most_bytes -= len(data)
                messages += self._taken(data)
            except BlockingIOError:
                break
            except OSError as error:
                self.close(error.strerror or str(error))
            except (ValueError, RecursionError):
                self.close("what came was no message")
        return messages

    def _taken(self, data: bytes) -> list[Message]:
        self._allowed_bytes -= len(data)
        if not data:
            self.close("the other side closed it")
        elif self._allowed_bytes < 0:
            self.close("it said too much before it was known who it is")
            return []
        return self._decoder.feed(data)

    def finish(self) -> None:
        """Send what still waits and close. What came meanwhile is taken first: a socket closed on unread bytes takes back what it sent."""
        self.flush()
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_WR)
        self._read(MOST_LAST_BYTES)
        self.close()

    def close(self, why: str = "closed here") -> None:
        self.closed = self.closed or why
        self._socket.close()
