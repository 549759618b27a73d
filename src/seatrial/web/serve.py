"""The page of a campaign on loopback, until somebody interrupts it.

In: a campaign's folder and a port. Out: an address with a token, and a server behind it that reads and never writes. It stays when the
campaign ends, since whoever looked on wants to see how it ended; Ctrl-C, TERM and HUP end it, and leave no thread and no process.
"""

from __future__ import annotations

import errno
import os
import socket
from collections.abc import Callable
from dataclasses import dataclass

import uvicorn
from starlette.types import ASGIApp

from seatrial.errors import UsageError
from seatrial.paths import CampaignPaths
from seatrial.records.live import LiveState
from seatrial.web.access import new_token
from seatrial.web.app import make_app
from seatrial.web.looker import Looker
from seatrial.web.prompt import Prompt

HOST = "127.0.0.1"
# A browser has six connections open, a few people a browser each; the rest is for those who come and are sent away.
MOST_CONNECTIONS = 256
GRACE_S = 1


@dataclass(frozen=True, kw_only=True)
class Door:
    """A port that is ours, and the secret that opens it."""

    listening: socket.socket
    token: str

    @property
    def port(self) -> int:
        return int(self.listening.getsockname()[1])

    @property
    def address(self) -> str:
        return f"http://{HOST}:{self.port}/?token={self.token}"


def open_door(port: int = 0) -> Door:
    """Take the port on loopback, any free one for 0; from now on whoever comes waits for `serve`."""
    listening = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    try:
        # What a server that ended a moment ago has left behind does not keep its port.
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind((HOST, port))
        listening.listen(MOST_CONNECTIONS)
    except OSError as error:
        listening.close()
        if error.errno == errno.EADDRINUSE:
            raise UsageError(f"port {port} is taken: choose another with --port, or leave it out for a free one") from error
        raise UsageError(f"port {port} cannot be had ({error.strerror}): choose one above 1023, or leave --port out") from error
    return Door(listening=listening, token=new_token())


def serve(paths: CampaignPaths, door: Door, line: Callable[[LiveState], str]) -> None:
    """Answer until a signal comes, which is raised again when all is closed; `line` puts a state into words."""
    from seatrial.web.snapshot import source_of

    # The harness and the ranks need the other cores; must be there before polars is loaded.
    os.environ.setdefault("POLARS_MAX_THREADS", "1")
    with Looker(source_of(paths, line)) as looker:
        server_for(make_app(looker, token=door.token, port=door.port)).run(sockets=[door.listening])


def server_for(app: ASGIApp) -> uvicorn.Server:
    """No logs of its own: those of who asked for what would hold the token, and what fails is told by the application."""
    config = uvicorn.Config(
        app,
        http=Prompt,
        log_config=None,
        log_level="critical",
        access_log=False,
        lifespan="off",
        ws="none",
        server_header=False,
        proxy_headers=False,
        limit_concurrency=MOST_CONNECTIONS,
        timeout_graceful_shutdown=GRACE_S,
    )
    return uvicorn.Server(config)
