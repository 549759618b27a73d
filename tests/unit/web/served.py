"""A real server on loopback, and a client that keeps its cookie as a browser does."""

from __future__ import annotations

import contextlib
import http.client
import json
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from seatrial.records.results import LiveState
from seatrial.web.app import create_app
from seatrial.web.compressed_text import CompressedText
from seatrial.web.refresher import PageVersion, Refresher, RefreshPace, Source
from seatrial.web.server import Listener, open_listener, server_for
from seatrial.web.state import CampaignState

TIMEOUT_S = 60.0
PAGE = (
    '<!doctype html><html><head><meta charset="utf-8"><meta http-equiv="Content-Security-Policy" content="default-src \'none\'; '
    "connect-src 'self'\"></head><body><main>{}</main></body></html>"
)


@dataclass(frozen=True)
class Answer:
    status: int
    headers: http.client.HTTPMessage
    text: str


@dataclass
class Client:
    """Asks one server."""

    listener: Listener
    cookie: str = ""
    host: str = ""

    def ask(self, path: str = "/", method: str = "GET", **headers: str) -> Answer:
        connection = http.client.HTTPConnection("127.0.0.1", self.listener.port, timeout=TIMEOUT_S)
        try:
            connection.putrequest(method, path, skip_host=True, skip_accept_encoding=True)
            connection.putheader("Host", self.host or f"127.0.0.1:{self.listener.port}")
            if self.cookie:
                connection.putheader("Cookie", self.cookie)
            for name, value in headers.items():
                connection.putheader(name.replace("_", "-"), value)
            connection.endheaders()
            response = connection.getresponse()
            return Answer(response.status, response.headers, response.read().decode(errors="replace"))
        finally:
            connection.close()

    def enter(self) -> Client:
        """Come in by the address that was printed."""
        given = self.ask(f"/?token={self.listener.token}").headers["Set-Cookie"]
        self.cookie = given.split(";")[0]
        return self


def live_state(**changes: Any) -> LiveState:
    return LiveState(**{"t": 1.0, "pid": 7, "host": "node-1", "plan": "demo", "count": 4, **changes})


def shown(version: str) -> PageVersion:
    return PageVersion(page=lambda: PAGE.format(version), parts=CompressedText(json.dumps({"version": version})))


def fake_source(**ways: Any) -> Source:
    """A campaign that says the same whenever it is read."""
    return Source(
        **{
            "now": lambda: CampaignState(state=live_state(), is_run=True, line="demo: between runs"),
            "mark": lambda: 1,
            "shown": shown,
            **ways,
        }
    )


@contextlib.contextmanager
def served(source: Source | None = None, pace: RefreshPace | None = None) -> Iterator[Client]:
    """A server in a thread of its own; all its threads are gone when the block ends."""
    before = set(threading.enumerate())
    listener = open_listener()
    with Refresher(source or fake_source(), pace or RefreshPace(every_s=0, largest_share=1)) as refresher:
        server = server_for(create_app(refresher, token=listener.token, port=listener.port))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener.listening]})
        thread.start()
        try:
            yield Client(listener)
        finally:
            server.should_exit = True
            thread.join(TIMEOUT_S)
    left = [thread for thread in threading.enumerate() if thread not in before]
    for thread in left:
        thread.join(TIMEOUT_S)
    assert not any(thread.is_alive() for thread in left)
