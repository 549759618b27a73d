"""Connections that ask nothing do not shut out those who do."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import socket
import threading
import time
from collections.abc import Iterator

import pytest
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle

from seatrial.web import prompt, serve
from tests.unit.web.served import PATIENCE_S, Client, fake_source, served, shown
from tests.waiting import wait_until

# What is used of uvicorn's protocol beyond its documented surface.
CALLS = {"connection_made": ["self", "transport"], "data_received": ["self", "data"], "connection_lost": ["self", "exc"]}
ATTRIBUTES = ("cycle", "loop", "timeout_keep_alive_task", "transport")
WORDS = (b"", b"GET / HTTP/1.1\r\nHost: x")


@pytest.fixture
def short_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prompt, "WHOLE_WITHIN_S", 0.2)


@contextlib.contextmanager
def connections(client: Client, count: int, word: bytes) -> Iterator[list[socket.socket]]:
    with contextlib.ExitStack() as stack:
        made = []
        for _ in range(count):
            made.append(stack.enter_context(socket.create_connection(("127.0.0.1", client.door.port), PATIENCE_S)))
            made[-1].sendall(word)
        yield made


def test_uvicorn_still_has_what_is_built_on() -> None:
    for name, parameters in CALLS.items():
        assert list(inspect.signature(getattr(H11Protocol, name)).parameters) == parameters, f"uvicorn {uvicorn.__version__}: {name}"
    config = uvicorn.Config(app=lambda: None, http=prompt.Prompt, lifespan="off", ws="none")
    config.load()
    loop = asyncio.new_event_loop()
    try:
        made = prompt.Prompt(config=config, server_state=uvicorn.Server(config).server_state, app_state={}, _loop=loop)
    finally:
        loop.close()
    missing = [name for name in ATTRIBUTES if not hasattr(made, name)]
    assert missing == [], f"uvicorn {uvicorn.__version__} has no {missing}: look at web/prompt.py"
    assert "response_complete" in inspect.getsource(RequestResponseCycle.__init__), (
        f"uvicorn {uvicorn.__version__} tells otherwise whether a request was answered: look at web/prompt.py"
    )


@pytest.mark.parametrize("word", WORDS)
def test_idle_connections_are_closed_and_the_owner_is_let_in_again(short_wait: None, word: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serve, "MOST_CONNECTIONS", 4)
    with served() as client:
        client.enter()
        with connections(client, 6, word) as idle:
            wait_until(lambda: client.ask("/state.json").status == 200)
            assert [one.recv(1) for one in idle] == [b""] * 6


def test_a_later_request_that_is_not_whole_is_not_waited_for_either(short_wait: None) -> None:
    with served() as client:
        client.enter()
        with connections(client, 1, whole(client)) as (one,):
            assert answered(one).startswith(b"HTTP/1.1 200")
            one.sendall(b"GET /state")
            while one.recv(65536):
                pass


def test_a_guest_keeps_his_connection_between_requests(short_wait: None) -> None:
    with served() as client:
        client.enter()
        with connections(client, 1, whole(client)) as (one,):
            assert answered(one).startswith(b"HTTP/1.1 200")
            # Longer than a request may take to come, and shorter than a connection is kept.
            time.sleep(0.5)
            one.sendall(whole(client))
            assert answered(one).startswith(b"HTTP/1.1 200")


def whole(client: Client) -> bytes:
    return f"GET /state.json HTTP/1.1\r\nHost: 127.0.0.1:{client.door.port}\r\nCookie: {client.cookie}\r\n\r\n".encode()


def answered(connection: socket.socket) -> bytes:
    found = b""
    while not found.endswith(b"}"):
        came = connection.recv(65536)
        assert came, "it was closed"
        found += came
    return found


def test_what_was_asked_for_takes_as_long_as_it_takes(short_wait: None) -> None:
    free = threading.Event()
    with served(fake_source(shown=lambda version: free.wait(120) and shown(version))) as client:
        client.enter()
        # Longer than a request may take to come.
        threading.Timer(0.6, free.set).start()
        assert client.ask("/").status == 200
