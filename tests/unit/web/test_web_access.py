"""Who is let in: the right token, from this machine, to read; everybody else learns nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any
from unittest.mock import AsyncMock

import pytest

from seatrial.web.access import HEADERS, Guard, new_token
from tests.unit.web.served import Client, served

PATHS = ("/", "/state.json", "/data.json", "/nothing", "/../etc/passwd", "/%2e%2e/plan.json", "//state.json")


@pytest.fixture(scope="module")
def server() -> Iterator[Client]:
    with served() as client:
        yield client


@pytest.fixture
def stranger(server: Client) -> Client:
    return Client(server.door)


@pytest.fixture
def guest(server: Client) -> Client:
    return Client(server.door).enter()


def test_a_token_has_32_random_bytes_and_can_stand_in_an_address() -> None:
    tokens = {new_token() for _ in range(50)}
    assert len(tokens) == 50
    assert all(len(token) == 43 and token.replace("-", "").replace("_", "").isalnum() for token in tokens)


def test_the_printed_address_gives_a_cookie_that_scripts_and_other_sites_cannot_use(stranger: Client) -> None:
    answer = stranger.ask(f"/?token={stranger.door.token}")
    words = {word.strip().lower() for word in answer.headers["Set-Cookie"].split(";")[1:]}
    assert words == {"httponly", "samesite=strict", "path=/"}
    assert answer.headers["Set-Cookie"].startswith(f"seatrial_{stranger.door.port}=")
    assert answer.status == 200 and 'http-equiv="refresh" content="0;url=/"' in answer.text
    # Neither the campaign nor the token is in it.
    assert "<main>" not in answer.text and stranger.door.token not in answer.text


@pytest.mark.parametrize("path", PATHS)
def test_without_a_cookie_everything_is_refused(stranger: Client, path: str) -> None:
    answer = stranger.ask(path)
    assert answer.status == 403
    assert "<main>" not in answer.text and "version" not in answer.text


@pytest.mark.parametrize("wrong", ["", "x", "é", "%00", "a" * 43, "a" * 100_0])
def test_a_wrong_token_is_refused_wherever_it_stands(stranger: Client, wrong: str) -> None:
    assert stranger.ask(f"/?token={wrong}" if wrong.isascii() else "/?token=%C3%A9").status == 403
    stranger.cookie = f"seatrial_{stranger.door.port}={wrong}"
    if wrong.isascii():
        assert stranger.ask("/").status == 403


def test_almost_the_token_is_not_the_token(stranger: Client) -> None:
    right = stranger.door.token
    last = "A" if right[-1] != "A" else "B"
    for wrong in (right[:-1], right + "A", right[:-1] + last, right.swapcase()):
        assert stranger.ask(f"/?token={wrong}").status == 403
        assert "Set-Cookie" not in stranger.ask(f"/?token={wrong}").headers


def test_the_token_opens_no_other_path_by_itself(stranger: Client) -> None:
    assert stranger.ask(f"/data.json?token={stranger.door.token}").status == 403


def test_a_guest_with_a_wrong_token_in_the_address_is_told_so(guest: Client) -> None:
    assert guest.ask("/?token=wrong").status == 403
    assert guest.ask("/").status == 200


def test_another_servers_cookie_does_not_count(stranger: Client) -> None:
    stranger.cookie = f"seatrial_{stranger.door.port + 1}={stranger.door.token}"
    assert stranger.ask("/").status == 403


@pytest.mark.parametrize("host", ["127.0.0.1:{}", "localhost:{}", "LocalHost:{}", "[::1]:{}"])
def test_this_machine_has_three_names(guest: Client, host: str) -> None:
    guest.host = host.format(guest.door.port)
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
    guest.host = host.format(guest.door.port)
    assert guest.ask("/state.json").status == 403
    answer = guest.ask(f"/?token={guest.door.token}")
    assert answer.status == 403 and "Set-Cookie" not in answer.headers


def test_two_host_headers_are_one_too_many(guest: Client) -> None:
    assert guest.ask("/state.json", Host=f"127.0.0.1:{guest.door.port}").status in (400, 403)


@pytest.mark.parametrize("hosts", [[], ["127.0.0.1:8123", "127.0.0.1:8123"], ["127.0.0.1:8123", "evil.example"]])
def test_the_guard_itself_wants_one_host_whatever_server_stands_before_it(hosts: list[str]) -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        raise AssertionError("it was let in")

    headers = [(b"cookie", b"seatrial_8123=secret"), *((b"host", host.encode()) for host in hosts)]
    scope = {"type": "http", "method": "GET", "path": "/", "query_string": b"", "headers": headers}
    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    asyncio.run(Guard(app, token="secret", port=8123)(scope, AsyncMock(), send))
    assert sent[0]["status"] == 403


@pytest.mark.parametrize("path", ["/", "/?token=wrong", "/state.json"])
def test_who_is_sent_away_does_not_keep_a_connection(stranger: Client, path: str) -> None:
    assert stranger.ask(path).headers["Connection"] == "close"


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "CONNECT", "PROPFIND"])
def test_there_is_nothing_to_be_done_but_to_read(guest: Client, method: str) -> None:
    answer = guest.ask("/", method)
    assert answer.status == 405 and answer.headers["Allow"] == "GET, HEAD"


def test_head_is_get_without_the_text(guest: Client) -> None:
    answer = guest.ask("/", "HEAD")
    assert answer.status == 200 and answer.text == "" and int(answer.headers["Content-Length"]) > 0


@pytest.mark.parametrize("path", ["/nothing", "/state.json/", "/page.js", "/%2e%2e/plan.json", "/..%2fplan.json", "//data.json"])
def test_nothing_else_is_there_for_a_guest(guest: Client, path: str) -> None:
    assert guest.ask(path).status == 404


@pytest.mark.parametrize("path", ["/", "/state.json", "/data.json", "/nothing"])
@pytest.mark.parametrize("is_guest", [True, False])
def test_every_answer_has_the_headers(guest: Client, stranger: Client, path: str, is_guest: bool) -> None:
    headers = (guest if is_guest else stranger).ask(path).headers
    assert {name: headers[name] for name in HEADERS if "Policy" not in name} == {n: v for n, v in HEADERS.items() if "Policy" not in n}
    assert headers["Referrer-Policy"] == "no-referrer" and headers["Cross-Origin-Resource-Policy"] == "same-origin"
    assert "default-src 'none'" in headers["Content-Security-Policy"] and "frame-ancestors 'none'" in headers["Content-Security-Policy"]
    assert headers.get("Server") is None and headers.get("Access-Control-Allow-Origin") is None


def test_the_pages_policy_is_the_documents_own(guest: Client) -> None:
    assert guest.ask("/").headers["Content-Security-Policy"] == "default-src 'none'; connect-src 'self'; frame-ancestors 'none'"
