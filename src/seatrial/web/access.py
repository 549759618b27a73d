"""Access control: only read-only requests with the token, from a browser that addresses this machine itself.

In: every request. Out: the application's response, or a refusal that reveals nothing about the campaign. The token comes once, in the
address; from then on it is in a cookie that scripts cannot read and other sites' pages cannot send. The port is in the cookie's name:
browsers keep one cookie jar for all ports of a host, and a second watcher would otherwise lock out the first.
"""

from __future__ import annotations

import hmac
import secrets

from starlette.datastructures import MutableHeaders
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

TOKEN_BYTES = 32
METHODS = ("GET", "HEAD")
LOOPBACK_HOSTS = ("127.0.0.1", "localhost", "[::1]")
NOTHING_LOADED = "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
HEADERS = {
    "Content-Security-Policy": NOTHING_LOADED,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cache-Control": "no-store",
}
# Connections are limited, and kept open only for requests with the token.
CLOSE_CONNECTION = {"Connection": "close"}
# Not a redirect: a browser counts it as started by the page with the link, a chat in another tab or the file that `--open` opens, and would
# not send the strict cookie. This page starts a navigation of its own.
TOKEN_PAGE = (
    '<!doctype html><meta charset="utf-8"><meta http-equiv="refresh" content="0;url=/"><title>Seatrial</title><a href="/">Continue</a>\n'
)
NO_TOKEN = "Token missing or wrong. Open the address that `seatrial watch --web` printed.\n"
WRONG_HOST = "Use 127.0.0.1 or localhost and the port that `seatrial watch --web` printed; through ssh -L, forward the same number.\n"
READ_ONLY = "Read-only: GET and HEAD.\n"


def new_token() -> str:
    """A secret that is safe in a URL."""
    return secrets.token_urlsafe(TOKEN_BYTES)


class Guard:
    """Middleware that checks method, host and token, and sets the headers of every response."""

    def __init__(self, app: ASGIApp, *, token: str, port: int) -> None:
        self._app, self._token = app, token
        self._cookie = f"seatrial_{port}"
        self._hosts = [[f"{name}:{port}"] for name in LOOPBACK_HOSTS]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return

        async def send_guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        respond = self._answer(Request(scope)) or self._app
        await respond(scope, receive, send_guarded)

    def _answer(self, request: Request) -> Response | None:
        """The response without calling the application; None where it is to be called."""
        if request.method not in METHODS:
            return PlainTextResponse(READ_ONLY, status_code=405, headers={"Allow": ", ".join(METHODS), **CLOSE_CONNECTION})
        # A foreign name that resolves to this machine (DNS rebinding) is still foreign in this header.
        if [host.lower() for host in request.headers.getlist("host")] not in self._hosts:
            return PlainTextResponse(WRONG_HOST, status_code=403, headers=CLOSE_CONNECTION)
        given = request.query_params.get("token")
        if request.scope["path"] == "/" and given is not None and self._is_right(given):
            return self._login_response()
        if given is None and self._is_right(request.cookies.get(self._cookie, "")):
            return None
        return PlainTextResponse(NO_TOKEN, status_code=403, headers=CLOSE_CONNECTION)

    def _login_response(self) -> Response:
        response = HTMLResponse(TOKEN_PAGE)
        response.set_cookie(self._cookie, self._token, path="/", httponly=True, samesite="strict")
        return response

    def _is_right(self, given: str) -> bool:
        return hmac.compare_digest(given.encode(errors="surrogatepass"), self._token.encode())
