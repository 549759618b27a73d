"""The three answers, asked of the application itself: no port, no thread."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from seatrial.web.app import SILENT_AFTER_S, make_app
from seatrial.web.looker import Seen
from seatrial.web.now import Now
from tests.unit.web.served import live_state, shown

PORT, TOKEN = 8123, "token"


class Memory:
    """A looker that has seen this, and whose folder has been silent for so long."""

    def __init__(self, seen: Seen, silent_s: float = 0.0) -> None:
        self._seen, self.silent_s = seen, silent_s

    def asked(self) -> Seen:
        return self._seen


def ask(path: str, seen: Seen, silent_s: float = 0.0) -> tuple[int, dict[str, str], str]:
    """Status, headers and text that somebody with the cookie gets."""
    app: Any = make_app(Memory(seen, silent_s), token=TOKEN, port=PORT)  # type: ignore[arg-type]
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


def test_the_page_comes_with_its_own_policy_in_a_header() -> None:
    status, headers, text = ask("/", Seen(shown=shown("3"), version=3))
    assert status == 200 and "<main>3</main>" in text
    assert headers["content-security-policy"] == "default-src 'none'; connect-src 'self'; frame-ancestors 'none'"


def test_the_data_are_those_of_the_version_shown() -> None:
    status, _, text = ask("/data.json", Seen(shown=shown("3"), version=3))
    assert (status, json.loads(text)) == (200, {"version": "3"})


def test_why_nothing_can_be_shown_is_a_sentence_at_every_address() -> None:
    seen = Seen(problem="no plan in it")
    assert ask("/", seen)[::2] == (503, "no plan in it\n")
    status, _, text = ask("/data.json", seen)
    assert (status, json.loads(text)) == (503, {"problem": "no plan in it"})
    assert json.loads(ask("/state.json", seen)[2]) == {"version": "0", "problem": "no plan in it"}


def test_the_state_is_plain_ascii_and_tells_a_folder_that_is_silent() -> None:
    seen = Seen(now=Now(state=live_state(plan="é"), is_run=True, line="é: between runs"), version=2)
    text = ask("/state.json", seen)[2]
    assert text.isascii() and json.loads(text)["line"] == "é: between runs" and json.loads(text)["problem"] == ""
    assert "has not answered for 21 s" in json.loads(ask("/state.json", seen, SILENT_AFTER_S + 1.0)[2])["problem"]


def test_a_page_that_cannot_be_made_is_a_sentence() -> None:
    status, _, text = ask("/", Seen(shown=type(shown("1"))(page=lambda: str(1 // 0), parts=shown("1").parts), version=1))
    assert status == 500 and "ZeroDivisionError" in text


def test_there_is_no_fourth_address() -> None:
    assert ask("/plan.json", Seen(shown=shown("1"), version=1))[0] == 404
