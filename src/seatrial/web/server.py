"""The page of a campaign on loopback, until interrupted.

In: a campaign's folder and a port. Out: an address with a token, and a server behind it that only reads. It keeps running when the campaign
ends, so that its end can be seen; Ctrl-C, TERM and HUP stop it.

uvicorn limits how long a connection may idle after a response, but not how long a request may take to arrive, and calls the application
only for complete requests; at its limit of connections it refuses everybody. Its protocol class is therefore extended, though only
`Config(http=…)` is documented; tests/unit/web/test_server.py checks the attributes used here.
"""

from __future__ import annotations

import asyncio
import errno
import os
import socket
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol

from seatrial.core.errors import UsageError
from seatrial.core.paths import CampaignPaths
from seatrial.records.results import LiveState
from seatrial.web.access import new_token
from seatrial.web.app import create_app
from seatrial.web.refresher import Refresher

# A browser sends a request at once; a slow network needs a round trip or two.
REQUEST_TIMEOUT_S = 5.0


class TimeoutProtocol(H11Protocol):
    """Closes a connection without a complete request after REQUEST_TIMEOUT_S, counted from its beginning or from the request's first byte;
    with too many connections the oldest such one at once, so that idle connections keep nobody out."""

    _closing: asyncio.TimerHandle | None = None
    _begun_m = 0.0

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._begun_m = self.loop.time()
        self._wait()
        self._make_room()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self._has_request():
            self._stop_waiting()
        elif self.timeout_keep_alive_task is None:
            self._wait()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_waiting()
        super().connection_lost(exc)

    def _make_room(self) -> None:
        is_open = [one for one in self.connections if isinstance(one, TimeoutProtocol) and not one.transport.is_closing()]
        idle = [one for one in is_open if one is not self and not one._has_request()]
        if len(is_open) > MAX_CONNECTIONS and idle:
            min(idle, key=lambda one: one._begun_m).transport.close()

    def _has_request(self) -> bool:
        """Whether a complete request has no response yet."""
        return self.cycle is not None and not self.cycle.response_complete

    def _wait(self) -> None:
        """Start the timeout once: a request that arrives byte by byte gets no more time."""
        if self._closing is None:
            self._closing = self.loop.call_later(REQUEST_TIMEOUT_S, self._close)

    def _stop_waiting(self) -> None:
        if self._closing is not None:
            self._closing.cancel()
            self._closing = None

    def _close(self) -> None:
        self._closing = None
        if not self._has_request():
            self.transport.close()


HOST = "127.0.0.1"
# A browser opens six connections; the rest is for a few more browsers and for requests that are refused.
MAX_CONNECTIONS = 256
# Concurrent requests; connections alone never reach it.
MAX_REQUESTS = 2 * MAX_CONNECTIONS
SHUTDOWN_S = 1


@dataclass(frozen=True, kw_only=True)
class Listener:
    """A listening port, and the token for it."""

    listening: socket.socket
    token: str

    @property
    def port(self) -> int:
        return int(self.listening.getsockname()[1])

    @property
    def address(self) -> str:
        return f"http://{HOST}:{self.port}/?token={self.token}"


def open_listener(port: int = 0) -> Listener:
    """Bind the port on loopback, any free one for 0; from now on connections wait for `serve`."""
    listening = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    try:
        # The port is free although a server that just ended left connections in TIME_WAIT.
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind((HOST, port))
        listening.listen(MAX_CONNECTIONS)
    except OSError as error:
        listening.close()
        if error.errno == errno.EADDRINUSE:
            raise UsageError(f"port {port} is taken: choose another with --port, or leave it out for a free one") from error
        raise UsageError(f"cannot bind port {port} ({error.strerror}): choose one above 1023, or leave --port out") from error
    return Listener(listening=listening, token=new_token())


def serve(paths: CampaignPaths, listener: Listener, line: Callable[[LiveState], str]) -> None:
    """Serve until a signal, which is raised again after the shutdown; `line` gives a state as text."""
    from seatrial.web.snapshot import folder_source

    # The harness and the ranks need the other cores; set before polars is loaded.
    os.environ.setdefault("POLARS_MAX_THREADS", "1")
    with Refresher(folder_source(paths, line)) as refresher:
        server_for(create_app(refresher, token=listener.token, port=listener.port)).run(sockets=[listener.listening])


def server_for(app: ASGIApp) -> uvicorn.Server:
    """The server, without logs of its own: access logs would contain the token, and the application logs failures."""
    config = uvicorn.Config(
        app,
        http=TimeoutProtocol,
        log_config=None,
        log_level="critical",
        access_log=False,
        lifespan="off",
        ws="none",
        server_header=False,
        proxy_headers=False,
        limit_concurrency=MAX_REQUESTS,
        timeout_graceful_shutdown=SHUTDOWN_S,
    )
    return uvicorn.Server(config)
