"""The HTTP application: three addresses, answered from memory.

/            the page, as summary.html is, with the progress bars of a running campaign above it
/state.json  progress in numbers and text, whether the campaign runs, and the version of the data; polled every two seconds
/data.json   the parts of the page that depend on the campaign, fetched when the version changes
"""

from __future__ import annotations

import asyncio
import html
import json
import logging
import re
from collections.abc import Awaitable, Callable

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route, Router
from starlette.types import ASGIApp

from seatrial.web.access import Guard
from seatrial.web.compressed_text import CompressedText
from seatrial.web.refresher import Latest, Refresher
from seatrial.web.state import state_json

log = logging.getLogger(__name__)

FIRST_POLL_S = 0.05
SILENT_AFTER_S = 20.0
SILENT = "The campaign's folder has not responded for {:.0f} s: its disk hangs or is very slow."
_POLICY = re.compile(r'<meta http-equiv="Content-Security-Policy" content="([^"]*)"')
_HEAD_BYTES = 20_000

Answer = Callable[[Request], Awaitable[Response]]


class Pages:
    """The three responses."""

    def __init__(self, refresher: Refresher) -> None:
        self._refresher = refresher
        self._lock = asyncio.Lock()
        self._page: tuple[int, CompressedText] | None = None

    async def page(self, request: Request) -> Response:
        latest = await self._first()
        if latest.shown is None:
            return PlainTextResponse(f"{latest.problem}\n", status_code=503, headers={"Retry-After": "5"})
        text = await self._page_of(latest)
        return text.answer(request, "text/html; charset=utf-8", {"Content-Security-Policy": _policy_of(text.plain)})

    async def data(self, request: Request) -> Response:
        latest = await self._first()
        if latest.shown is None:
            return JSONResponse({"problem": latest.problem}, status_code=503)
        return latest.shown.parts.answer(request, "application/json")

    async def state(self, request: Request) -> Response:
        latest, silent_s = self._refresher.latest(), self._refresher.silent_s
        problem = latest.problem or latest.state_problem or (SILENT.format(silent_s) if silent_s > SILENT_AFTER_S else "")
        document = {**(state_json(latest.now) if latest.now else {}), "version": str(latest.version), "problem": problem}
        # Names come from users: as ASCII they are harmless to whatever else reads this.
        return Response(json.dumps(document, ensure_ascii=True, allow_nan=False), media_type="application/json")

    async def _first(self) -> Latest:
        """Wait for the newest version, or the reason why there is none."""
        while (latest := self._refresher.latest()).shown is None and not latest.problem:
            await asyncio.sleep(FIRST_POLL_S)
        return latest

    async def _page_of(self, latest: Latest) -> CompressedText:
        """The page, built once for each version, on the first request, in a thread."""
        assert latest.shown is not None
        build = latest.shown.page
        async with self._lock:
            if self._page is None or self._page[0] != latest.version:
                self._page = (latest.version, await run_in_threadpool(lambda: CompressedText(build())))
            return self._page[1]


def create_app(refresher: Refresher, *, token: str, port: int) -> ASGIApp:
    """The application for one campaign; requests need the token."""
    watched = Pages(refresher)
    answers = {"/": watched.page, "/state.json": watched.state, "/data.json": watched.data}
    routes = [Route(path, _with_error_page(answer)) for path, answer in answers.items()]
    return Guard(Router(routes, redirect_slashes=False), token=token, port=port)


def _with_error_page(answer: Answer) -> Answer:
    """`answer`; where it fails, a sentence for the browser and the traceback for the terminal."""

    async def answered(request: Request) -> Response:
        try:
            return await answer(request)
        except Exception as error:
            log.exception("no response could be built")
            return PlainTextResponse(f"The page could not be built ({type(error).__name__}); see the terminal.\n", status_code=500)

    return answered


def _policy_of(page: bytes) -> str:
    """The page's own policy, plus what only a header can set."""
    found = _POLICY.search(page[:_HEAD_BYTES].decode(errors="replace"))
    assert found, "the page names the scripts that may run in it"
    return f"{html.unescape(found[1])}; frame-ancestors 'none'"
