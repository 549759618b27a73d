"""Who is answered, with what, and how long a connection may idle."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import json
import socket
import threading
from collections.abc import Iterator
from typing import Any
from unittest.mock import AsyncMock

import pytest
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle

from seatrial.web import server as server_web
from seatrial.web.access import HEADERS, Guard
from seatrial.web.app import SILENT_AFTER_S, create_app
from seatrial.web.refresher import Latest
from seatrial.web.state import CampaignState
from tests.unit.web.served import TIMEOUT_S, Client, fake_source, live_state, served, shown
from tests.waiting import wait_until

PORT, TOKEN = 8123, "token"


class Memory:
    """A refresher that has seen this, and whose folder has been silent for so long."""

    def __init__(self, seen: Latest, silent_s: float = 0.0) -> None:
        self._seen, self.silent_s = seen, silent_s

    def latest(self) -> Latest:
        return self._seen


def ask(path: str, seen: Latest, silent_s: float = 0.0) -> tuple[int, dict[str, str], str]:
    """Status, headers and text that somebody with the cookie gets."""
    app: Any = create_app(Memory(seen, silent_s), token=TOKEN, port=PORT)  # type: ignore[arg-type]
    sent: list[dict[str, Any]] = []

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: Any) -> None:
        sent.append(message)

    given = [(b"host", f"127.0.0.1:{PORT}".encode()), (b"cookie", f"seatrial_{PORT}={TOKEN}".encode())]
    scope = {"type": "http", "method": "GET", "path": path, "query_string": b"", "headers": given, "client": ("127.0.0.1", 1)}
    asyncio.run(app(scope, receive, send))
    headers = {name.decode().lower(): value.decode() for name, value in sent[0]["headers"]}
    return sent[0]["status"], headers, b"".join(message.get("body", b"") for message in sent[1:]).decode()


def test_the_state_is_plain_ascii_and_tells_a_folder_that_is_silent() -> None:
    seen = Latest(now=CampaignState(state=live_state(plan="é"), is_run=True, line="é: between runs"), version=2)
    text = ask("/state.json", seen)[2]
    assert text.isascii() and json.loads(text)["line"] == "é: between runs" and json.loads(text)["problem"] == ""
    assert "has not responded for 21 s" in json.loads(ask("/state.json", seen, SILENT_AFTER_S + 1.0)[2])["problem"]


PATHS = ("/", "/state.json", "/data.json", "/nothing", "/../etc/passwd", "/%2e%2e/plan.json", "//state.json")


@pytest.fixture(scope="module")
def server() -> Iterator[Client]:
    with served() as client:
        yield client


@pytest.fixture
def stranger(server: Client) -> Client:
    return Client(server.listener)


@pytest.fixture
def guest(server: Client) -> Client:
    return Client(server.listener).enter()


def test_the_printed_address_gives_a_cookie_that_scripts_and_other_sites_cannot_use(stranger: Client) -> None:
    answer = stranger.ask(f"/?token={stranger.listener.token}")
    words = {word.strip().lower() for word in answer.headers["Set-Cookie"].split(";")[1:]}
    assert words == {"httponly", "samesite=strict", "path=/"}
    assert answer.headers["Set-Cookie"].startswith(f"seatrial_{stranger.listener.port}=")
    assert answer.status == 200 and 'http-equiv="refresh" content="0;url=/"' in answer.text
    # Neither the campaign nor the token is in it.
    assert "<main>" not in answer.text and stranger.listener.token not in answer.text


@pytest.mark.parametrize("path", PATHS)
def test_without_a_cookie_everything_is_refused(stranger: Client, path: str) -> None:
    answer = stranger.ask(path)
    assert answer.status == 403
    assert "<main>" not in answer.text and "version" not in answer.text


@pytest.mark.parametrize("wrong", ["", "x", "é", "%00", "a" * 43, "a" * 100_0])
def test_a_wrong_token_is_refused_wherever_it_stands(stranger: Client, wrong: str) -> None:
    assert stranger.ask(f"/?token={wrong}" if wrong.isascii() else "/?token=%C3%A9").status == 403
    stranger.cookie = f"seatrial_{stranger.listener.port}={wrong}"
    if wrong.isascii():
        assert stranger.ask("/").status == 403


def test_almost_the_token_is_not_the_token(stranger: Client) -> None:
    right = stranger.listener.token
    last = "A" if right[-1] != "A" else "B"
    for wrong in (right[:-1], right + "A", right[:-1] + last, right.swapcase()):
        assert stranger.ask(f"/?token={wrong}").status == 403
        assert "Set-Cookie" not in stranger.ask(f"/?token={wrong}").headers


def test_the_token_opens_no_other_path_by_itself(stranger: Client) -> None:
    assert stranger.ask(f"/data.json?token={stranger.listener.token}").status == 403


def test_a_guest_with_a_wrong_token_in_the_address_is_reported_so(guest: Client) -> None:
    assert guest.ask("/?token=wrong").status == 403
    assert guest.ask("/").status == 200


def test_another_servers_cookie_does_not_count(stranger: Client) -> None:
    stranger.cookie = f"seatrial_{stranger.listener.port + 1}={stranger.listener.token}"
    assert stranger.ask("/").status == 403


@pytest.mark.parametrize("host", ["127.0.0.1:{}", "localhost:{}", "LocalHost:{}", "[::1]:{}"])
def test_this_machine_has_three_names(guest: Client, host: str) -> None:
    guest.host = host.format(guest.listener.port)
    assert guest.ask("/state.json").status == 200


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "evil.example:{}",
        "127.0.0.1",
        "localhost",
        "127.0.0.1:1",
        "127.0.0.1.evil.example:{}",
        "localhost:{}@evil.example",
        "x",
    ],
)
def test_a_name_that_only_leads_here_is_refused_with_cookie_and_token(guest: Client, host: str) -> None:
    guest.host = host.format(guest.listener.port)
    assert guest.ask("/state.json").status == 403
    answer = guest.ask(f"/?token={guest.listener.token}")
    assert answer.status == 403 and "Set-Cookie" not in answer.headers


@pytest.mark.parametrize("hosts", [[], ["127.0.0.1:8123", "127.0.0.1:8123"], ["127.0.0.1:8123", "evil.example"]])
def test_the_guard_itself_wants_one_host_whatever_server_is_before_it(hosts: list[str]) -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        raise AssertionError("it was let in")

    headers = [(b"cookie", b"seatrial_8123=secret"), *((b"host", host.encode()) for host in hosts)]
    scope = {"type": "http", "method": "GET", "path": "/", "query_string": b"", "headers": headers}
    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    asyncio.run(Guard(app, token="secret", port=8123)(scope, AsyncMock(), send))
    assert sent[0]["status"] == 403


def test_who_is_sent_away_does_not_keep_a_connection(stranger: Client) -> None:
    assert stranger.ask("/state.json").headers["Connection"] == "close"


@pytest.mark.parametrize("method", ["POST", "OPTIONS", "CONNECT"])
def test_there_is_nothing_to_be_done_but_to_read(guest: Client, method: str) -> None:
    answer = guest.ask("/", method)
    assert answer.status == 405 and answer.headers["Allow"] == "GET, HEAD"


def test_head_is_get_without_the_text(guest: Client) -> None:
    answer = guest.ask("/", "HEAD")
    assert answer.status == 200 and answer.text == "" and int(answer.headers["Content-Length"]) > 0


@pytest.mark.parametrize("path", ["/nothing", "/state.json/", "/page.js", "/%2e%2e/plan.json", "/..%2fplan.json", "//data.json"])
def test_nothing_else_is_there_for_a_guest(guest: Client, path: str) -> None:
    assert guest.ask(path).status == 404


@pytest.mark.parametrize("path", ["/", "/data.json", "/nothing"])
@pytest.mark.parametrize("is_guest", [True, False])
def test_every_answer_has_the_headers(guest: Client, stranger: Client, path: str, is_guest: bool) -> None:
    headers = (guest if is_guest else stranger).ask(path).headers
    assert {name: headers[name] for name in HEADERS if "Policy" not in name} == {n: v for n, v in HEADERS.items() if "Policy" not in n}
    assert headers["Referrer-Policy"] == "no-referrer" and headers["Cross-Origin-Resource-Policy"] == "same-origin"
    assert "default-src 'none'" in headers["Content-Security-Policy"] and "frame-ancestors 'none'" in headers["Content-Security-Policy"]
    assert headers.get("Server") is None and headers.get("Access-Control-Allow-Origin") is None


def test_the_pages_policy_is_the_documents_own(guest: Client) -> None:
    assert guest.ask("/").headers["Content-Security-Policy"] == "default-src 'none'; connect-src 'self'; frame-ancestors 'none'"


# What is used of uvicorn's protocol beyond its documented surface.
CALLS = {"connection_made": ["self", "transport"], "data_received": ["self", "data"], "connection_lost": ["self", "exc"]}
ATTRIBUTES = ("connections", "cycle", "loop", "timeout_keep_alive_task", "transport")
WORDS = (b"", b"GET / HTTP/1.1\r\nHost: x")


@pytest.fixture
def short_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_web, "REQUEST_TIMEOUT_S", 0.2)


@contextlib.contextmanager
def connections(client: Client, count: int, word: bytes) -> Iterator[list[socket.socket]]:
    with contextlib.ExitStack() as stack:
        made = []
        for _ in range(count):
            made.append(stack.enter_context(socket.create_connection(("127.0.0.1", client.listener.port), TIMEOUT_S)))
            made[-1].sendall(word)
        yield made


def is_closed(connection: socket.socket) -> bool:
    """Whether the server ends it, with what it was sent or before that was read."""
    with contextlib.suppress(ConnectionResetError):
        return connection.recv(1) == b""
    return True


def test_uvicorn_still_has_what_is_built_on() -> None:
    for name, parameters in CALLS.items():
        assert list(inspect.signature(getattr(H11Protocol, name)).parameters) == parameters, f"uvicorn {uvicorn.__version__}: {name}"
    config = uvicorn.Config(app=lambda: None, http=server_web.TimeoutProtocol, lifespan="off", ws="none")
    config.load()
    loop = asyncio.new_event_loop()
    try:
        made = server_web.TimeoutProtocol(config=config, server_state=uvicorn.Server(config).server_state, app_state={}, _loop=loop)
    finally:
        loop.close()
    missing = [name for name in ATTRIBUTES if not hasattr(made, name)]
    assert missing == [], f"uvicorn {uvicorn.__version__} has no {missing}: look at web/server.py"
    assert "response_complete" in inspect.getsource(RequestResponseCycle.__init__), (
        f"uvicorn {uvicorn.__version__} tells otherwise whether a request was answered: look at web/server.py"
    )


@pytest.mark.parametrize("word", WORDS)
def test_idle_connections_are_closed_and_the_owner_is_let_in_again(short_wait: None, word: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_web, "MAX_CONNECTIONS", 4)
    with served() as client:
        client.enter()
        with connections(client, 6, word) as idle:
            wait_until(lambda: client.ask("/state.json").status == 200)
            assert all(map(is_closed, idle))


@pytest.mark.parametrize("word", WORDS)
def test_three_hundred_idle_connections_do_not_stop_the_page(monkeypatch: pytest.MonkeyPatch, word: bytes) -> None:
    # None of them is closed for its age.
    monkeypatch.setattr(server_web, "REQUEST_TIMEOUT_S", 600.0)
    with served() as client:
        client.enter()
        with connections(client, 300, word) as idle:
            assert client.ask("/state.json").status == 200
            assert all(map(is_closed, idle[:10])), "the oldest are closed"
            with connections(client, 300, word):
                assert client.ask("/state.json").status == 200


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
            with connections(client, 1, b"") as (silent,):
                assert is_closed(silent)
            one.sendall(whole(client))
            assert answered(one).startswith(b"HTTP/1.1 200")


def whole(client: Client) -> bytes:
    return f"GET /state.json HTTP/1.1\r\nHost: 127.0.0.1:{client.listener.port}\r\nCookie: {client.cookie}\r\n\r\n".encode()


def answered(connection: socket.socket) -> bytes:
    found = b""
    while not found.endswith(b"}"):
        came = connection.recv(65536)
        assert came, "it was closed"
        found += came
    return found


def test_what_was_requested_takes_as_long_as_it_takes(short_wait: None) -> None:
    free = threading.Event()
    with served(fake_source(shown=lambda version: free.wait(120) and shown(version))) as client:
        client.enter()
        # Longer than a request may take to come.
        threading.Timer(0.6, free.set).start()
        assert client.ask("/").status == 200
