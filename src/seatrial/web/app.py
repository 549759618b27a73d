"""What is answered: the page, what is new in it, and how the campaign stands. Three addresses, and no part of any comes from outside.

    /            the page, as summary.html is, with the bars of a running campaign above it
    /state.json  progress in numbers and words, whether anybody runs it, and the version of the data; asked for every two seconds
    /data.json   what of the page depends on the campaign, asked for when the version is another

In: a `Looker`, which has all of it in memory. Out: the application, with its guard before it.
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
from seatrial.web.looker import Looker, Seen
from seatrial.web.now import now_json
from seatrial.web.packed import Packed

log = logging.getLogger(__name__)

FIRST_LOOK_S = 0.05
SILENT_AFTER_S = 20.0
SILENT = "The campaign's folder has not answered for {:.0f} s: its disk hangs, or is very slow."
_POLICY = re.compile(r'<meta http-equiv="Content-Security-Policy" content="([^"]*)"')
_HEAD_BYTES = 20_000

Answer = Callable[[Request], Awaitable[Response]]


class Watched:
    """The three answers."""

    def __init__(self, looker: Looker) -> None:
        self._looker = looker
        self._lock = asyncio.Lock()
        self._page: tuple[int, Packed] | None = None

    async def page(self, request: Request) -> Response:
        seen = await self._first()
        if seen.shown is None:
            return PlainTextResponse(f"{seen.problem}\n", status_code=503, headers={"Retry-After": "5"})
        text = await self._page_of(seen)
        return text.answer(request, "text/html; charset=utf-8", {"Content-Security-Policy": _policy_of(text.plain)})

    async def data(self, request: Request) -> Response:
        seen = await self._first()
        if seen.shown is None:
            return JSONResponse({"problem": seen.problem}, status_code=503)
        return seen.shown.parts.answer(request, "application/json")

    async def state(self, request: Request) -> Response:
        seen, silent_s = self._looker.asked(), self._looker.silent_s
        problem = seen.problem or seen.state_problem or (SILENT.format(silent_s) if silent_s > SILENT_AFTER_S else "")
        told = {**(now_json(seen.now) if seen.now else {}), "version": str(seen.version), "problem": problem}
        # Names are other people's: spelled out, they are harmless to whatever else reads this.
        return Response(json.dumps(told, ensure_ascii=True, allow_nan=False), media_type="application/json")

    async def _first(self) -> Seen:
        """The newest, once there is one or a reason why there is none."""
        while (seen := self._looker.asked()).shown is None and not seen.problem:
            await asyncio.sleep(FIRST_LOOK_S)
        return seen

    async def _page_of(self, seen: Seen) -> Packed:
        """Made once for each version and only when somebody asks, in a thread, however many ask for it."""
        assert seen.shown is not None
        make = seen.shown.page
        async with self._lock:
            if self._page is None or self._page[0] != seen.version:
                self._page = (seen.version, await run_in_threadpool(lambda: Packed(make())))
            return self._page[1]


def make_app(looker: Looker, *, token: str, port: int) -> ASGIApp:
    """The application for one campaign, for whoever has the token."""
    watched = Watched(looker)
    answers = {"/": watched.page, "/state.json": watched.state, "/data.json": watched.data}
    routes = [Route(path, _told(answer)) for path, answer in answers.items()]
    return Guard(Router(routes, redirect_slashes=False), token=token, port=port)


def _told(answer: Answer) -> Answer:
    """The same, and where it fails a sentence for the browser and the rest for the terminal."""

    async def answered(request: Request) -> Response:
        try:
            return await answer(request)
        except Exception as error:
            log.exception("this answer could not be made")
            return PlainTextResponse(f"The page could not be made ({type(error).__name__}); the terminal says more.\n", status_code=500)

    return answered


def _policy_of(page: bytes) -> str:
    """The page's own policy, and what only a header can say."""
    found = _POLICY.search(page[:_HEAD_BYTES].decode(errors="replace"))
    assert found, "the page names the scripts that may run in it"
    return f"{html.unescape(found[1])}; frame-ancestors 'none'"
