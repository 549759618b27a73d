"""Connections on which nothing is asked are closed: everybody on the host can open them, and there are only so many.

In: connections, as uvicorn has them. Out: the same, less those whose request is not whole in a few seconds, be it the first or a later one.
What was asked for takes as long as it takes.
"""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol

# A request of a browser comes in one piece; a slow network needs a round trip or two.
WHOLE_WITHIN_S = 5.0


# uvicorn takes a protocol class of one's own (`Config(http=…)`) and limits how long a connection may idle after an answer, but has no
# limit on how long a request may take to come, and an application is not called before it is whole. Its protocol is thus built on here,
# though only `Config(http=…)` is documented; test_web_prompt.py names what is used of it.
class Prompt(H11Protocol):
    """Waits so long for a request, from the connection's beginning or from the request's first byte."""

    _closing: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._wait()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self._is_asked():
            self._stop_waiting()
        elif self.timeout_keep_alive_task is None:
            self._wait()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_waiting()
        super().connection_lost(exc)

    def _is_asked(self) -> bool:
        """Whether a request has come whole and is not answered yet."""
        return self.cycle is not None and not self.cycle.response_complete

    def _wait(self) -> None:
        """Once: what comes byte by byte has no more time than the rest."""
        if self._closing is None:
            self._closing = self.loop.call_later(WHOLE_WITHIN_S, self._close)

    def _stop_waiting(self) -> None:
        if self._closing is not None:
            self._closing.cancel()
            self._closing = None

    def _close(self) -> None:
        self._closing = None
        if not self._is_asked():
            self.transport.close()
