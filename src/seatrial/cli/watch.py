"""`seatrial watch OUT`: look on from another terminal."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from seatrial.cli.options import Folder

if TYPE_CHECKING:
    from seatrial.records.live import LiveState

EXAMPLES = "seatrial watch outputs/tiny-lm-demo\n\nseatrial watch outputs/tiny-lm-demo --once"
NOBODY = " (nobody runs it now)"
LOOK_EVERY_S = 1.0


def register(app: typer.Typer) -> None:
    """Add the verb."""
    app.command("watch", epilog=EXAMPLES)(watch)


def watch(out: Folder, once: Annotated[bool, typer.Option("--once", help="Print one line about now and end.")] = False) -> int:
    """Look on while a campaign runs: the run under way, its step, and when it and the campaign will end.

    Reads files only and disturbs nothing. Ends when the campaign does.
    """
    from rich.console import Console

    from seatrial.campaign.owner import read_owner
    from seatrial.cli.live_view import live_view, state_line
    from seatrial.paths import CampaignPaths

    paths = CampaignPaths(out)
    state = _state(paths.progress)
    owner = read_owner(paths)
    if once or owner is None:
        print(state_line(state) if state.over or owner else f"{state_line(state)}{NOBODY}")
        return 0
    with live_view(Console(emoji=False)) as view:
        while not state.over and read_owner(paths) is not None:
            view.progress(state)
            time.sleep(LOOK_EVERY_S)
            state = _state(paths.progress)
    print(state_line(state) if state.over else f"{state_line(state)}{NOBODY}")
    return 0


def _state(path: Path) -> LiveState:
    from seatrial import files
    from seatrial.errors import CampaignError
    from seatrial.records.codec import described
    from seatrial.records.live import LiveState

    state = described(LiveState, files.read_json(path))
    if state is None:
        raise CampaignError(f"nothing has run in {path.parent} yet: name a folder that `seatrial run` or `seatrial sweep` wrote to")
    return state
