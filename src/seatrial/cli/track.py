"""`--track`: what `run`, `sweep` and `report` share of it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from seatrial.campaign.results import NO_POLARS, can_measure
from seatrial.campaign.tracking import Tracking, send_all
from seatrial.errors import UsageError
from seatrial.paths import CampaignPaths
from seatrial.report.trackers.registry import chosen_trackers


def usable_trackers(names: Sequence[str]) -> list[str]:
    """The trackers asked for; a UsageError when one of them cannot be used here, before anything has started."""
    chosen = chosen_trackers(names)
    if chosen and not can_measure():
        raise UsageError(f"--track: {NO_POLARS}")
    return chosen


def tracking_to(names: Sequence[str], out: Path, console: Console) -> Tracking:
    """Trackers that warn on the console; to be used as a context."""
    return Tracking(names, CampaignPaths(out), lambda line: console.print(line, style="yellow", markup=False, soft_wrap=True))


def say_account(tracking: Tracking, console: Console) -> None:
    """How many runs each tracker has now."""
    for line in tracking.account():
        console.print(line, markup=False, highlight=False, soft_wrap=True)


def track_all(names: Sequence[str], out: Path, console: Console) -> None:
    """Send every attempt of a campaign that is over."""
    if not names:
        return
    with tracking_to(names, out, console) as tracking:
        send_all(tracking, [attempt for run in CampaignPaths(out).runs() for attempt in run.attempts()])
        say_account(tracking, console)
