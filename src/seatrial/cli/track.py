"""`--track`: what `run`, `sweep` and `report` share of it."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
from collections.abc import Iterator, Sequence
from pathlib import Path

from rich.console import Console

from seatrial.campaign.grouped import NO_POLARS, can_measure
from seatrial.campaign.owner import asked_to_stop, read_owner
from seatrial.campaign.tracker_handle import GiveUp, never
from seatrial.campaign.tracking import Tracking, send_all
from seatrial.errors import UsageError
from seatrial.paths import CampaignPaths
from seatrial.records.exit_codes import STOP_SIGNALS
from seatrial.report.trackers.registry import chosen_trackers

SIGNALS_AT_ONCE = 4096


def usable_trackers(names: Sequence[str]) -> list[str]:
    """The trackers asked for; a UsageError when one of them cannot be used here, before anything has started."""
    chosen = chosen_trackers(names)
    if chosen and not can_measure():
        raise UsageError(f"--track: {NO_POLARS}")
    return chosen


def tracking_to(names: Sequence[str], out: Path, console: Console, give_up: GiveUp = never) -> Tracking:
    """Trackers that warn on the console; to be used as a context."""

    def warn(line: str) -> None:
        console.print(line, style="yellow", markup=False, soft_wrap=True)

    return Tracking(names, CampaignPaths(out), warn, give_up=give_up)


@contextlib.contextmanager
def stop_wishes(out: Path) -> Iterator[GiveUp]:
    """A question that may be asked again and again: has the user asked this process to stop since, by a signal or by `seatrial stop`?"""
    paths, wished = CampaignPaths(out), False
    heard, told = socket.socketpair()

    def is_wished() -> bool:
        nonlocal wished
        wished = wished or _stop_signal_in(heard) or _stop_request_in(paths)
        return wished

    with heard, told:
        heard.setblocking(False)
        told.setblocking(False)
        # While runs run, signals are counted by handlers out of reach from here; this descriptor hears of each, whoever handles it.
        before = signal.set_wakeup_fd(told.fileno(), warn_on_full_buffer=False)
        try:
            yield is_wished
        finally:
            signal.set_wakeup_fd(before)


def _stop_signal_in(heard: socket.socket) -> bool:
    with contextlib.suppress(BlockingIOError):
        return any(number in STOP_SIGNALS for number in heard.recv(SIGNALS_AT_ONCE))
    return False


def _stop_request_in(paths: CampaignPaths) -> bool:
    owner = read_owner(paths)
    return owner is not None and owner.pid == os.getpid() and asked_to_stop(paths, owner)


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
