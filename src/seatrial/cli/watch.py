"""`seatrial watch OUT`: look on from another terminal, or with --web from a browser."""

from __future__ import annotations

import contextlib
import importlib
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from seatrial.cli.options import Folder
from seatrial.ports import LAST_PORT

if TYPE_CHECKING:
    from seatrial.paths import CampaignPaths
    from seatrial.records.live import LiveState

EXAMPLES = "seatrial watch outputs/tiny-lm-demo --once\n\nseatrial watch outputs/tiny-lm-demo --web --port 8123"
NOBODY = " (nobody runs it now)"
LOOK_EVERY_S = 1.0

Once = Annotated[bool, typer.Option("--once", help="Print one line about now and end.")]
Web = Annotated[bool, typer.Option("--web", help="Serve the report as a live page on 127.0.0.1, until interrupted. Read-only.")]
Port = Annotated[
    int | None, typer.Option("--port", metavar="PORT", help="With --web: this port instead of a free one.", min=0, max=LAST_PORT)
]
Open = Annotated[bool, typer.Option("--open", help="With --web: open the page in a browser, where there is a display.")]


def register(app: typer.Typer) -> None:
    """Add the verb."""
    app.command("watch", epilog=EXAMPLES)(watch)


def watch(out: Folder, once: Once = False, web: Web = False, port: Port = None, open_it: Open = False) -> int:
    """Look on while a campaign runs: the run under way, its step, and when it and the campaign will end.

    Reads files only and disturbs nothing. Ends when the campaign does; the page of --web stays until interrupted.
    """
    from seatrial.paths import CampaignPaths

    paths = CampaignPaths(out)
    _check_words(once=once, web=web, port=port, open_it=open_it)
    if web:
        return _watch_in_browser(paths, port or 0, open_it)
    return _watch_in_terminal(paths, once)


def _check_words(*, once: bool, web: bool, port: int | None, open_it: bool) -> None:
    from seatrial.errors import UsageError

    if once and web:
        raise UsageError("--once prints one line and ends, --web serves a page until it is interrupted: leave one of them out")
    if not web and (open_it or port is not None):
        raise UsageError(f"{'--open' if open_it else '--port'} is for the page of --web: add --web, or leave it out")


def _watch_in_terminal(paths: CampaignPaths, once: bool) -> int:
    from seatrial.campaign.owner import read_owner
    from seatrial.cli.live_view import live_view, state_line
    from seatrial.cli.say import people

    state = _state(paths.progress)
    owner = read_owner(paths)
    if once or owner is None:
        print(state_line(state) if state.over or owner else f"{state_line(state)}{NOBODY}")
        return 0
    with live_view(people()) as view:
        while not state.over and read_owner(paths) is not None:
            view.progress(state)
            time.sleep(LOOK_EVERY_S)
            state = _state(paths.progress)
    print(state_line(state) if state.over else f"{state_line(state)}{NOBODY}")
    return 0


def _watch_in_browser(paths: CampaignPaths, port: int, open_it: bool) -> int:
    from seatrial.campaign.grouped import NO_POLARS, can_measure, plans_of
    from seatrial.cli.live_view import state_line
    from seatrial.errors import CampaignError

    _need_web()
    if not can_measure():
        raise CampaignError(NO_POLARS)
    plans_of(paths)
    from seatrial.cli.open_private import opened
    from seatrial.web.serve import open_door, serve

    door = open_door(port)
    print(f"{door.address}\nRead-only, for whoever has this address. Ctrl-C ends it; the campaign goes on.", flush=True)
    with opened(door.address, door.port) if open_it else contextlib.nullcontext("") as sentence:
        if sentence:
            print(sentence, flush=True)
        serve(paths, door, state_line)
    return 0


def _need_web() -> None:
    """Loaded, and not only looked for: packages that are there may still not load."""
    from seatrial.errors import UsageError

    try:
        importlib.import_module("seatrial.web.serve")
    except ImportError as error:
        raise UsageError(f"`watch --web` needs packages that cannot be loaded here ({error}): pip install 'seatrial[web]'") from error


def _state(path: Path) -> LiveState:
    from seatrial import files
    from seatrial.errors import CampaignError
    from seatrial.records.codec import described
    from seatrial.records.live import LiveState

    state = described(LiveState, files.read_json(path))
    if state is None:
        raise CampaignError(f"nothing has run in {path.parent} yet: name a folder that `seatrial run` or `seatrial sweep` wrote to")
    return state
